//! What an administrator can see of the locks and do to them.
//!
//! Deeds are decided and done under one shard's lock, so a deed that was decided from an older listing hits the claim
//! it meant or nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use monolock_core::{
    Glob, Lease, LockName, LockNameRef, LockView, ReleaseReason, SessionId, SessionView, Standing, Timestamp, Token,
};

use crate::clock::Clock;
use crate::event::What;
use crate::shards::{Shards, State, Turn};

/// A lock, its holder and its queue, as they were at one instant.
#[derive(Clone, Debug)]
pub(crate) struct LockReport {
    pub(crate) name: LockName,
    /// Nobody, while the server grants nothing.
    pub(crate) holder: Option<SessionReport>,
    /// First come first.
    pub(crate) waiters: Vec<SessionReport>,
}

/// A session, as it was at one instant.
#[derive(Clone, Debug)]
pub(crate) struct SessionReport {
    /// A number that no other session of this server has or will have.
    pub(crate) session: u64,
    pub(crate) identity: Arc<str>,
    pub(crate) remote_addr: SocketAddr,
    /// Since when it has held or waited.
    pub(crate) since: SystemTime,
    pub(crate) lease: Lease,
    /// How much of its lease is left, unless it is heard before.
    pub(crate) lease_remaining: Duration,
    /// A holder's token.
    pub(crate) token: Option<Token>,
}

/// Which waiter is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    RemoteAddr(SocketAddr),
    Session(u64),
}

/// Why nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotDone {
    /// Nobody holds the lock, or no such waiter stands in its queue.
    NotFound,
    /// Somebody else holds the lock by now, under this token.
    OtherToken(Token),
}

/// All locks at a glance.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Survey {
    /// Locks that somebody holds.
    pub(crate) held: usize,
    /// Claims that wait.
    pub(crate) waiters: usize,
    pub(crate) longest_wait: Duration,
    pub(crate) longest_hold: Duration,
}

impl Shards {
    /// The names of claimed locks that come after `after`, in the order of their bytes, at most `limit`; and whether
    /// there are more.
    pub(crate) fn names(&self, matching: Option<&Glob>, after: Option<&str>, limit: usize) -> (Vec<LockName>, More) {
        let mut names = Vec::new();
        self.look_at_locks(|lock, _| {
            let name = lock.name();
            let is_after = after.is_none_or(|after| name.as_str() > after);
            if is_after && matching.is_none_or(|glob| glob.matches(name.as_str())) {
                names.push(name.clone());
            }
        });
        names.sort_unstable();
        let more = if names.len() > limit { More::Yes } else { More::No };
        names.truncate(limit);
        (names, more)
    }

    /// A lock that somebody claims.
    pub(crate) fn report(&self, name: LockNameRef<'_>) -> Option<LockReport> {
        let shard = self.shard_of(name);
        self.input(shard, |mut turn| {
            turn.settle();
            let Turn { now, wall, state, .. } = turn;
            let lock = state.engine.lock(name)?;
            let report = |session| session_report(state, session, (now, wall));
            Some(LockReport {
                name: lock.name().clone(),
                holder: lock.holder().and_then(report),
                waiters: lock.waiters().filter_map(report).collect(),
            })
        })
    }

    /// Ends the holder's claim, if it is the one of this token; anybody's without one. The next waiter is promoted.
    pub(crate) fn force_release(&self, name: LockNameRef<'_>, token: Option<Token>) -> Result<SessionReport, NotDone> {
        let shard = self.shard_of(name);
        self.input(shard, |mut turn| {
            turn.settle();
            let holder = turn.state.engine.lock(name).and_then(|lock| lock.holder()).ok_or(NotDone::NotFound)?;
            let Standing::Holding(held) = holder.standing() else { return Err(NotDone::NotFound) };
            if token.is_some_and(|token| token != held) {
                return Err(NotDone::OtherToken(held));
            }
            let holder = holder.id();
            end_by_force(turn, name, holder, What::ForceRelease { token: held })
        })
    }

    /// Ends a waiter's claim.
    pub(crate) fn kick(&self, name: LockNameRef<'_>, who: Who) -> Result<SessionReport, NotDone> {
        let shard = self.shard_of(name);
        self.input(shard, |mut turn| {
            turn.settle();
            let lock = turn.state.engine.lock(name).ok_or(NotDone::NotFound)?;
            let is_meant = |waiter: &SessionView<'_>| match who {
                Who::Session(session) => turn.state.numbering.of(waiter.id()) == session,
                Who::RemoteAddr(address) => {
                    turn.state.connection(waiter.id()).is_some_and(|connection| connection.peer() == address)
                }
            };
            let waiter = lock.waiters().find(is_meant).ok_or(NotDone::NotFound)?.id();
            end_by_force(turn, name, waiter, What::KickWaiter {})
        })
    }

    /// Looks at all locks. The first waiter of a lock has waited longest for it, so each lock is looked at and no
    /// queue.
    pub(crate) fn survey(&self) -> Survey {
        let mut survey = Survey::default();
        let stood = |session: Option<SessionView<'_>>, now: Timestamp| {
            session.map_or(Duration::ZERO, |session| now.since(session.since()))
        };
        self.look_at_locks(|lock: &LockView<'_>, now| {
            survey.held += usize::from(lock.holder().is_some());
            survey.waiters += lock.waiter_count();
            survey.longest_wait = survey.longest_wait.max(stood(lock.waiters().next(), now));
            survey.longest_hold = survey.longest_hold.max(stood(lock.holder(), now));
        });
        survey
    }
}

/// Whether a listing goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum More {
    Yes,
    No,
}

/// Ends a claim for an administrator, whose deed is put down before what comes of it.
fn end_by_force(
    turn: Turn<'_>,
    name: LockNameRef<'_>,
    session: SessionId,
    deed: What,
) -> Result<SessionReport, NotDone> {
    let Turn { now, wall, state, witness } = turn;
    let view = state.engine.session(session).ok_or(NotDone::NotFound)?;
    let report = session_report(state, view, (now, wall)).ok_or(NotDone::NotFound)?;
    if let Some(connection) = state.connection(session) {
        // It is for the audit log alone.
        let _ = witness.record(wall, name, connection, deed);
    }
    let ended = state.engine.release(now, session, ReleaseReason::Force, &mut state.effects);
    ended.map(|()| report).map_err(|_| NotDone::NotFound)
}

fn session_report(
    state: &State,
    session: SessionView<'_>,
    (now, wall): (Timestamp, SystemTime),
) -> Option<SessionReport> {
    let connection = state.connection(session.id())?;
    Some(SessionReport {
        session: state.numbering.of(session.id()),
        identity: connection.identity(),
        remote_addr: connection.peer(),
        since: Clock::wall_at(session.since(), now, wall),
        lease: session.lease(),
        lease_remaining: session.deadline().since(now),
        token: match session.standing() {
            Standing::Holding(token) => Some(token),
            Standing::Waiting => None,
        },
    })
}
