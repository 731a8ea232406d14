//! The one module that reads the clock of the history.

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_BOOTTIME`, in nanoseconds.
pub(crate) fn now() -> u64 {
    read(ClockId::Boottime)
}

/// How far `CLOCK_BOOTTIME` is ahead of `CLOCK_MONOTONIC`: for as long as the machine has slept, to a few nanoseconds
/// less. So a stamp that is made of the other clock is no later than the true one.
pub(crate) fn boottime_offset_ns() -> u64 {
    let boottime = read(ClockId::Boottime);
    boottime.saturating_sub(read(ClockId::Monotonic))
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
