//! Whether the machine let this process run when it wanted to.
//!
//! What a case asserts is about time, and its clock is read here: where this process itself was kept waiting, a stamp
//! says nothing of the client. One thread sleeps a little, over and over, and notes by how much it overslept.

use std::sync::{Mutex, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long the watching thread sleeps.
const NAP: Duration = Duration::from_millis(5);

/// Shorter ones are of no account beside the margins of the cases.
const SHORTEST: Duration = Duration::from_millis(40);

static STALLS: Mutex<Vec<(Instant, Duration)>> = Mutex::new(Vec::new());

/// Begins to watch; once is enough.
pub(crate) fn watch() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        thread::spawn(|| {
            loop {
                let begun = Instant::now();
                thread::sleep(NAP);
                let overslept = begun.elapsed().saturating_sub(NAP);
                if overslept >= SHORTEST {
                    STALLS.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), overslept));
                }
            }
        });
    });
}

/// The longest stall since then, if there was one of account.
pub(crate) fn longest_since(begun: Instant) -> Option<Duration> {
    let stalls = STALLS.lock().unwrap_or_else(PoisonError::into_inner);
    stalls.iter().filter(|(ended, _)| *ended >= begun).map(|(_, overslept)| *overslept).max()
}
