//! The clocks of a machine, as functions of the true time.
//!
//! A monotonic clock has an offset and a rate of its own. The wall clock runs with the true time and can be set. Nobody
//! but the world knows the true time.

use monolock_core::Timestamp;

/// True time, in nanoseconds from the world's beginning.
pub(crate) type True = u64;

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1000 * MS;

/// A rate of 1.
const UNIT_BITS: u32 = 20;
pub(crate) const UNIT_RATE: u64 = 1 << UNIT_BITS;

/// Beyond every world's end, and small enough to calculate with.
const FAR: u64 = 1 << 43;

/// Unix time at the world's beginning, in nanoseconds.
const WALL_START: u64 = 1_800_000_000 * SECOND;

/// A monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    since: True,
    then: u64,
    rate: u64,
}

impl Clock {
    /// A clock that shows `shows` at the beginning and runs at `per_mille` thousandths more than the true time.
    pub(crate) fn new(shows: u64, per_mille: i64) -> Self {
        Self { since: 0, then: shows, rate: rate(per_mille) }
    }

    pub(crate) fn at(&self, t: True) -> Timestamp {
        let passed = ((t - self.since) * self.rate) >> UNIT_BITS;
        Timestamp::from_nanos(self.then + passed)
    }

    /// The first true instant at which it shows at least `shows`, seen from `t`; far off for what is beyond every world.
    pub(crate) fn when(&self, shows: Timestamp, t: True) -> True {
        let ahead = shows.as_nanos().saturating_sub(self.then).min(FAR);
        (self.since + (ahead << UNIT_BITS).div_ceil(self.rate)).max(t)
    }

    /// It runs at another rate from now on.
    pub(crate) fn slew(&mut self, t: True, per_mille: i64) {
        self.then = self.at(t).as_nanos();
        self.since = t;
        self.rate = rate(per_mille);
    }

    /// It stood still while the machine slept, since `asleep_since`.
    pub(crate) fn stood_still(&mut self, asleep_since: True, t: True) {
        self.then = self.at(asleep_since).as_nanos();
        self.since = t;
    }

    /// How many true nanoseconds so many of its own take, at the most.
    pub(crate) fn true_nanos(rate_per_mille: i64, own: u64) -> u64 {
        (own.min(FAR) << UNIT_BITS).div_ceil(rate(rate_per_mille))
    }
}

fn rate(per_mille: i64) -> u64 {
    UNIT_RATE.saturating_add_signed(i64::try_from(UNIT_RATE).expect("2^20") * per_mille / 1000)
}

/// A wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wall {
    /// By how much it is set wrong, in nanoseconds.
    pub(crate) off: i64,
}

impl Wall {
    /// Unix time in nanoseconds.
    pub(crate) fn at(self, t: True) -> u64 {
        (WALL_START + t).saturating_add_signed(self.off)
    }
}

#[cfg(test)]
mod tests {
    use monolock_core::Timestamp;

    use super::{Clock, SECOND};

    #[test]
    fn the_instant_at_which_a_clock_shows_a_time_is_the_first_one() {
        for per_mille in [-350, -50, -1, 0, 7, 50] {
            let mut clock = Clock::new(1_000_003, per_mille);
            clock.slew(77, per_mille / 2);
            for nanos in [1, 999_999, SECOND, 3600 * SECOND] {
                let shows = Timestamp::from_nanos(1_000_100 + nanos);
                let when = clock.when(shows, 0);
                assert!(clock.at(when) >= shows && clock.at(when - 1) < shows, "{per_mille} {nanos}");
            }
        }
    }

    #[test]
    fn a_clock_that_stood_still_goes_on_from_there() {
        let mut clock = Clock::new(5, 0);
        clock.stood_still(100, 1000);
        assert_eq!(clock.at(1000).as_nanos(), 105);
        assert_eq!(clock.at(1001).as_nanos(), 106);
    }
}
