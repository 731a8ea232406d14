//! What there is to see of an engine: its locks, who holds them and who waits.
//!
//! Views are read in place and own nothing; they show values, never the inside.

use core::fmt;

use crate::effect::Standing;
use crate::engine::{Lock, Role, Session};
use crate::slab::{Key, Slab};
use crate::{Lease, LockName, SessionId, Timestamp};

/// A lock that somebody claims.
#[derive(Clone, Copy)]
pub struct LockView<'a> {
    sessions: &'a Slab<Session>,
    lock: &'a Lock,
}

impl<'a> LockView<'a> {
    pub(crate) const fn new(sessions: &'a Slab<Session>, lock: &'a Lock) -> Self {
        Self { sessions, lock }
    }

    /// Its name.
    pub const fn name(&self) -> &'a LockName {
        &self.lock.name
    }

    /// Who owns it. There always is a holder, but in the grace after a start.
    pub fn holder(&self) -> Option<SessionView<'a>> {
        self.lock.holder.map(|key| SessionView::new(key, &self.sessions[key]))
    }

    /// Who waits for it, first come first.
    pub fn waiters(&self) -> impl Iterator<Item = SessionView<'a>> + use<'a> {
        let sessions = self.sessions;
        core::iter::successors(self.lock.first, |&key| match sessions[key].role {
            Role::Waiting { next, .. } => next,
            Role::Holding { .. } => None,
        })
        .map(|key| SessionView::new(key, &sessions[key]))
    }

    /// How many wait for it.
    pub const fn waiter_count(&self) -> usize {
        self.lock.waiters as usize
    }
}

/// A living session.
#[derive(Clone, Copy)]
pub struct SessionView<'a> {
    key: Key,
    session: &'a Session,
}

impl<'a> SessionView<'a> {
    pub(crate) const fn new(key: Key, session: &'a Session) -> Self {
        Self { key, session }
    }

    /// Its id.
    pub const fn id(&self) -> SessionId {
        SessionId::new(self.key, self.session.serial)
    }

    /// Whether it waits, or holds and under which token.
    pub const fn standing(&self) -> Standing {
        self.session.standing()
    }

    /// Since when it has waited or held.
    pub const fn since(&self) -> Timestamp {
        self.session.since
    }

    /// When it was last heard.
    pub const fn last_seen(&self) -> Timestamp {
        self.session.last_seen
    }

    /// How long it may be silent.
    pub const fn lease(&self) -> Lease {
        self.session.lease
    }

    /// When it is out of time unless it is heard before.
    pub fn deadline(&self) -> Timestamp {
        self.session.deadline()
    }

    pub(crate) const fn key(&self) -> Key {
        self.key
    }
}

impl fmt::Debug for LockView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockView")
            .field("name", self.name())
            .field("holder", &self.holder())
            .field("waiter_count", &self.waiter_count())
            .finish()
    }
}

impl fmt::Debug for SessionView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionView")
            .field("id", &self.id())
            .field("standing", &self.standing())
            .field("since", &self.since())
            .field("last_seen", &self.last_seen())
            .field("lease", &self.lease())
            .finish()
    }
}
