//! Measures monolock: the handover beside the floor, and what operations add to it and to a heartbeat.
//!
//! The floor is the relay: the least that a FIFO lock over TCP can be. All servers are processes of this very program
//! with the same runtime; the same client measures all, in interleaved rounds of one run, so that the ratios stand on a
//! noisy machine too.

mod certificates;
mod client;
mod measure;
mod relay;
mod target;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::certificates::Certificates;
use crate::measure::{Measure, Pace};
use crate::target::{Kind, Target};

/// Measures monolock beside the physical floor, and with its operations beside itself without.
#[derive(Parser)]
#[command(max_term_width = 100)]
struct Bench {
    #[command(subcommand)]
    role: Option<Role>,
    /// Rounds; each measures each server once.
    #[arg(long, default_value_t = 25)]
    rounds: usize,
    /// Handovers, and heartbeats, of one round at full pace; with rests it is a fifth.
    #[arg(long, default_value_t = 500)]
    handovers: usize,
}

#[derive(Subcommand)]
enum Role {
    /// Is one of the measured servers; says its address, and ends with its standard input.
    #[command(hide = true)]
    Serve { kind: Kind, directory: PathBuf },
}

fn main() -> ExitCode {
    let Bench { role, rounds, handovers } = Bench::parse();
    let outcome = match role {
        Some(Role::Serve { kind, directory }) => target::serve(kind, &directory),
        None => compare(rounds.max(1), handovers.max(1)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("monolock-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(rounds: usize, count: usize) -> io::Result<()> {
    let certificates = Certificates::make()?;
    let targets: Vec<Target> =
        Kind::ALL.iter().map(|kind| Target::start(*kind, &certificates)).collect::<io::Result<_>>()?;
    println!("{:<42} {:>10} {:>7}   half the rounds  beside", "", "median", "ratio");
    for measure in Measure::ALL {
        for pace in Pace::ALL {
            println!("{measure}, {pace}");
            let targets: Vec<&Target> = targets.iter().filter(|target| measure.knows(target.kind)).collect();
            report(&measure_rounds(measure, pace, &targets, rounds, count)?);
        }
    }
    Ok(())
}

/// What a server took, round by round.
struct Series {
    kind: Kind,
    medians: Vec<Duration>,
}

fn measure_rounds(
    measure: Measure,
    pace: Pace,
    targets: &[&Target],
    rounds: usize,
    count: usize,
) -> io::Result<Vec<Series>> {
    let mut series: Vec<Series> =
        targets.iter().map(|target| Series { kind: target.kind, medians: Vec::new() }).collect();
    for target in targets {
        // Once for nothing: caches, branch predictors and the allocator's pools.
        measure.take(target, pace, count / 10 + 1)?;
    }
    for _ in 0..rounds {
        for (series, target) in series.iter_mut().zip(targets) {
            series.medians.push(measure.take(target, pace, count)?);
        }
    }
    Ok(series)
}

fn report(all: &[Series]) {
    for Series { kind, medians } in all {
        let base = kind.base().and_then(|base| all.iter().find(|series| series.kind == base));
        let kind = kind.to_string();
        let time = median(medians.clone());
        match base {
            None => println!("  {kind:<40} {time:>10.1?}"),
            Some(base) => {
                let Ratios { lower, median, upper } = Ratios::of(medians, &base.medians);
                let spread = format!("{lower:.2} to {upper:.2}");
                println!("  {kind:<40} {time:>10.1?} {median:>7.2}   {spread:<16} {}", base.kind);
            }
        }
    }
}

/// Of each round by itself, so that what disturbs a round disturbs both sides; half of them lie from `lower` to
/// `upper`.
struct Ratios {
    lower: f64,
    median: f64,
    upper: f64,
}

impl Ratios {
    fn of(medians: &[Duration], base: &[Duration]) -> Self {
        let ratio = |(ours, base): (&Duration, &Duration)| ours.as_secs_f64() / base.as_secs_f64();
        let mut ratios: Vec<f64> = medians.iter().zip(base).map(ratio).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        let [lower, median, upper] = [1, 2, 3].map(|quarter| ratios[(ratios.len() - 1) * quarter / 4]);
        Self { lower, median, upper }
    }
}

fn median(mut durations: Vec<Duration>) -> Duration {
    durations.sort_unstable();
    durations[durations.len() / 2]
}
