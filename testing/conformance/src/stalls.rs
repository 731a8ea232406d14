//! Whether the machine let this process and the driver run when they wanted to.
//!
//! What a case asserts is about time, and its clock is read here: where this process itself was kept waiting, a stamp
//! says nothing of the client; and where a processor was taken away, the client may have been the one that ran on it.
//! One thread on each processor sleeps a little, over and over, and notes by how much it overslept. A nap that should
//! have ended counts as well.

use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a watching thread sleeps.
const NAP: Duration = Duration::from_millis(5);

/// Shorter ones are of no account beside the margins of the cases.
const SHORTEST: Duration = Duration::from_millis(40);

/// How long nothing has to happen until the machine counts as calm.
const CALM: Duration = Duration::from_millis(500);

/// How often calm is waited for.
const WAITS: usize = 6;

static NOTES: Mutex<Notes> = Mutex::new(Notes { naps: Vec::new(), stalls: Vec::new() });

struct Notes {
    /// When each thread fell asleep.
    naps: Vec<Instant>,
    /// When a stall ended, and how long it was.
    stalls: Vec<(Instant, Duration)>,
}

fn notes() -> MutexGuard<'static, Notes> {
    NOTES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to watch; once is enough.
pub(crate) fn watch() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        let processors = processors();
        notes().naps = vec![Instant::now(); processors.len()];
        for (watcher, processor) in processors.into_iter().enumerate() {
            thread::spawn(move || {
                stay_on(processor);
                watch_as(watcher)
            });
        }
    });
}

/// The longest stall since then, if there was one of account.
pub(crate) fn longest_since(begun: Instant) -> Option<Duration> {
    let (notes, now) = (notes(), Instant::now());
    let ended = notes.stalls.iter().filter(|(ended, _)| *ended >= begun).map(|(_, overslept)| *overslept);
    let under_way = notes.naps.iter().filter_map(|nap| stall(*nap, now));
    ended.chain(under_way).max()
}

/// Waits until the machine has been calm for a while, or has not been for long.
pub(crate) fn until_calm() {
    for _ in 0..WAITS {
        let begun = Instant::now();
        thread::sleep(CALM);
        if longest_since(begun).is_none() {
            return;
        }
    }
}

fn watch_as(watcher: usize) -> ! {
    let mut begun = Instant::now();
    loop {
        notes().naps[watcher] = begun;
        thread::sleep(NAP);
        let now = Instant::now();
        if let Some(overslept) = stall(begun, now) {
            notes().stalls.push((now, overslept));
        }
        begun = now;
    }
}

/// By how much this nap was too long, if that is of account.
fn stall(begun: Instant, now: Instant) -> Option<Duration> {
    let overslept = now.saturating_duration_since(begun).saturating_sub(NAP);
    (overslept >= SHORTEST).then_some(overslept)
}

/// The processors that this process may run on.
#[cfg(target_os = "linux")]
fn processors() -> Vec<usize> {
    use rustix::thread::{CpuSet, sched_getaffinity};

    let Ok(allowed) = sched_getaffinity(None) else { return vec![0] };
    (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)).collect()
}

/// Keeps the calling thread on this processor. Where that is refused, it watches from wherever it runs.
#[cfg(target_os = "linux")]
fn stay_on(processor: usize) {
    let mut only = rustix::thread::CpuSet::new();
    only.set(processor);
    let _ = rustix::thread::sched_setaffinity(None, &only);
}

/// Threads cannot be told where to run here: one watches.
#[cfg(not(target_os = "linux"))]
fn processors() -> Vec<usize> {
    vec![0]
}

#[cfg(not(target_os = "linux"))]
fn stay_on(_: usize) {}
