//! The one module that reads the clock of the history.

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_BOOTTIME`, in nanoseconds.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
