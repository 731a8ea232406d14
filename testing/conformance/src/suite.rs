//! Runs cases, several at a time, each with a driver process of its own.

use std::ffi::OsString;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use crate::cases::Case;
use crate::driver::Driver;
use crate::outcome::{Outcome, Stop, fail};
use crate::stalls;
use crate::timeline::Timeline;
use crate::world::World;

/// How often a case is run at most whose time could not be told.
const RUNS: usize = 5;

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
    /// The longest time that the machine kept the harness itself waiting; `None` where that is of no account.
    pub stall: Option<Duration>,
    /// The runs before, which were not judged: they failed while the machine kept the harness waiting.
    pub unjudged: usize,
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
            Verdict::Passed => write!(f, "pass  {name} ({took:.1} s)")?,
            Verdict::Failed(what) => write!(f, "FAIL  {name} ({took:.1} s): {what}")?,
            Verdict::Skipped(why) => write!(f, "skip  {name}: {why}")?,
        }
        match (self.unjudged, self.stall, &self.verdict) {
            (0, Some(stall), Verdict::Failed(_)) => write!(f, " [the machine stood still for {stall:.0?}]"),
            (0, ..) => Ok(()),
            (runs, ..) => write!(f, " [{runs} runs before were not judged: the machine stood still]"),
        }
    }
}

/// Runs the cases against the driver that `command` starts, `jobs` at a time; the reports come as the cases end.
pub fn run(
    command: &[OsString],
    cases: impl IntoIterator<Item = &'static Case>,
    jobs: usize,
) -> mpsc::IntoIter<Report> {
    stalls::watch();
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
    let mut unjudged = 0;
    loop {
        let report = Report { unjudged, ..run_once(command, case) };
        let failed = matches!(report.verdict, Verdict::Failed(_));
        if !failed || report.stall.is_none() || unjudged + 1 == RUNS {
            return report;
        }
        unjudged += 1;
        stalls::until_calm();
    }
}

fn run_once(command: &[OsString], case: &'static Case) -> Report {
    let (timeline, begun) = (Timeline::new(), Instant::now());
    let verdict = match through(command, case, &timeline) {
        Ok(()) => Verdict::Passed,
        Err(Stop::Failed(what)) => Verdict::Failed(what),
        Err(Stop::Skipped(why)) => Verdict::Skipped(why),
    };
    let (took, stall) = (begun.elapsed(), stalls::longest_since(begun));
    Report { case, verdict, took, transcript: timeline.transcript(), stall, unjudged: 0 }
}

/// Two drivers start at a time.
static STARTING: [Mutex<()>; 2] = [const { Mutex::new(()) }; 2];

fn through(command: &[OsString], case: &Case, timeline: &Timeline) -> Outcome {
    let driver = {
        // A runtime that starts takes the processor from the cases that run.
        static TURNS: AtomicUsize = AtomicUsize::new(0);
        let turn = TURNS.fetch_add(1, Ordering::Relaxed) % STARTING.len();
        let _turn = STARTING[turn].lock().unwrap_or_else(PoisonError::into_inner);
        Driver::start(command, timeline)?
    };
    let world = World { driver, timeline: timeline.clone() };
    (case.run)(&world)?;
    // What nobody waited for was not to come, whatever the case was about.
    if let Some(event) = world.driver.take_unread().first() {
        return fail(format!("expected nothing more; came {} at {}", event.body, timeline.clock(event.at)));
    }
    world.driver.finish()
}
