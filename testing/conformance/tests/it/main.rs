//! The golden vectors, the suite against the Rust client, and the suite's own proof.

mod clients;
mod planted;
mod vectors;

use std::ffi::OsString;
use std::sync::{Mutex, MutexGuard, PoisonError};

use monolock_conformance::{Report, Verdict, cases, run};

/// One run of the suite at a time: what it asserts is about time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs all cases against this driver; all must pass, or be skipped for one of these reasons.
fn passes_all(command: &[OsString], skips: &[&str]) {
    let _alone = alone();
    let failures: Vec<Report> = run(command, cases(), 10)
        .filter(|report| match &report.verdict {
            Verdict::Passed => false,
            Verdict::Skipped(why) => !skips.iter().any(|skip| why.contains(skip)),
            Verdict::Failed(_) => true,
        })
        .collect();
    for report in &failures {
        println!("{report}");
        report.transcript.iter().for_each(|line| println!("      {line}"));
    }
    assert!(failures.is_empty(), "{} cases failed", failures.len());
}
