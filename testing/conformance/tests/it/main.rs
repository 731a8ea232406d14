//! The golden vectors, the suite against the Rust client, and the suite's own proof.

mod clients;
mod command;
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

/// Runs all cases against this driver. None may fail; a case that cannot be run here is skipped, and says why.
fn passes_all(command: &[OsString]) {
    let _alone = alone();
    let reports = run(command, cases(), 16).filter(|report| report.verdict != Verdict::Passed);
    let (failed, skipped): (Vec<Report>, Vec<Report>) =
        reports.partition(|report| matches!(report.verdict, Verdict::Failed(_)));
    for report in &skipped {
        println!("{report}");
    }
    for report in &failed {
        println!("{report}\n      {}", report.transcript.join("\n      "));
    }
    assert!(failed.is_empty(), "{} cases failed", failed.len());
}
