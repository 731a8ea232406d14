//! Measures monolock beside the physical floor, beside what people would use instead, and beside its goals.
//!
//! Servers are processes of their own: monolock the released program, the floors this one, the peers those of Debian.
//! Rounds go from server to server, and a ratio is taken within a round, so that it stands on a noisy machine too. Load
//! is made by `monolock bench`, and single events are timed by blocking sockets in this process.

mod certificates;
mod client;
mod contest;
mod floors;
mod generator;
mod machine;
mod peers;
mod plots;
mod process;
mod report;
mod rows;
mod sheet;
mod statistics;
mod target;

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::{Parser, Subcommand};

use crate::certificates::Certificates;
use crate::client::Claim;
use crate::machine::Machine;
use crate::peers::Peers;
use crate::report::Report;
use crate::rows::{Context, ROWS, Row};
use crate::target::{Address, Kind, Programs};

/// Measures monolock beside the physical floor, and beside its goals.
///
/// Wants a quiet machine. The status is 1 where a goal is missed.
#[derive(Parser)]
#[command(max_term_width = 100)]
struct Bench {
    #[command(subcommand)]
    role: Option<Role>,
    /// Rounds; each measures each server once. Fewer than five judge nothing
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Also measures Redis, etcd and PostgreSQL
    #[arg(long)]
    peers: bool,
    /// Only these rows; may be given several times
    #[arg(long, value_name = "ROW", value_parser = rows::find)]
    only: Vec<&'static Row>,
    /// Small, short, and one round: to see that it works. Judges nothing
    #[arg(long)]
    quick: bool,
    /// Also writes everything into this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draws plots into this directory
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// The released program, where it does not lie beside this one
    #[arg(long, value_name = "FILE")]
    monolock: Option<PathBuf>,
    /// Lists the rows and does nothing
    #[arg(long)]
    list: bool,
}

#[derive(Subcommand)]
enum Role {
    /// Is one of the measured servers; says its address, and ends with its standard input.
    #[command(hide = true)]
    Serve { kind: Kind },
    /// Holds the lock until it is killed.
    #[command(hide = true)]
    Hold { server: SocketAddr, authority: Option<PathBuf> },
}

fn main() -> ExitCode {
    let mut bench = Bench::parse();
    let outcome = match bench.role.take() {
        Some(Role::Serve { kind }) => target::serve(kind).map(|()| ExitCode::SUCCESS),
        Some(Role::Hold { server, authority }) => hold(server, authority.as_deref()).map(|()| ExitCode::SUCCESS),
        None if bench.list => {
            for Row { id, title, .. } in ROWS {
                println!("{id:<18} {title}");
            }
            Ok(ExitCode::SUCCESS)
        }
        None => measure(&bench),
    };
    match outcome {
        Ok(status) => status,
        Err(error) => {
            eprintln!("monolock-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Rounds below which nothing is judged.
const LEAST_ROUNDS: usize = 5;

fn measure(bench: &Bench) -> io::Result<ExitCode> {
    let monolock = bench.monolock.clone().map_or_else(generator::released_program, Ok)?;
    monolock_net::raise_descriptor_limit()?;
    let programs = Programs { monolock, certificates: Certificates::make()? };
    let peers = if bench.peers { Some(Peers::start()?) } else { None };
    let rounds = if bench.quick { 1 } else { usize::from(bench.rounds) };
    let versions = peers.as_ref().map_or_else(Vec::new, Peers::versions);
    let machine = Machine::look(&programs.monolock, versions);
    let context = Context { programs, peers, rounds, quick: bench.quick };
    let is_trial = bench.quick || rounds < LEAST_ROUNDS;
    let mut report = Report { machine, rounds, is_trial, rows: Vec::new(), failures: Vec::new() };
    let rows: Vec<&Row> = if bench.only.is_empty() { ROWS.iter().collect() } else { bench.only.clone() };
    for (number, row) in rows.iter().enumerate() {
        let start = Instant::now();
        eprint!("{}/{} {} ", number + 1, rows.len(), row.id);
        match row.run(&context) {
            Ok(sheet) => report.rows.push(sheet),
            // What took minutes is not thrown away for it.
            Err(error) => report.failures.push(error.to_string()),
        }
        eprintln!("{:.1} s", start.elapsed().as_secs_f64());
    }
    report.machine.look_again();
    if let Some(file) = &bench.json {
        fs::write(file, serde_json::to_vec_pretty(&report)?)?;
    }
    if let Some(directory) = &bench.plots {
        plots::draw(&report, directory)?;
    }
    // Whoever closes the pipe has read enough.
    let _ = writeln!(io::stdout(), "{report}");
    let (missed, failed) = (report.missed(), report.failures.len());
    if missed > 0 {
        eprintln!("{missed} goals are missed");
    }
    if failed > 0 {
        eprintln!("{failed} rows could not be measured: {}", report.failures.join("; "));
    }
    Ok(if missed + failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Holds the lock until standard input ends, or this process does.
fn hold(server: SocketAddr, authority: Option<&Path>) -> io::Result<()> {
    let tls = authority.map(certificates::anonymous_client).transpose()?.map(Arc::new);
    let mut claim = Claim::make(&Address { socket: server, tls })?;
    claim.await_acquired()?;
    println!("held");
    let _ = io::stdin().read(&mut [0]);
    Ok(())
}
