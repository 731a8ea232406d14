//! When to try again after a failed attempt: exponential backoff with full jitter.
//!
//! Pure: the randomness is an argument. A restart of the server sends every client here at once (`docs/protocol.md`,
//! "What a client must do"), so not even the first attempt goes out at a predictable instant.

use std::time::Duration;

use monolock_core::wire::ErrorCode;

use crate::config::Config;
use crate::error::Error;

/// The most that a reconnect "at once" waits.
const SPREAD: Duration = Duration::from_millis(100);
/// The same where a connection costs the server a TLS handshake.
const COSTLY_SPREAD: Duration = Duration::from_millis(500);
const FIRST_CEILING: Duration = Duration::from_millis(100);
const LAST_CEILING: Duration = Duration::from_secs(5);

/// How long to wait between attempts at acquiring one lock.
#[derive(Debug)]
pub(crate) struct Backoff {
    /// A reconnect at once is delayed by anything up to this.
    spread: Duration,
    /// The next delay is anything up to this.
    ceiling: Duration,
    /// Whether a shutdown of the server has been answered with a reconnect at once, and nothing good has come since.
    was_at_once: bool,
}

impl Backoff {
    pub(crate) fn new(config: &Config) -> Self {
        let is_costly = config.servers.iter().any(|server| server.security.is_costly());
        Self::with_spread(if is_costly { COSTLY_SPREAD } else { SPREAD })
    }

    const fn with_spread(spread: Duration) -> Self {
        Self { spread, ceiling: FIRST_CEILING, was_at_once: false }
    }

    /// How long to wait after an attempt that `lasted` so long and failed with `error`; `None` where trying again is no
    /// use. `random` gives a uniform number from 0 to 1.
    pub(crate) fn delay(&mut self, error: &Error, lasted: Duration, random: impl FnOnce() -> f64) -> Option<Duration> {
        if !error.is_worth_another_attempt() {
            return None;
        }
        if lasted >= LAST_CEILING {
            *self = Self::with_spread(self.spread);
        }
        let at_once = error.server_code() == Some(ErrorCode::SERVER_SHUTTING_DOWN) && !self.was_at_once;
        if at_once {
            self.was_at_once = true;
            return Some(self.spread.mul_f64(random()));
        }
        let delay = self.ceiling.mul_f64(random());
        self.ceiling = (self.ceiling * 2).min(LAST_CEILING);
        Some(delay)
    }
}

#[cfg(test)]
mod tests {
    use monolock_core::LockName;

    use super::*;
    use crate::session::LossReason;

    const QUICKLY: Duration = Duration::ZERO;

    fn name() -> LockName {
        LockName::new("jobs").unwrap()
    }

    fn lost_by(code: u8) -> Error {
        Error::lost(name(), LossReason::Server { code: ErrorCode(code), reason: String::new() })
    }

    #[test]
    fn b48_delays_double_from_100_ms_to_5_s() {
        let mut backoff = Backoff::with_spread(SPREAD);
        let mut longest = || backoff.delay(&lost_by(0x02), QUICKLY, || 1.0).unwrap().as_millis();
        let delays: Vec<_> = (0..8).map(|_| longest()).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    }

    #[test]
    fn b47_the_jitter_is_full() {
        for code in [0x01, 0x02] {
            assert_eq!(Backoff::with_spread(SPREAD).delay(&lost_by(code), QUICKLY, || 0.0), Some(Duration::ZERO));
            assert_eq!(
                Backoff::with_spread(SPREAD).delay(&lost_by(code), QUICKLY, || 0.5),
                Some(Duration::from_millis(50))
            );
        }
    }

    #[test]
    fn b47_a_shutdown_is_answered_at_once_but_only_once() {
        let mut backoff = Backoff::with_spread(SPREAD);
        let mut longest = || backoff.delay(&lost_by(0x01), QUICKLY, || 1.0).unwrap().as_millis();
        assert_eq!([longest(), longest(), longest(), longest()], [100, 100, 200, 400]);
    }

    #[test]
    fn an_attempt_that_lasted_begins_anew() {
        let mut backoff = Backoff::with_spread(SPREAD);
        for _ in 0..8 {
            backoff.delay(&lost_by(0x02), QUICKLY, || 1.0);
        }
        let after_hours = backoff.delay(&lost_by(0x02), Duration::from_hours(3), || 1.0);
        assert_eq!(after_hours, Some(FIRST_CEILING));
    }

    #[test]
    fn b48_what_is_final_is_not_tried_again() {
        let refused = |code| Error::refused(name(), String::new(), ErrorCode(code), String::new());
        let wait = Duration::from_secs(1);
        for error in [
            refused(0x10),
            refused(0x18),
            lost_by(0x13),
            Error::cancelled(name()),
            Error::contended(name()),
            Error::wait_timeout(name(), wait),
            Error::lost(name(), LossReason::MaxHold),
        ] {
            assert_eq!(Backoff::with_spread(SPREAD).delay(&error, QUICKLY, || 1.0), None, "{error}");
        }
    }
}
