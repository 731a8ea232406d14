//! The one module that reads a clock.
//!
//! A lease runs on at the server while this machine sleeps, so the clock must run on as well: `CLOCK_BOOTTIME` on Linux
//! and Android, `CLOCK_MONOTONIC` on Apple systems, where that one counts sleep. Elsewhere it is
//! [`std::time::Instant`], which may stand still during suspend: there a lock that was lost in the machine's sleep is
//! found out when the first deadline after it passes.

use std::fmt;

use monolock_core::Timestamp;

/// Tells the time: monotonic, from an origin of its own, and running on while the machine sleeps where the system can
/// tell.
///
/// Programs use [`SystemClock`]; tests inject one that they can set.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The present instant.
    fn now(&self) -> Timestamp;
}

/// The system's monotonic clock that counts suspend, as far as the system has one.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        system_now()
    }
}

#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn system_now() -> Timestamp {
    use rustix::time::{ClockId, clock_gettime};
    #[cfg(target_vendor = "apple")]
    const CLOCK: ClockId = ClockId::Monotonic;
    #[cfg(not(target_vendor = "apple"))]
    const CLOCK: ClockId = ClockId::Boottime;

    let time = clock_gettime(CLOCK);
    // The time since boot: never negative.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Timestamp::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
fn system_now() -> Timestamp {
    use std::sync::OnceLock;
    use std::time::Instant;
    static ORIGIN: OnceLock<Instant> = OnceLock::new();

    Timestamp::ORIGIN.saturating_add(ORIGIN.get_or_init(Instant::now).elapsed())
}
