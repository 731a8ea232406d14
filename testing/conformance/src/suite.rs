//! Runs cases, several at a time, each with a driver process of its own.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, channel};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use crate::cases::Case;
use crate::driver::Driver;
use crate::outcome::{Outcome, Stop, fail};
use crate::timeline::Timeline;
use crate::world::World;

/// What came of one case.
#[derive(Clone, Debug)]
pub struct Report {
    /// The case.
    pub case: &'static Case,
    /// What came of it.
    pub verdict: Verdict,
    /// How long it took, the start of the driver included.
    pub took: Duration,
    /// What happened, line by line.
    pub transcript: Vec<String>,
}

/// Whether the client did what it must.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It did.
    Passed,
    /// It did not: what was expected, and what came.
    Failed(String),
    /// It was not asked, and why.
    Skipped(String),
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, took) = (self.case.name, self.took.as_secs_f64());
        match &self.verdict {
            Verdict::Passed => write!(f, "pass  {name} ({took:.1} s)"),
            Verdict::Failed(what) => write!(f, "FAIL  {name} ({took:.1} s): {what}"),
            Verdict::Skipped(why) => write!(f, "skip  {name}: {why}"),
        }
    }
}

/// Runs the cases against the driver that `command` starts, `jobs` at a time; the reports come as the cases end.
pub fn run(
    command: &[OsString],
    cases: impl IntoIterator<Item = &'static Case>,
    jobs: usize,
) -> mpsc::IntoIter<Report> {
    let cases: Arc<[&'static Case]> = cases.into_iter().collect();
    let next = Arc::new(AtomicUsize::new(0));
    let (sender, reports) = channel();
    for _ in 0..jobs.max(1) {
        let (command, cases, next, sender) = (command.to_vec(), Arc::clone(&cases), Arc::clone(&next), sender.clone());
        thread::spawn(move || {
            while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                if sender.send(run_one(&command, case)).is_err() {
                    return;
                }
            }
        });
    }
    reports.into_iter()
}

fn run_one(command: &[OsString], case: &'static Case) -> Report {
    let (timeline, begun) = (Timeline::new(), Instant::now());
    let verdict = match through(command, case, &timeline) {
        Ok(()) => Verdict::Passed,
        Err(Stop::Failed(what)) => Verdict::Failed(what),
        Err(Stop::Skipped(why)) => Verdict::Skipped(why),
    };
    Report { case, verdict, took: begun.elapsed(), transcript: timeline.transcript() }
}

fn through(command: &[OsString], case: &Case, timeline: &Timeline) -> Outcome {
    let world = World { driver: Driver::start(command, timeline)?, timeline: timeline.clone() };
    (case.run)(&world)?;
    // What nobody waited for was not to come, whatever the case was about.
    if let Some(event) = world.driver.take_unread().first() {
        return fail(format!("expected nothing more; came {} at {}", event.body, timeline.clock(event.at)));
    }
    world.driver.finish()
}
