//! The table at the end: what each class of faults met, and what came of it. A class that was never there, or that
//! nobody noticed, held nothing and fails the run.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::check::{Coverage, Hold, Timeline};
use crate::history::{Record, What};
use crate::plan::{Class, LOCKS, LONGEST_LEASE_MS};

/// Within how long of its end a fault must be over for its locks: the longest lease, and what a busy machine takes.
const RECOVERED_WITHIN_NS: u64 = 30_000_000_000;

/// Within how long of a fault's end its holder has said that it lost the lock, if it did: a lease, and what a busy
/// machine takes. One that did not lets go at once.
const SAID_WITHIN_NS: u64 = 10_000_000_000;

/// What one class of faults came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Row {
    /// How often it was injected.
    pub injected: u32,
    /// How often it was too brief for anybody to have to notice.
    pub brief: u32,
    /// How often a holder stood under it.
    pub stood: u32,
    /// How often it was seen to do something: the holder lost its lock, or the harness saw what it did.
    pub told: u32,
    /// Grants while it was there, of any lock.
    pub grants: u32,
    /// Losses of those that it was about, by reason.
    pub losses: BTreeMap<String, u32>,
    /// How often all locks that it was about were granted anew after it.
    pub recovered: u32,
    /// The longest time from its end to that, in milliseconds.
    pub slowest_ms: u64,
}

/// All classes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// By class.
    pub rows: BTreeMap<Class, Row>,
}

/// One fault of the history.
struct Injection<'a> {
    class: Class,
    from: u64,
    to: u64,
    worker: Option<&'a str>,
    claim: Option<u64>,
    lock: Option<&'a str>,
    brief: bool,
    effect: u64,
}

impl Tally {
    /// Counts a history; `classes` have a row in any case.
    pub fn new(records: &[Record], timeline: &Timeline, classes: &[Class]) -> Self {
        let mut tally = Self { rows: classes.iter().map(|class| (*class, Row::default())).collect() };
        for injection in injections(records) {
            let row = tally.rows.entry(injection.class).or_default();
            row.count(&injection, &timeline.holds);
        }
        tally
    }

    /// What is missing for the run to have shown something; `rounds` is how often each class was planned.
    pub fn missing(&self, rounds: u32, coverage: &Coverage) -> Vec<String> {
        let mut missing = Vec::new();
        let half = |count: u32| count.div_ceil(2).max(1);
        for (class, row) in &self.rows {
            let mut want = |what: &str, count: u32, least: u32| {
                if count < least {
                    missing.push(format!("{class}: {what} {count} times, and at least {least} are wanted"));
                }
            };
            // A machine that is busy may have no holder for a fault, or take it away before the fault is there.
            want("injected", row.injected, half(rounds));
            want("a holder stood under it", row.stood, half(row.injected));
            want("it did something", row.told, half(row.injected - row.brief));
            want("recovered", row.recovered, row.injected);
        }
        if Class::ALL.iter().all(|class| self.rows.contains_key(class)) {
            for (what, count) in [
                ("pairs of claims of which one certainly came first", coverage.ordered_pairs),
                ("holds in the dark", coverage.dark_holds),
                ("holds that outlived their server", coverage.orphaned_holds),
                ("stale writes refused", coverage.stale_writes_refused),
                ("restarts across which tokens had to rise", coverage.rising_restarts),
            ] {
                if count == 0 {
                    missing.push(format!("no {what}"));
                }
            }
        }
        missing
    }
}

