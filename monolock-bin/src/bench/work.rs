//! What the connections of one thread do, scenario by scenario.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use monolock_core::LockName;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, sleep_until, timeout, timeout_at};

use super::args::Scenario;
use super::dial::Dialler;
use super::failures::FailureKind;
use super::plan::{Pace, Plan};
use super::session::{Answer, Claim};
use super::tally::Tally;

/// Attempts of one thread at a time, where it is not the crowd that is measured: servers have a backlog.
const ATTEMPTS_AT_A_TIME: usize = 64;

/// After a failure nobody tries again at once, or a server that is gone would be all that is measured.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(10);

/// What the tasks of one thread share.
pub(crate) struct Station {
    plan: Plan,
    dialler: Dialler,
    /// For the progress bar.
    counter: Arc<AtomicU64>,
    /// When each lock was let go last, in nanoseconds from `origin`.
    closings: Arc<[AtomicU64]>,
    origin: Instant,
    tally: RefCell<Tally>,
}

/// The connections of one thread.
pub(crate) struct Team {
    station: Rc<Station>,
    share: Range<usize>,
    claims: Vec<Option<(Claim, Answer)>>,
}

impl Station {
    pub(crate) fn new(
        plan: Plan,
        dialler: Dialler,
        counter: Arc<AtomicU64>,
        closings: Arc<[AtomicU64]>,
        origin: Instant,
    ) -> Self {
        Self { plan, dialler, counter, closings, origin, tally: RefCell::new(Tally::new()) }
    }

    pub(crate) fn team(self, share: Range<usize>) -> Team {
        let claims = share.clone().map(|_| None).collect();
        Team { station: Rc::new(self), share, claims }
    }

    fn succeeded(&self, latency: Duration) {
        self.tally.borrow_mut().record(latency);
        self.counter.fetch_add(1, Ordering::Relaxed);
    }

    fn failed(&self, kind: FailureKind) {
        self.tally.borrow_mut().failures.count(kind);
    }

    fn name(&self, connection: usize) -> LockName {
        self.plan.lock_name(self.plan.lock_of(connection))
    }

    async fn place(&self, name: &LockName) -> Result<(Claim, Answer), FailureKind> {
        Claim::place(&self.dialler, name.as_name_ref(), self.plan.lease, self.plan.timeout).await
    }
}

impl Team {
    /// Whatever has to be there before a round is run.
    pub(crate) async fn get_ready(&mut self) {
        self.claims.iter_mut().for_each(|claim| drop(claim.take()));
        match self.station.plan.scenario {
            Scenario::Cycle | Scenario::Idle | Scenario::Storm => {}
            Scenario::Heartbeat | Scenario::Handover => self.place_all(ATTEMPTS_AT_A_TIME, Counted::Failures).await,
        }
    }

    /// One round.
    pub(crate) async fn run(&mut self, start: Instant) {
        let end = start + self.station.plan.duration;
        match self.station.plan.scenario {
            Scenario::Cycle => self.each(|station, connection, _| cycle(station, connection, start)).await,
            Scenario::Heartbeat => {
                self.each(|station, connection, claim| beat(station, connection, claim, start)).await;
            }
            Scenario::Handover => {
                self.each(|station, connection, claim| hand_down(station, connection, claim, start)).await;
            }
            Scenario::Idle => {
                self.place_all(ATTEMPTS_AT_A_TIME, Counted::All).await;
                sleep_until(end.into()).await;
                let broken = self.claims.iter().flatten().filter(|(claim, _)| !claim.is_quiet()).count();
                (0..broken).for_each(|_| self.station.failed(FailureKind::Closed));
            }
            Scenario::Storm => self.place_all(Semaphore::MAX_PERMITS, Counted::All).await,
        }
    }

    /// Closes all connections, and says what was counted.
    pub(crate) fn leave(self) -> Tally {
        let Self { station, claims, .. } = self;
        drop(claims);
        let station = Rc::into_inner(station).expect("no task is left that has a share in it");
        station.tally.into_inner()
    }

    /// Runs a task for each connection, on this thread, until all are done.
    async fn each<T: Future<Output = ()> + 'static>(
        &mut self,
        task: impl Fn(Rc<Station>, usize, Option<(Claim, Answer)>) -> T,
    ) {
        let mut tasks = JoinSet::new();
        let local = LocalSet::new();
        for (connection, claim) in self.share.clone().zip(&mut self.claims) {
            tasks.spawn_local_on(task(Rc::clone(&self.station), connection, claim.take()), &local);
        }
        local.run_until(async { while tasks.join_next().await.is_some() {} }).await;
    }

    async fn place_all(&mut self, at_a_time: usize, counted: Counted) {
        let permits = Rc::new(Semaphore::new(at_a_time));
        let mut tasks = JoinSet::new();
        let local = LocalSet::new();
        for connection in self.share.clone() {
            let (station, permits) = (Rc::clone(&self.station), Rc::clone(&permits));
            let task = async move {
                let _permit = permits.acquire().await.expect("the semaphore is never closed");
                let name = station.name(connection);
                let begun = Instant::now();
                match station.place(&name).await {
                    Ok(placed) => {
                        if counted == Counted::All {
                            station.succeeded(begun.elapsed());
                        }
                        Some((connection, placed))
                    }
                    Err(kind) => {
                        station.failed(kind);
                        None
                    }
                }
            };
            tasks.spawn_local_on(task, &local);
        }
        let first = self.share.start;
        local
            .run_until(async {
                while let Some(done) = tasks.join_next().await {
                    if let Ok(Some((connection, placed))) = done {
                        self.claims[connection - first] = Some(placed);
                    }
                }
            })
            .await;
    }
}

