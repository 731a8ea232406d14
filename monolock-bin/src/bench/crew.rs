//! The threads that make the load, and their steps in common.
//!
//! A round is: get ready, wait for the others, run, wait for the others, clear up. What is measured is the running
//! alone, from the common start to the end of the last thread. Most scenarios have one round; handover and storm begin
//! rounds as long as there is time.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::args::Scenario;
use super::dial::Dialler;
use super::plan::Plan;
use super::process::Sample;
use super::progress::Progress;
use super::tally::Tally;
use super::work::Station;
use crate::failure::{FAILED, Failure};

/// Between two looks at the clock for the progress bar.
const LOOK: Duration = Duration::from_millis(100);

/// How long the server has to forget its clients before its memory is looked at again.
const FORGETTING: Duration = Duration::from_secs(1);

/// What came of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) tally: Tally,
    pub(crate) rounds: u64,
    /// The running of all rounds.
    pub(crate) elapsed: Duration,
    pub(crate) server: Option<ServerUse>,
}

/// What the server took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerUse {
    /// In the running of all rounds.
    pub(crate) processor: Duration,
    pub(crate) resident_before: u64,
    pub(crate) resident_at_end: u64,
    pub(crate) resident_after: u64,
}

enum Word {
    Run { start: Instant },
    ClearUp,
    End,
}

/// Runs all rounds.
///
/// # Errors
/// A thread cannot be started, or the server's process cannot be looked at.
pub(crate) fn run(plan: &Plan, dialler: &Dialler, progress: &Progress) -> Result<Outcome, Failure> {
    let look = || plan.server_pid.map(Sample::take).transpose();
    let before = look()?;
    let crew = Crew::start(plan, dialler, progress)?;
    let mut outcome = Outcome { tally: Tally::new(), rounds: 0, elapsed: Duration::ZERO, server: None };
    let mut processor = Duration::ZERO;
    let mut at_end = before;
    loop {
        progress.begin("getting ready");
        crew.wait(progress, None)?;
        let at_start = look()?;
        progress.begin(plan.scenario.name());
        let start = Instant::now();
        crew.tell(|| Word::Run { start });
        crew.wait(progress, Some((start, outcome.elapsed)))?;
        outcome.elapsed += start.elapsed();
        outcome.rounds += 1;
        at_end = look()?.or(at_end);
        if let (Some(start), Some(end)) = (at_start, at_end) {
            processor += end.processor.saturating_sub(start.processor);
        }
        if plan.has_one_round() || outcome.elapsed >= plan.duration {
            break;
        }
        crew.tell(|| Word::ClearUp);
    }
    for tally in crew.end()? {
        outcome.tally.add(&tally);
    }
    if let (Some(before), Some(at_end)) = (before, at_end) {
        if plan.scenario == Scenario::Idle {
            thread::sleep(FORGETTING);
        }
        outcome.server = Some(ServerUse {
            processor,
            resident_before: before.resident,
            resident_at_end: at_end.resident,
            resident_after: look()?.map_or(0, |after| after.resident),
        });
    }
    Ok(outcome)
}

impl Plan {
    const fn has_one_round(&self) -> bool {
        match self.scenario {
            Scenario::Cycle | Scenario::Heartbeat | Scenario::Idle => true,
            Scenario::Handover | Scenario::Storm => false,
        }
    }
}

struct Crew {
    threads: Vec<(Sender<Word>, thread::JoinHandle<Tally>)>,
    done: Receiver<()>,
}

impl Crew {
    fn start(plan: &Plan, dialler: &Dialler, progress: &Progress) -> Result<Self, Failure> {
        let closings: Arc<[AtomicU64]> = (0..plan.locks).map(|_| AtomicU64::new(0)).collect();
        let origin = Instant::now();
        let (sender, done) = channel();
        let mut threads = Vec::with_capacity(plan.threads);
        for number in 0..plan.threads {
            let (words, heard) = channel();
            let share = share(plan.connections, plan.threads, number);
            let station =
                Station::new(plan.clone(), dialler.clone(), progress.counter(), Arc::clone(&closings), origin);
            let sender = sender.clone();
            let thread = thread::Builder::new().name(format!("load-{number}"));
            let thread = thread.spawn(move || work(station, share, &heard, &sender)).map_err(|error| failed(&error))?;
            threads.push((words, thread));
        }
        Ok(Self { threads, done })
    }

    fn tell(&self, word: impl Fn() -> Word) {
        for (words, _) in &self.threads {
            // One that has ended is found out about by the next wait.
            let _ = words.send(word());
        }
    }

    /// Waits until each thread has done its step, and moves the progress bar meanwhile: by the time since `running`,
    /// after what earlier rounds took.
    fn wait(&self, progress: &Progress, running: Option<(Instant, Duration)>) -> Result<(), Failure> {
        for _ in &self.threads {
            loop {
                match self.done.recv_timeout(LOOK) {
                    Ok(()) => break,
                    Err(RecvTimeoutError::Timeout) => {
                        if self.threads.iter().any(|(_, thread)| thread.is_finished()) {
                            return Err(failed(&"one of its threads has ended"));
                        }
                        if let Some((start, earlier)) = running {
                            progress.elapsed(earlier + start.elapsed());
                        }
                    }
                    Err(RecvTimeoutError::Disconnected) => return Err(failed(&"its threads have ended")),
                }
            }
        }
        Ok(())
    }

    fn end(self) -> Result<Vec<Tally>, Failure> {
        self.tell(|| Word::End);
        let tallies = self.threads.into_iter().map(|(_, thread)| thread.join());
        tallies.map(|tally| tally.map_err(|_| failed(&"one of its threads has ended"))).collect()
    }
}

/// One thread, from its start to its end.
fn work(station: Station, share: Range<usize>, heard: &Receiver<Word>, done: &Sender<()>) -> Tally {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().expect("the system has a poller for each thread");
    let mut team = station.team(share);
    runtime.block_on(team.get_ready());
    while done.send(()).is_ok()
        && let Ok(Word::Run { start }) = heard.recv()
    {
        runtime.block_on(team.run(start));
        if done.send(()).is_err() {
            break;
        }
        match heard.recv() {
            Ok(Word::ClearUp) => runtime.block_on(team.get_ready()),
            Ok(Word::Run { .. } | Word::End) | Err(_) => break,
        }
    }
    team.leave()
}

/// The connections of one thread: all have as many, give or take one.
const fn share(connections: usize, threads: usize, number: usize) -> Range<usize> {
    connections * number / threads..connections * (number + 1) / threads
}

fn failed(why: &dyn std::fmt::Display) -> Failure {
    Failure::new(FAILED, format_args!("the load cannot be made: {why}"))
}
