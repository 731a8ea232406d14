//! When to try again after a failed attempt: exponential backoff with full jitter.
//!
//! Pure: the randomness is an argument. A restart of the server sends every client here at once (`PROTOCOL.md`, "What a client must
//! do"), so not even the first attempt goes out at a predictable instant.

use std::time::Duration;

use monolock_core::wire::ErrorCode;

use crate::error::Error;

/// The most that a reconnect "at once" waits.
const SPREAD: Duration = Duration::from_millis(100);
const FIRST_CEILING: Duration = Duration::from_millis(100);
const LAST_CEILING: Duration = Duration::from_secs(5);

/// How long to wait between attempts at acquiring one lock.
#[derive(Debug)]
pub(crate) struct Backoff {
    /// The next delay is anything up to this.
    ceiling: Duration,
    /// Whether a shutdown of the server has been answered with a reconnect at once, and nothing good has come since.
    was_at_once: bool,
}

impl Backoff {
    pub(crate) const fn new() -> Self {
        Self { ceiling: FIRST_CEILING, was_at_once: false }
    }

    /// How long to wait after an attempt that `lasted` so long and failed with `error`; `None` where trying again is no use.
    /// `random` gives a uniform number from 0 to 1.
    pub(crate) fn delay(&mut self, error: &Error, lasted: Duration, random: impl FnOnce() -> f64) -> Option<Duration> {
        if !error.is_worth_another_attempt() {
            return None;
        }
        if lasted >= LAST_CEILING {
            *self = Self::new();
        }
        let at_once = error.server_code() == Some(ErrorCode::SERVER_SHUTTING_DOWN) && !self.was_at_once;
        if at_once {
            self.was_at_once = true;
            return Some(SPREAD.mul_f64(random()));
        }
        let delay = self.ceiling.mul_f64(random());
        self.ceiling = (self.ceiling * 2).min(LAST_CEILING);
        Some(delay)
    }
}
