//! The one module here that reads a clock, and through which leases are waited for.
//!
//! It is the runtime's clock, so that a program which pauses that clock in its tests pauses the server's too. Leases
//! are measured on the monotonic clock from the server's start; wall time does nothing but lift the token sequence. On
//! a machine that sleeps the monotonic clock may stand still: then leases last longer, never shorter, which no client
//! can mistake for a loss.

use std::time::{SystemTime, UNIX_EPOCH};

use monolock_core::{Timestamp, TokenSequence};
use tokio::time::{Instant, timeout_at};

/// Waits for a future no longer than so long.
pub(crate) use tokio::time::timeout;

/// The server's time since its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { origin: Instant::now() }
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::ORIGIN.saturating_add(self.origin.elapsed())
    }

    /// Waits until an instant, or for an event that comes before it. An instant that the runtime has no name for does
    /// not come, [`Timestamp::MAX`] among them.
    pub(crate) async fn reach(&self, instant: Timestamp, event: impl Future<Output = ()>) {
        match self.origin.checked_add(instant.since(Timestamp::ORIGIN)) {
            Some(deadline) if instant < Timestamp::MAX => {
                let _ = timeout_at(deadline, event).await;
            }
            _ => event.await,
        }
    }

    /// The wall time.
    pub(crate) fn wall() -> SystemTime {
        SystemTime::now()
    }

    /// The wall time of an instant that is not after `now`, told from the present wall time.
    pub(crate) fn wall_at(timestamp: Timestamp, now: Timestamp, wall: SystemTime) -> SystemTime {
        wall.checked_sub(now.since(timestamp)).unwrap_or(UNIX_EPOCH)
    }

    /// Where tokens begin at a start: as far into the second's tokens as the time is into the second. A server that is
    /// started twice within one second then goes on with larger tokens, unless it granted a million in that second.
    pub(crate) fn first_token(wall: SystemTime) -> u64 {
        let micros = wall.duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_micros());
        TokenSequence::at_unix_second(Self::unix_second(wall)).saturating_add(u64::from(micros))
    }

    /// Whole seconds of wall time since 1970; 0 before.
    pub(crate) fn unix_second(wall: SystemTime) -> u64 {
        wall.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }
}
