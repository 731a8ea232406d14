//! Plays a scripted server against any monolock client, and says which rules it keeps.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use monolock_conformance::{Case, Verdict, cases, run};

/// Runs the conformance suite against a client, through its driver.
#[derive(Parser)]
#[command(max_term_width = 100)]
struct Conformance {
    /// Only lists the cases.
    #[arg(long)]
    list: bool,
    /// Only cases whose name contains this; may be given several times.
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// How often each case is run; it has to pass every time.
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: usize,
    /// How many cases are run at a time.
    #[arg(long, value_name = "N", default_value_t = 8)]
    jobs: usize,
    /// Leaves out the transcript under a failure.
    #[arg(long)]
    brief: bool,
    /// The driver and its arguments.
    #[arg(trailing_var_arg = true, value_name = "DRIVER")]
    driver: Vec<OsString>,
}

fn main() -> ExitCode {
    let Conformance { list, only, repeat, jobs, brief, driver } = Conformance::parse();
    let chosen: Vec<&'static Case> = cases()
        .filter(|case| only.is_empty() || only.iter().any(|pattern| case.name.contains(pattern.as_str())))
        .collect();
    if chosen.is_empty() {
        eprintln!("monolock-conformance: no case is named so; --list shows them all");
        return ExitCode::from(2);
    }
    if list {
        for Case { name, about, .. } in chosen {
            say(&format!("{name}\n    {about}"));
        }
        return ExitCode::SUCCESS;
    }
    if driver.is_empty() {
        eprintln!("monolock-conformance: which driver? Put its command behind the options");
        return ExitCode::from(2);
    }
    let rounds = (0..repeat).flat_map(|_| chosen.iter().copied()).collect::<Vec<_>>();
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for report in run(&driver, rounds, jobs) {
        say(&report.to_string());
        match report.verdict {
            Verdict::Passed => passed += 1,
            Verdict::Skipped(_) => skipped += 1,
            Verdict::Failed(_) => {
                failed += 1;
                if !brief {
                    report.transcript.iter().for_each(|line| say(&format!("      {line}")));
                }
            }
        }
    }
    let skipped = if skipped == 0 { String::new() } else { format!(", {skipped} skipped") };
    say(&format!("{passed} passed, {failed} failed{skipped}"));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn say(line: &str) {
    // Nobody reads any more: then there is nobody to be told.
    let _ = writeln!(io::stdout(), "{line}");
}
