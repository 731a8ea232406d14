//! Many sessions that one process holds, for rows that measure something else beside them.

use std::io;
use std::time::{Duration, Instant};

use monolock_core::Lease;

use crate::client::Claim;
use crate::target::Address;

/// Until when the leases of a crowd last.
#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    /// Longer than anybody looks.
    Later,
    /// All to one instant.
    Then(Instant),
}

/// So many sessions, each with a lock of its own.
pub(super) fn crowd(address: &Address, count: usize, until: Until) -> io::Result<Vec<Claim>> {
    (0..count)
        .map(|number| {
            let lease = match until {
                Until::Later => Lease::MAX,
                Until::Then(instant) => lease_until(instant)?,
            };
            let mut claim = Claim::make_with(address, &format!("crowd/{number:024}"), lease)?;
            claim.expect_acquired()?;
            Ok(claim)
        })
        .collect()
}

fn lease_until(instant: Instant) -> io::Result<Lease> {
    let left = instant.saturating_duration_since(Instant::now());
    let left = Duration::from_millis(u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
    Lease::try_from(left).map_err(|_| io::Error::other("the crowd took too long to come together"))
}