/// What of the placing of claims is a result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counted {
    All,
    Failures,
}

/// Connects, acquires and closes.
async fn cycle(station: Rc<Station>, connection: usize, start: Instant) {
    let name = station.name(connection);
    let mut schedule = Schedule::new(&station, connection, start);
    while let Some(begun) = schedule.next().await {
        match one_cycle(&station, &name, schedule.end).await {
            Ok(Some(claim)) => {
                station.succeeded(begun.elapsed());
                claim.close(station.plan.close).await;
            }
            // The time is over, and it waits for its turn still.
            Ok(None) => return,
            Err(kind) => {
                station.failed(kind);
                sleep(PAUSE_AFTER_FAILURE).await;
            }
        }
    }
}

async fn one_cycle(station: &Station, name: &LockName, end: Instant) -> Result<Option<Claim>, FailureKind> {
    let (mut claim, answer) = station.place(name).await?;
    if answer == Answer::Waiting {
        match timeout_at(end.into(), claim.granted()).await {
            Ok(granted) => granted?,
            Err(_elapsed) => return Ok(None),
        }
    }
    Ok(Some(claim))
}

/// Sends heartbeats; one that has lost its connection makes a new one.
async fn beat(station: Rc<Station>, connection: usize, claim: Option<(Claim, Answer)>, start: Instant) {
    let name = station.name(connection);
    let mut claim = claim.map(|(claim, _)| claim);
    let mut schedule = Schedule::new(&station, connection, start);
    while let Some(begun) = schedule.next().await {
        let beaten = match claim.as_mut() {
            Some(claim) => claim.heartbeat(station.plan.timeout).await.map(|()| station.succeeded(begun.elapsed())),
            None => station.place(&name).await.map(|(placed, _)| claim = Some(placed)),
        };
        if let Err(kind) = beaten {
            station.failed(kind);
            claim = None;
            sleep(PAUSE_AFTER_FAILURE).await;
        }
    }
}

/// Waits for the lock and lets it go.
///
/// A server may read the first claim of a round before the end of the last one of the round before. That claim waits,
/// and has its lock from nobody of this round: it is none of the waiters that are handed one.
async fn hand_down(station: Rc<Station>, connection: usize, claim: Option<(Claim, Answer)>, start: Instant) {
    let Some((mut claim, answer)) = claim else { return };
    let closing = &station.closings[station.plan.lock_of(connection)];
    if answer == Answer::Waiting {
        let granted = loop {
            let before = closing.load(Ordering::Acquire);
            match timeout(station.plan.timeout, claim.granted()).await {
                Ok(granted) => break granted,
                // The chain is long, and it moves.
                Err(_elapsed) if closing.load(Ordering::Acquire) != before => {}
                Err(_elapsed) => break Err(FailureKind::TimedOut),
            }
        };
        let closed = station.origin + Duration::from_nanos(closing.load(Ordering::Acquire));
        match granted {
            Ok(()) if closed < start => {}
            Ok(()) => station.succeeded(closed.elapsed()),
            Err(kind) => station.failed(kind),
        }
    }
    let now = station.origin.elapsed().as_nanos();
    closing.store(u64::try_from(now).unwrap_or(u64::MAX), Ordering::Release);
    claim.close(station.plan.close).await;
}

/// When one connection begins its operations.
struct Schedule<'a> {
    station: &'a Station,
    pace: Option<Pace>,
    start: Instant,
    end: Instant,
    /// Of the next operation.
    number: u32,
}

impl<'a> Schedule<'a> {
    fn new(station: &'a Station, connection: usize, start: Instant) -> Self {
        let pace = station.plan.pace(connection);
        Self { station, pace, start, end: start + station.plan.duration, number: 0 }
    }

    /// Waits until the next operation is to begin, and says from when it is measured; `None` when the time is over.
    ///
    /// An operation that stood back behind a late answer is measured from the instant intended. One that was late
    /// because a timer was is measured from its real beginning: that is the generator's fault, and told as its lag.
    async fn next(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let Some(Pace { first, interval }) = self.pace else {
            // Each connection does something, however short the time and late the thread.
            let is_first = std::mem::replace(&mut self.number, 1) == 0;
            return (is_first || now < self.end).then_some(now);
        };
        let intended = self.start + first + interval.saturating_mul(self.number);
        self.number = self.number.saturating_add(1);
        if intended >= self.end {
            return None;
        }
        if now >= intended {
            return Some(intended);
        }
        sleep_until(intended.into()).await;
        let begun = Instant::now();
        self.station.tally.borrow_mut().record_lag(begun.saturating_duration_since(intended));
        Some(begun)
    }
}
