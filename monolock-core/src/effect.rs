//! What an input brought about, in order.
//!
//! Effects are appended to a buffer that the caller owns and reuses. They own what they mention, so they stay true
//! however the engine goes on; there is nothing to drain before the next input.

use alloc::vec::{self, Vec};
use core::fmt;
use core::time::Duration;

use crate::{LockName, SessionId, Token};

/// One thing that happened. The loser of a lock is always told before the winner.
///
/// The enum is closed on purpose: a driver that passed over an effect would lose a frame, so a new one has to be seen
/// by the compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The session owns the lock now: at once, or after it has queued.
    Granted {
        /// Who owns it.
        session: SessionId,
        /// The lock.
        name: LockName,
        /// The grant's fencing token.
        token: Token,
        /// How long the session stood in the queue.
        waited: Duration,
    },
    /// The session stands at the end of the lock's queue.
    Queued {
        /// Who waits.
        session: SessionId,
        /// The lock.
        name: LockName,
        /// How many claims stand before it, the holder's included.
        ahead: usize,
    },
    /// A heartbeat was taken in: the session is in this state, and its lease runs anew.
    Confirmed {
        /// Who was heard.
        session: SessionId,
        /// Its state.
        standing: Standing,
    },
    /// A holder's claim ended. Each `Granted` has one `Released`; the session exists no more.
    Released {
        /// Who owned it.
        session: SessionId,
        /// The lock.
        name: LockName,
        /// The token of the grant that ended.
        token: Token,
        /// How long it was held.
        held: Duration,
        /// Why it ended.
        reason: ReleaseReason,
    },
    /// A waiter's claim ended before it was granted; the session exists no more.
    Withdrawn {
        /// Who waited.
        session: SessionId,
        /// The lock.
        name: LockName,
        /// How long the session stood in the queue.
        waited: Duration,
        /// Why it ended.
        reason: ReleaseReason,
    },
}

impl Effect {
    /// The session that it concerns.
    pub const fn session(&self) -> SessionId {
        match *self {
            Self::Granted { session, .. }
            | Self::Queued { session, .. }
            | Self::Confirmed { session, .. }
            | Self::Released { session, .. }
            | Self::Withdrawn { session, .. } => session,
        }
    }
}

/// Where a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// In the queue.
    Waiting,
    /// It owns the lock under this token.
    Holding(Token),
}

/// Why a claim ended.
///
/// Of several reasons in one instant, the lease comes first (every input settles the past before it acts), then
/// whichever input came first: a later one finds the session gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseReason {
    /// The client let go: it closed its connection, or was killed.
    Graceful,
    /// The client was silent for its lease.
    Expired,
    /// The client's socket took no more bytes.
    IoTimeout,
    /// An administrator ended it.
    Force,
    /// The client broke the protocol.
    ProtocolError,
    /// The server stopped.
    Shutdown,
}

impl ReleaseReason {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 6] =
        [Self::Graceful, Self::Expired, Self::IoTimeout, Self::Force, Self::ProtocolError, Self::Shutdown];

    /// Its name in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Graceful => "graceful",
            Self::Expired => "expired",
            Self::IoTimeout => "io_timeout",
            Self::Force => "force",
            Self::ProtocolError => "protocol_error",
            Self::Shutdown => "shutdown",
        }
    }
}

impl fmt::Display for ReleaseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A buffer of effects, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects(Vec<Effect>);

/// What an empty buffer may keep, in effects: a mass expiry must not hold its memory for ever.
const KEPT_CAPACITY: usize = 1024;

impl Effects {
    /// An empty buffer.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// How many effects are in it.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The effects, oldest first.
    pub fn iter(&self) -> core::slice::Iter<'_, Effect> {
        self.0.iter()
    }

    /// Takes all effects out, oldest first, and keeps the memory for the next input; [`clear`](Self::clear) then gives
    /// back what a rare large number of them took.
    pub fn drain(&mut self) -> vec::Drain<'_, Effect> {
        self.0.drain(..)
    }

    /// Forgets all effects, and gives back what a rare large number of them took.
    pub fn clear(&mut self) {
        self.0.clear();
        self.0.shrink_to(KEPT_CAPACITY);
    }

    pub(crate) fn push(&mut self, effect: Effect) {
        self.0.push(effect);
    }
}

impl<'a> IntoIterator for &'a Effects {
    type Item = &'a Effect;
    type IntoIter = core::slice::Iter<'a, Effect>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
