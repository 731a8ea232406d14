//! Leases: how long a session may be silent before its claim ends.
//!
//! The client chooses it; the wire carries whole milliseconds in a u32 (`docs/protocol.md`, "Frames"). A [`Lease`] is
//! never zero and always fits, so what is sent is exactly what was asked for.

use core::fmt;
use core::num::NonZeroU32;
use core::time::Duration;

/// A lease: 1 to 2^32 − 1 milliseconds (49.7 days).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease(NonZeroU32);

impl Lease {
    /// The longest lease.
    pub const MAX: Self = Self(NonZeroU32::MAX);

    /// A lease of so many milliseconds; `None` for zero.
    pub const fn from_millis(lease_ms: u32) -> Option<Self> {
        match NonZeroU32::new(lease_ms) {
            Some(lease_ms) => Some(Self(lease_ms)),
            None => None,
        }
    }

    /// In milliseconds, as on the wire.
    pub const fn as_millis(self) -> u32 {
        self.0.get()
    }

    /// As a duration.
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.0.get() as u64)
    }
}

impl TryFrom<Duration> for Lease {
    type Error = LeaseError;

    /// Exact or refused: a lease is never rounded.
    fn try_from(duration: Duration) -> Result<Self, LeaseError> {
        if !duration.subsec_nanos().is_multiple_of(1_000_000) {
            return Err(LeaseError::NotWholeMilliseconds);
        }
        let lease_ms = u32::try_from(duration.as_millis()).map_err(|_| LeaseError::TooLong)?;
        Self::from_millis(lease_ms).ok_or(LeaseError::Zero)
    }
}

impl From<Lease> for Duration {
    fn from(lease: Lease) -> Self {
        lease.as_duration()
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.as_duration(), f)
    }
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Why a duration is not a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseError {
    /// It is zero: every claim would end at once.
    Zero,
    /// It has a fraction of a millisecond, which the wire cannot carry.
    NotWholeMilliseconds,
    /// It is longer than [`Lease::MAX`].
    TooLong,
}

impl fmt::Display for LeaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Zero => "lease must be positive",
            Self::NotWholeMilliseconds => "lease must be a whole number of milliseconds",
            Self::TooLong => "lease is longer than 4294967295 ms (49.7 days)",
        })
    }
}

impl core::error::Error for LeaseError {}