impl Row {
    fn count(&mut self, injection: &Injection<'_>, holds: &[Hold]) {
        let Injection { class, from, to, worker, claim, lock, brief, effect } = *injection;
        self.injected += 1;
        self.brief += u32::from(brief);
        let is_about = |hold: &&Hold| match (worker, claim) {
            (Some(worker), Some(claim)) => hold.worker == worker && hold.claim == claim,
            _ => stood_at(hold, from),
        };
        let mut stood = false;
        let mut cost = false;
        for hold in holds.iter().filter(is_about) {
            stood |= stood_at(hold, from);
            match (&hold.lost, hold.ended) {
                (Some(reason), Some(ended)) if (from..=to + SAID_WITHIN_NS).contains(&ended) => {
                    cost = true;
                    *self.losses.entry(reason.clone()).or_default() += 1;
                }
                // Killed: it can say nothing any more.
                (None, None) if class == Class::KillClient => cost = true,
                _ => {}
            }
        }
        self.stood += u32::from(stood);
        self.told += u32::from(stood && effect > 0 && (cost || !class.costs_the_lock()));
        self.grants += granted(holds, from, to + LONGEST_LEASE_MS * 1_000_000).count_u32();
        // A holder that is freed is there for a moment still, so what counts is the next grant.
        let anew = |lock: &str| {
            let after = holds.iter().filter(|hold| hold.lock == lock && hold.granted_by >= to);
            after.map(|hold| hold.granted_by).min()
        };
        let recovered = match lock {
            Some(lock) => anew(lock),
            None => LOCKS.iter().map(|lock| anew(lock)).max_by_key(|at| at.unwrap_or(u64::MAX)).flatten(),
        };
        if let Some(at) = recovered.filter(|at| at - to <= RECOVERED_WITHIN_NS) {
            self.recovered += 1;
            self.slowest_ms = self.slowest_ms.max((at - to) / 1_000_000);
        }
    }
}

/// Whether a hold was there at an instant. Of a worker that was killed the last looks count, which it says now and
/// then. If it was to keep the lock, only a loss can have come after them.
fn stood_at(hold: &Hold, t: u64) -> bool {
    const UNSAID_NS: u64 = 200_000_000;

    let looked = hold.believed.map(|(_, last)| last).max(hold.kept);
    let unsaid_ns = if hold.kept.is_some() { hold.patience_ns() } else { UNSAID_NS };
    let ended = hold.ended.or(looked.map(|looked| looked + unsaid_ns));
    hold.granted_by < t && ended.is_some_and(|ended| ended >= t)
}

fn granted(holds: &[Hold], from: u64, to: u64) -> impl Iterator<Item = &Hold> {
    holds.iter().filter(move |hold| (from..=to).contains(&hold.granted_by))
}

trait CountU32 {
    fn count_u32(self) -> u32;
}

impl<I: Iterator> CountU32 for I {
    fn count_u32(self) -> u32 {
        u32::try_from(self.count()).unwrap_or(u32::MAX)
    }
}

fn injections(records: &[Record]) -> Vec<Injection<'_>> {
    let mut injections: BTreeMap<u32, Injection<'_>> = BTreeMap::new();
    for Record { t, what } in records {
        if let What::Injected { fault, class, worker, claim, lock, brief } = what
            && let Ok(class) = class.parse::<Class>()
        {
            let (worker, claim, lock) = (worker.as_deref(), *claim, lock.as_deref());
            let brief = *brief && class.may_be_brief();
            let injection = Injection { class, from: *t, to: *t, worker, claim, lock, brief, effect: 0 };
            injections.insert(*fault, injection);
        }
        if let What::Healed { fault, effect } = what
            && let Some(injection) = injections.get_mut(fault)
        {
            injection.to = *t;
            injection.effect = *effect;
        }
    }
    injections.into_values().collect()
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = [
            "fault",
            "injected",
            "brief",
            "holder under it",
            "told",
            "grants",
            "recovered",
            "slowest",
            "losses by reason",
        ];
        let cells = self.rows.iter().map(|(class, row)| {
            let losses: Vec<_> = row.losses.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
            [
                class.to_string(),
                row.injected.to_string(),
                row.brief.to_string(),
                row.stood.to_string(),
                row.told.to_string(),
                row.grants.to_string(),
                row.recovered.to_string(),
                format!("{:.1} s", Duration::from_millis(row.slowest_ms).as_secs_f64()),
                if losses.is_empty() { "none".to_owned() } else { losses.join(", ") },
            ]
        });
        let lines: Vec<[String; 9]> = [head.map(str::to_owned)].into_iter().chain(cells).collect();
        let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
        for line in &lines {
            for (column, cell) in line.iter().enumerate() {
                match column {
                    0 => write!(f, "{cell:<width$}", width = width(column))?,
                    8 => write!(f, "  {cell}")?,
                    _ => write!(f, "  {cell:>width$}", width = width(column))?,
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
