//! What the harness knows: it writes the history, keeps the guarded resource, and sees who holds what just now.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use monolock_chaos::history::{Record, What};

use crate::run::Result;
use crate::run::clock::now;

/// Within how long something happens that must, on the slowest machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct World {
    live: Mutex<Live>,
    changed: Condvar,
}

/// How things stand just now, as far as the workers' words have come.
#[derive(Debug)]
pub(crate) struct Live {
    history: BufWriter<File>,
    /// The largest token that the resource of a lock has seen.
    largest: HashMap<String, u64>,
    asks: HashMap<String, Holder>,
    /// Who holds each lock.
    pub(crate) holders: HashMap<String, Holder>,
    /// Which claims are kept, by worker and number.
    pub(crate) kept: HashSet<(String, u64)>,
    /// When each worker was last granted something.
    pub(crate) granted: HashMap<String, u64>,
    /// When each lock was last granted.
    pub(crate) granted_locks: HashMap<String, u64>,
    pub(crate) interrupted: bool,
}

/// A claim that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) worker: String,
    pub(crate) claim: u64,
    pub(crate) lock: String,
    pub(crate) lease_ms: u64,
}

impl World {
    /// Begins a history in `folder`.
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        let path = folder.join("history.jsonl");
        let file = File::create(&path).map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        let live = Live {
            history: BufWriter::new(file),
            largest: HashMap::new(),
            asks: HashMap::new(),
            holders: HashMap::new(),
            kept: HashSet::new(),
            granted: HashMap::new(),
            granted_locks: HashMap::new(),
            interrupted: false,
        };
        Ok(Self { live: Mutex::new(live), changed: Condvar::new() })
    }

    /// Ends the run in good order at Ctrl-C.
    pub(crate) fn heed_interrupts(self: &Arc<Self>) {
        let world = Arc::clone(self);
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if runtime.is_ok_and(|runtime| runtime.block_on(tokio::signal::ctrl_c()).is_ok()) {
                world.lock().interrupted = true;
                world.changed.notify_all();
            }
        });
    }

    pub(crate) fn check_interrupt(&self) -> Result<()> {
        if self.lock().interrupted { Err("interrupted".to_owned()) } else { Ok(()) }
    }

    /// Writes down something of the harness's own, and says when that was.
    pub(crate) fn note(&self, what: What) -> u64 {
        let t = now();
        self.note_at(t, what);
        t
    }

    pub(crate) fn note_at(&self, t: u64, what: What) {
        self.hear(Record { t, what });
    }

    /// Takes in a record.
    pub(crate) fn hear(&self, record: Record) {
        let mut live = self.lock();
        live.write(&record);
        live.see(record);
        drop(live);
        self.changed.notify_all();
    }

    /// Waits until there is an answer, at most so long, and not beyond an interrupt.
    pub(crate) fn wait<T>(&self, timeout: Duration, mut answer: impl FnMut(&mut Live) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + timeout;
        let mut live = self.lock();
        loop {
            if let Some(answer) = answer(&mut live) {
                return Some(answer);
            }
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() || live.interrupted {
                return None;
            }
            live = self.changed.wait_timeout(live, remaining).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Sleeps, and not beyond an interrupt.
    pub(crate) fn sleep(&self, time: Duration) {
        let _ = self.wait(time, |_| None::<()>);
    }

    /// Waits until each lock was granted once.
    pub(crate) fn expect_grants(&self, locks: &[&str]) -> Result<()> {
        let granted = |live: &mut Live| locks.iter().all(|lock| live.granted_locks.contains_key(*lock)).then_some(());
        self.wait(PATIENCE, granted).ok_or_else(|| "the workers are granted nothing".to_owned())
    }

    pub(crate) fn flush(&self) -> Result<()> {
        self.lock().history.flush().map_err(|error| format!("the history cannot be written: {error}"))
    }

    fn lock(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Live {
    fn write(&mut self, record: &Record) {
        let line = serde_json::to_string(record).expect("a record is JSON");
        // What is lacking fails at the end, where the history is read.
        let _ = writeln!(self.history, "{line}");
    }

    fn see(&mut self, Record { t, what }: Record) {
        match what {
            What::Ask { worker, claim, lock, lease_ms } => {
                self.asks.insert(worker.clone(), Holder { worker, claim, lock, lease_ms });
            }
            What::Granted { worker, .. } => {
                if let Some(holder) = self.asks.get(&worker) {
                    self.granted_locks.insert(holder.lock.clone(), t);
                    self.holders.insert(holder.lock.clone(), holder.clone());
                }
                self.granted.insert(worker, t);
            }
            What::Keeping { worker, claim } => {
                self.kept.insert((worker, claim));
            }
            What::Releasing { worker, claim } | What::Lost { worker, claim, .. } => {
                self.kept.remove(&(worker.clone(), claim));
                self.holders.retain(|_, holder| (&holder.worker, holder.claim) != (&worker, claim));
            }
            What::Gone { worker, .. } => {
                self.kept.retain(|(keeper, _)| *keeper != worker);
                self.holders.retain(|_, holder| holder.worker != worker);
            }
            What::Write { worker, lock, token, .. } => {
                let largest = self.largest.entry(lock.clone()).or_default();
                let accepted = token >= *largest;
                *largest = token.max(*largest);
                self.write(&Record { t: now(), what: What::Fenced { worker, lock, token, accepted } });
            }
            What::Queued { .. }
            | What::Believed { .. }
            | What::Failed { .. }
            | What::Fenced { .. }
            | What::Starting { .. }
            | What::Serving { .. }
            | What::Ending { .. }
            | What::Unreachable { .. }
            | What::Dead { .. }
            | What::Stepped { .. }
            | What::Injected { .. }
            | What::Healed { .. }
            | What::Dark { .. }
            | What::FaultsOver { .. }
            | What::AtEnd { .. } => {}
        }
    }
}
