//! Many worlds, on all cores, with one answer whatever the order in which they end.
//!
//! Seeds are handed out in rising order. The failing seed that is reported is the smallest of those that were run, so a
//! run says the same thing on one core and on a hundred.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::oracle::{Failure, Oracle, Violation};
use crate::{Marks, Profile, Report};

/// Each so many seeds one is lived through twice, to see that it has one history.
const TWICE_EVERY: u64 = 64;

/// Which worlds to run.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// The first seed.
    pub from: u64,
    /// How many there are.
    pub seeds: u64,
    /// Whether to stop once the smallest failing seed is certain.
    pub stops_at_first: bool,
}

/// What became of them.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// How many worlds were lived through.
    pub seeds: u64,
    /// How many events there were in all.
    pub steps: u64,
    /// How much time passed in them, in nanoseconds of their own.
    pub virtual_nanos: u128,
    /// The interesting things that happened.
    pub marks: Marks,
    /// How many worlds failed.
    pub failures: u64,
    /// The smallest seed that failed, and how.
    pub first: Option<Failure>,
}

/// Lives through all worlds of a range, on so many threads. `simulate` makes a world of a seed; `done` is called after
/// each with its report. Both are called from any thread.
pub fn run(
    range: Range,
    threads: usize,
    simulate: impl Fn(u64) -> Report + Sync,
    done: impl Fn(&Report) + Sync,
) -> Summary {
    let Range { from, seeds, stops_at_first } = range;
    let next = AtomicU64::new(0);
    let failed = AtomicBool::new(false);
    let summary = Mutex::new(Summary::default());
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                let mut own = Summary::default();
                // A seed that was handed out is lived through: then no smaller one is missing when the first fails.
                while !(stops_at_first && failed.load(Ordering::Relaxed)) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= seeds {
                        break;
                    }
                    let report = checked(&simulate, from.wrapping_add(number), number);
                    if report.violation.is_some() {
                        failed.store(true, Ordering::Relaxed);
                    }
                    own.add(&report);
                    done(&report);
                }
                summary.lock().unwrap_or_else(std::sync::PoisonError::into_inner).join(own);
            });
        }
    });
    summary.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn checked(simulate: &impl Fn(u64) -> Report, seed: u64, number: u64) -> Report {
    let mut report = match panic::catch_unwind(AssertUnwindSafe(|| simulate(seed))) {
        Ok(report) => report,
        Err(panic) => return panicked(seed, panic.as_ref()),
    };
    if number.is_multiple_of(TWICE_EVERY) && report.violation.is_none() {
        let again = simulate(seed);
        if again.hash != report.hash || again.steps != report.steps {
            report.violation = Some(Violation {
                oracle: Oracle::Determinism,
                at: report.virtual_nanos,
                what: format!("two histories: {:016x} and {:016x}", report.hash, again.hash),
            });
        }
    }
    report
}

/// A world that ended in a panic: that is found like everything else.
fn panicked(seed: u64, panic: &(dyn Any + Send)) -> Report {
    let words = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let what = words.unwrap_or("without words").to_owned();
    Report {
        seed,
        profile: Profile::of(seed),
        steps: 0,
        virtual_nanos: 0,
        hash: 0,
        marks: Marks::default(),
        violation: Some(Violation { oracle: Oracle::Panic, at: 0, what }),
        story: Vec::new(),
    }
}

impl Summary {
    fn add(&mut self, report: &Report) {
        self.seeds += 1;
        self.steps += report.steps;
        self.virtual_nanos += u128::from(report.virtual_nanos);
        self.marks.add(&report.marks);
        if let Some(violation) = &report.violation {
            self.failures += 1;
            self.fails(Failure { seed: report.seed, violation: violation.clone() });
        }
    }

    fn join(&mut self, other: Self) {
        let Self { seeds, steps, virtual_nanos, marks, failures, first } = other;
        self.seeds += seeds;
        self.steps += steps;
        self.virtual_nanos += virtual_nanos;
        self.marks.add(&marks);
        self.failures += failures;
        if let Some(failure) = first {
            self.fails(failure);
        }
    }

    /// The smallest seed stands.
    fn fails(&mut self, failure: Failure) {
        if self.first.as_ref().is_none_or(|first| failure.seed < first.seed) {
            self.first = Some(failure);
        }
    }
}
