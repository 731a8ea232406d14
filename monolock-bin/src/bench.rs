//! `monolock bench`: a load generator for any server that speaks the protocol.
//!
//! Clients are raw frames over sockets, so that the generator is not the limit: no sessions, no timers, no retries.
//! Each thread has a part of the connections and a runtime of its own; all threads go through the same steps at the
//! same time ([`crew`]), so what is measured begins when everybody is ready and ends when the last is done.

mod args;
mod crew;
mod dial;
mod failures;
mod plan;
mod process;
mod progress;
mod report;
mod session;
mod tally;
mod work;

use std::io::Write as _;
use std::process::ExitCode;

pub(crate) use self::args::{BENCH_HELP, BenchArgs};
use self::plan::Plan;
use self::progress::Progress;
use self::report::Report;
use crate::failure::{FAILED, Failure};

/// Puts load on the server and says what came of it.
///
/// # Errors
/// What was asked for cannot be done, no server is there, or not one operation succeeded.
pub(crate) fn bench(args: &BenchArgs) -> Result<ExitCode, Failure> {
    let plan = Plan::make(args)?;
    let dialler = dial::Dialler::prepare(args, &plan)?;
    let progress = Progress::start(&plan);
    let outcome = crew::run(&plan, &dialler, &progress)?;
    progress.finish();
    let report = Report::new(&plan, &dialler, &outcome);
    let text = if args.json { report.to_json() } else { report.to_string() };
    // Whoever closes the pipe has read enough.
    let _ = writeln!(std::io::stdout(), "{text}");
    match (outcome.tally.succeeded(), outcome.tally.failures.first()) {
        (0, Some(failure)) => Err(Failure::new(FAILED, format_args!("not one operation succeeded: {failure}"))),
        (0, None) => Err(Failure::new(FAILED, "not one operation was done: give it a longer --duration")),
        (1.., _) => Ok(ExitCode::SUCCESS),
    }
}
