//! What is watched, and what is said when it is broken.

use std::fmt;

/// A promise that is watched in every world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Oracle {
    /// No two clients believe at one true instant that they hold one lock, while the server lived and nobody released by
    /// force.
    Exclusion,
    /// A client stops believing before the server takes its lock away, and within 0.8 leases where the server died.
    GiveUp,
    /// Grants come in the order of arrival.
    Order,
    /// Tokens rise.
    Tokens,
    /// One end a grant, one end a session, never a free lock with a queue.
    Pairing,
    /// A session lives for its lease after its last sign of life, to the nanosecond.
    Lease,
    /// Exactly one reply a heartbeat, one push a promotion, no `WAITING` after `ACQUIRED`, nothing after the end.
    Frames,
    /// A client is told once of its grant and once of its end.
    Signal,
    /// Neither side finds the other in breach of the protocol, unless it is.
    Protocol,
    /// Heartbeats go out when the protocol says.
    Rhythm,
    /// The fenced resource lets no stale write in, and every other.
    Fence,
    /// Every living waiter is served within a bound once the faults are over.
    Liveness,
    /// What is idle leaves nothing behind.
    Idle,
    /// Time moves on: a wake-up that was due changes something.
    Progress,
    /// The same seed gives the same history.
    Determinism,
    /// Nothing panics.
    Panic,
}

impl Oracle {
    /// Its name on the command line and in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exclusion => "exclusion",
            Self::GiveUp => "give-up",
            Self::Order => "order",
            Self::Tokens => "tokens",
            Self::Pairing => "pairing",
            Self::Lease => "lease",
            Self::Frames => "frames",
            Self::Signal => "signal",
            Self::Protocol => "protocol",
            Self::Rhythm => "rhythm",
            Self::Fence => "fence",
            Self::Liveness => "liveness",
            Self::Idle => "idle",
            Self::Progress => "progress",
            Self::Determinism => "determinism",
            Self::Panic => "panic",
        }
    }
}

impl fmt::Display for Oracle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub oracle: Oracle,
    /// When, in nanoseconds of true time.
    pub at: u64,
    /// How, in words.
    pub what: String,
}

/// Which promise was broken, and how, before anybody has looked at the clock.
pub type Breach = (Oracle, String);

/// A world in which a promise was broken, as it is reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What decides the world.
    pub seed: u64,
    /// What happened in it.
    pub violation: Violation,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, violation: Violation { oracle, at, what } } = self;
        write!(f, "seed {seed}: violation of {oracle}: {what}, at ")?;
        write!(f, "{}.{:09} s", at / 1_000_000_000, at % 1_000_000_000)
    }
}
