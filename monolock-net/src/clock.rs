//! The one module here that reads a clock.
//!
//! Leases are measured on the monotonic clock from the server's start; wall time does nothing but lift the token sequence. On a machine that
//! sleeps the monotonic clock may stand still: then leases last longer, never shorter, which no client can mistake for a loss.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use monolock_core::Timestamp;

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

    /// The runtime's name for an instant; `None` for one that it cannot tell.
    pub(crate) fn instant(&self, timestamp: Timestamp) -> Option<tokio::time::Instant> {
        self.origin.checked_add(timestamp.since(Timestamp::ORIGIN)).map(Into::into)
    }

    /// Whole seconds of wall time since 1970; 0 before.
    pub(crate) fn unix_second() -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }
}
