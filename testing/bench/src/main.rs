//! Measures the handover: from the holder's close to the waiter's reading of `ACQUIRED`, beside the floor.
//!
//! The floor is the relay: the least that a FIFO lock over TCP can be. Both servers are processes of this very program with the same
//! runtime; the same client measures both, in interleaved rounds of one run, so that the ratio stands on a noisy machine too.

mod measure;
mod relay;
mod target;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::measure::Pace;
use crate::target::{Kind, Target};

/// Measures monolock beside the physical floor.
#[derive(Parser)]
#[command(max_term_width = 100)]
struct Bench {
    #[command(subcommand)]
    role: Option<Role>,
    /// Rounds; each measures each server once, at each pace.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Handovers of one round at one pace.
    #[arg(long, default_value_t = 2000)]
    handovers: usize,
}

#[derive(Subcommand)]
enum Role {
    /// Is one of the measured servers; says its address, and ends with its standard input.
    #[command(hide = true)]
    Serve { kind: Kind },
}

fn main() -> ExitCode {
    let Bench { role, rounds, handovers } = Bench::parse();
    let outcome = match role {
        Some(Role::Serve { kind }) => target::serve(kind),
        None => compare(rounds, handovers),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("monolock-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(rounds: usize, handovers: usize) -> std::io::Result<()> {
    let relay = Target::start(Kind::Relay)?;
    let monolock = Target::start(Kind::Monolock)?;
    println!("{:<22} {:>12} {:>12} {:>7}   ratios of the rounds", "handover, median", "relay", "monolock", "ratio");
    for pace in Pace::ALL {
        let mut floors = Vec::new();
        let mut ours = Vec::new();
        // Once for nothing: caches, branch predictors and the allocator's pools.
        measure::handovers(relay.address(), pace, handovers / 10 + 1)?;
        measure::handovers(monolock.address(), pace, handovers / 10 + 1)?;
        for _ in 0..rounds.max(1) {
            floors.push(measure::handovers(relay.address(), pace, handovers.max(1))?);
            ours.push(measure::handovers(monolock.address(), pace, handovers.max(1))?);
        }
        let mut ratios: Vec<f64> = ours.iter().zip(&floors).map(|(ours, floor)| ratio(*ours, *floor)).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        let (floor, our) = (median(&mut floors), median(&mut ours));
        let (lowest, highest) = (ratios[0], ratios[ratios.len() - 1]);
        let middle = ratios[ratios.len() / 2];
        println!("{:<22} {floor:>12.1?} {our:>12.1?} {middle:>7.2}   {lowest:.2} to {highest:.2}", pace.to_string());
    }
    Ok(())
}

fn ratio(ours: Duration, floor: Duration) -> f64 {
    ours.as_secs_f64() / floor.as_secs_f64()
}

fn median(durations: &mut [Duration]) -> Duration {
    durations.sort_unstable();
    durations[durations.len() / 2]
}
