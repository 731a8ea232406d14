//! The one place that decides who holds which lock.
//!
//! Four inputs (acquire, heartbeat, release, tick) and one question (when to tick next); time is always an argument. A
//! lock exists while somebody claims it, has a holder whenever it exists (but for the grace after a start), and passes
//! to its waiters strictly in the order in which they came. Everything an input brings about is in the caller's buffer
//! when the call returns.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::hash::BuildHasher;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::deadlines::{Arming, Deadlines};
use crate::effect::{Effect, Effects, ReleaseReason, Standing};
use crate::slab::{Key, Slab};
use crate::view::{LockView, SessionView};
use crate::{Lease, LockName, LockNameRef, Timestamp, Token, TokenSequence};

/// A session of one engine: one claim on one lock.
///
/// It names one claim for ever: the index is reused after the claim has ended, the serial never is, so a stale id finds
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionId {
    key: Key,
    serial: u64,
}

impl SessionId {
    /// A small number that no other living session of the engine has: for a driver that keeps its connections in a
    /// parallel slab.
    pub const fn index(self) -> usize {
        self.key.index()
    }

    /// A number that no other session of the engine had or will have; they rise in the order of arrival.
    pub const fn serial(self) -> u64 {
        self.serial
    }
}

/// A claim to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acquire<'a> {
    /// The lock.
    pub name: LockNameRef<'a>,
    /// How long the session may be silent.
    pub lease: Lease,
}

/// Why no claim was made. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireError {
    /// The engine was [closed](LockEngine::close).
    Closed,
    /// The engine has as many sessions as it can count: 2^32 − 256.
    Full,
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the engine is closed",
            Self::Full => "the engine has as many sessions as it can count",
        })
    }
}

impl core::error::Error for AcquireError {}

/// The session has ended, or never was. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownSession;

impl fmt::Display for UnknownSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no such session")
    }
}

impl core::error::Error for UnknownSession {}

/// Named locks, their holders and their queues.
///
/// Laws that hold for every input:
/// - It settles the past first: `x(now)` is `tick(now)`, then `x(now)`.
/// - A lease lives while `now < last_seen + lease`; a grant does not prolong it, a heartbeat does.
/// - Time that steps back counts as standing still.
/// - Each `Granted` has one `Released`; each session ends in one `Released` or `Withdrawn`.
/// - There is never a free lock with a queue, but for the grace of [`granting_from`](Self::granting_from) and while
///   there are no [tokens](TokenSequence::reserve_below).
/// - Tokens rise.
///
/// Memory follows the open sessions alone; a name that nobody claims costs nothing.
///
/// ```
/// use std::hash::RandomState;
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use monolock_core::{Acquire, Effect, Effects, Lease, LockEngine, LockNameRef, ReleaseReason, Timestamp, TokenSequence};
///
/// // Names come from strangers, so the hasher is keyed at random by whoever owns the engine.
/// let mut engine = LockEngine::new(Arc::new(TokenSequence::new()), RandomState::new());
/// let mut effects = Effects::new();
/// let jobs = Acquire { name: LockNameRef::new("jobs")?, lease: Lease::try_from(Duration::from_secs(10))? };
///
/// let first = engine.acquire(Timestamp::from_millis(0), jobs, &mut effects)?;
/// let second = engine.acquire(Timestamp::from_millis(5), jobs, &mut effects)?;
/// engine.release(Timestamp::from_millis(9), first, ReleaseReason::Graceful, &mut effects)?;
///
/// let granted: Vec<_> = effects.drain().filter(|effect| matches!(effect, Effect::Granted { .. })).collect();
/// assert_eq!(granted.iter().map(Effect::session).collect::<Vec<_>>(), [first, second]);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LockEngine<S> {
    now: Timestamp,
    stage: Stage,
    sessions: Slab<Session>,
    locks: Slab<Lock>,
    /// The locks by name.
    names: HashTable<Named>,
    hasher: S,
    deadlines: Deadlines,
    tokens: Arc<TokenSequence>,
    next_serial: u64,
    /// The sessions of one tick that are out of time; empty between inputs.
    due: Vec<Due>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Before this instant claims only queue.
    Grace(Timestamp),
    Open,
    /// The tokens are used up: until there are new ones claims only queue.
    Spent,
    Closed,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) serial: u64,
    pub(crate) lease: Lease,
    pub(crate) lock: Key,
    pub(crate) last_seen: Timestamp,
    /// When it came to stand where it stands.
    pub(crate) since: Timestamp,
    pub(crate) role: Role,
    pub(crate) arming: Arming,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    Waiting { previous: Option<Key>, next: Option<Key> },
    Holding { token: Token },
}

#[derive(Debug)]
pub(crate) struct Lock {
    pub(crate) name: LockName,
    pub(crate) holder: Option<Key>,
    pub(crate) first: Option<Key>,
    last: Option<Key>,
    pub(crate) waiters: u32,
}

/// Where a name leads. The hash stands beside it, so that a table of a million names can grow without visiting each of
/// them: hashing them anew would keep all locks waiting for half a second.
#[derive(Clone, Copy, Debug)]
struct Named {
    hash: NameHash,
    lock: Key,
}

/// Half of a hash: enough for a table whose keys have as many bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NameHash(u32);

/// A session that is out of time, in the order in which such sessions end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    deadline: Timestamp,
    serial: u64,
    key: Key,
}

/// What an empty list of due sessions may keep.
const KEPT_DUE: usize = 256;

impl<S: BuildHasher> LockEngine<S> {
    /// An engine without locks, at the driver's origin.
    ///
    /// All engines of one server share `tokens`. The table of names is keyed by `hasher`; names come from strangers, so
    /// it should be a keyed hash with a random key (`std::hash::RandomState`) unless the names are trusted.
    pub fn new(tokens: Arc<TokenSequence>, hasher: S) -> Self {
        Self {
            now: Timestamp::ORIGIN,
            stage: Stage::Open,
            sessions: Slab::new(),
            locks: Slab::new(),
            names: HashTable::new(),
            hasher,
            deadlines: Deadlines::new(),
            tokens,
            next_serial: 1,
            due: Vec::new(),
        }
    }

    /// Grants nothing before `instant`: until then claims queue in order.
    ///
    /// For the grace after a restart: once every lease of the server's previous life is out, no client of that life
    /// believes any more that it holds a lock.
    #[must_use]
    pub fn granting_from(mut self, instant: Timestamp) -> Self {
        self.stage = Stage::Grace(instant);
        self
    }

    /// Claims a lock: `Granted` if it is free, else `Queued` at the end of its queue.
    ///
    /// # Errors
    /// [`AcquireError`]; then nothing changed but what was due anyway.
    pub fn acquire(
        &mut self,
        now: Timestamp,
        request: Acquire<'_>,
        effects: &mut Effects,
    ) -> Result<SessionId, AcquireError> {
        let now = self.settle(now, effects);
        let Acquire { name, lease } = request;
        if self.stage == Stage::Closed {
            return Err(AcquireError::Closed);
        }
        if self.sessions.is_full() {
            return Err(AcquireError::Full);
        }
        let lock = self.find_or_create(name);
        let serial = self.next_serial;
        self.next_serial += 1;
        let role = Role::Waiting { previous: None, next: None };
        let session = Session { serial, lease, lock, last_seen: now, since: now, role, arming: Arming::default() };
        let key = self.sessions.insert(session);
        self.deadlines.arm(&mut self.sessions, key, now.saturating_add(lease.as_duration()));
        let claims = self.locks[lock].claims();
        if claims == 0
            && let Some(token) = self.next_token()
        {
            self.grant(now, lock, key, token, effects);
        } else {
            self.append(lock, key);
            let name = self.locks[lock].name.clone();
            effects.push(Effect::Queued { session: SessionId { key, serial }, name, ahead: claims });
        }
        Ok(SessionId { key, serial })
    }

    /// Takes a sign of life in: the session's lease runs anew, and `Confirmed` says where it stands.
    ///
    /// # Errors
    /// [`UnknownSession`] if it has ended, by this very instant too.
    pub fn heartbeat(
        &mut self,
        now: Timestamp,
        session: SessionId,
        effects: &mut Effects,
    ) -> Result<(), UnknownSession> {
        let now = self.settle(now, effects);
        let found = self.sessions.get_mut(session.key).filter(|found| found.serial == session.serial);
        let found = found.ok_or(UnknownSession)?;
        found.last_seen = now;
        effects.push(Effect::Confirmed { session, standing: found.standing() });
        Ok(())
    }

    /// Ends a session: `Released` and the next waiter's `Granted`, or `Withdrawn`.
    ///
    /// # Errors
    /// [`UnknownSession`] if it has ended, by this very instant too.
    pub fn release(
        &mut self,
        now: Timestamp,
        session: SessionId,
        why: ReleaseReason,
        effects: &mut Effects,
    ) -> Result<(), UnknownSession> {
        let now = self.settle(now, effects);
        self.sessions.get(session.key).filter(|found| found.serial == session.serial).ok_or(UnknownSession)?;
        self.end(now, session.key, why, effects);
        Ok(())
    }

    /// Lets time pass: ends each session whose lease is out, in the order of their deadlines, and grants what became
    /// free.
    ///
    /// Before [`next_deadline`](Self::next_deadline) it does nothing; from then on it makes progress: something ends,
    /// something is granted, or the next deadline is later.
    pub fn tick(&mut self, now: Timestamp, effects: &mut Effects) {
        self.settle(now, effects);
    }

    /// When [`tick`](Self::tick) is wanted next; `None` while nothing can happen by time alone.
    ///
    /// No session is out of time before it. It may come early: a session heard since then is looked at again at this
    /// instant and no sooner.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let grace = match self.stage {
            Stage::Grace(until) if !self.locks.is_empty() => Some(until),
            Stage::Grace(_) | Stage::Open | Stage::Spent | Stage::Closed => None,
        };
        // `None` is less than any instant, so `min` alone would lose the other one.
        match (self.deadlines.earliest(), grace) {
            (Some(lease), Some(grace)) => Some(lease.min(grace)),
            (lease, grace) => lease.or(grace),
        }
    }

    /// Ends every session with [`ReleaseReason::Shutdown`] and grants nothing any more: the controlled stop of a
    /// server. For each lock the waiters go first, so nobody is promoted by the stop itself. Later claims are
    /// refused with [`AcquireError::Closed`].
    pub fn close(&mut self, now: Timestamp, effects: &mut Effects) {
        let now = self.settle(now, effects);
        self.stage = Stage::Closed;
        let sessions: Vec<Key> =
            self.locks().flat_map(|lock| lock.waiters().chain(lock.holder())).map(|s| s.key()).collect();
        for key in sessions {
            self.end(now, key, ReleaseReason::Shutdown, effects);
        }
    }

    /// The lock of this name, if anybody claims it.
    pub fn lock(&self, name: LockNameRef<'_>) -> Option<LockView<'_>> {
        let hash = NameHash::of(name, &self.hasher);
        let found = self.names.find(hash.spread(), |named| named.is(hash, name, &self.locks))?;
        Some(LockView::new(&self.sessions, &self.locks[found.lock]))
    }

    /// A session, while it lives.
    pub fn session(&self, session: SessionId) -> Option<SessionView<'_>> {
        let found = self.sessions.get(session.key).filter(|found| found.serial == session.serial)?;
        Some(SessionView::new(session.key, found))
    }

    /// Makes the past true: all that was due by `now` happens, in order. Returns the instant that the input happens at.
    fn settle(&mut self, now: Timestamp, effects: &mut Effects) -> Timestamp {
        self.now = self.now.max(now);
        if self.deadlines.earliest().is_some_and(|earliest| earliest <= self.now) {
            self.expire(self.now, effects);
        }
        // Also without a claim, when nobody has asked for a tick: the next one is to be granted.
        let may_grant = match self.stage {
            Stage::Grace(until) => until <= self.now,
            Stage::Spent => self.tokens.has_next(),
            Stage::Open | Stage::Closed => false,
        };
        if may_grant {
            self.open(self.now, effects);
        }
        self.now
    }

    fn expire(&mut self, now: Timestamp, effects: &mut Effects) {
        let mut due = core::mem::take(&mut self.due);
        while let Some(mut taken) = self.deadlines.take_due(now) {
            while let Some(key) = taken.next(&mut self.sessions) {
                let session = &self.sessions[key];
                let deadline = session.deadline();
                if deadline <= now && self.deadlines.is_present(deadline) {
                    due.push(Due { deadline, serial: session.serial, key });
                } else {
                    self.deadlines.arm(&mut self.sessions, key, deadline);
                }
            }
            due.sort_unstable();
            for Due { serial, key, .. } in due.drain(..) {
                // A waiter that was out of time when its turn came has ended already.
                if self.sessions.get(key).is_some_and(|session| session.serial == serial) {
                    self.end(now, key, ReleaseReason::Expired, effects);
                }
            }
        }
        due.shrink_to(KEPT_DUE);
        self.due = due;
    }

    /// Grants what queued while nothing could be granted.
    fn open(&mut self, now: Timestamp, effects: &mut Effects) {
        self.stage = Stage::Open;
        let locks: Vec<Key> = self.locks.iter().map(|(key, _)| key).collect();
        for lock in locks {
            self.pass_on(now, lock, effects);
        }
    }

    /// Takes a session out of everything and says so; its lock passes on or is forgotten.
    fn end(&mut self, now: Timestamp, key: Key, reason: ReleaseReason, effects: &mut Effects) {
        let lock = self.sessions[key].lock;
        match self.sessions[key].role {
            Role::Waiting { .. } => self.withdraw(now, key, reason, effects),
            Role::Holding { token } => {
                self.locks[lock].holder = None;
                let (session, since) = self.remove(key);
                let name = self.locks[lock].name.clone();
                effects.push(Effect::Released { session, name, token, held: now.since(since), reason });
            }
        }
        self.pass_on(now, lock, effects);
    }

    /// Grants a lock without holder to its first waiter that is not out of time; forgets a lock without claims.
    fn pass_on(&mut self, now: Timestamp, lock: Key, effects: &mut Effects) {
        if self.locks[lock].holder.is_some() {
            return;
        }
        while self.stage == Stage::Open
            && let Some(first) = self.locks[lock].first
        {
            if now < self.sessions[first].deadline() {
                if let Some(token) = self.next_token() {
                    self.unlink(first);
                    self.grant(now, lock, first, token, effects);
                }
                return;
            }
            self.withdraw(now, first, ReleaseReason::Expired, effects);
        }
        if self.locks[lock].claims() == 0 {
            self.forget(lock);
        }
    }

    fn withdraw(&mut self, now: Timestamp, key: Key, reason: ReleaseReason, effects: &mut Effects) {
        self.unlink(key);
        let name = self.locks[self.sessions[key].lock].name.clone();
        let (session, since) = self.remove(key);
        effects.push(Effect::Withdrawn { session, name, waited: now.since(since), reason });
    }

    /// Forgets a session that no list but that of the deadlines leads to.
    fn remove(&mut self, key: Key) -> (SessionId, Timestamp) {
        self.deadlines.disarm(&mut self.sessions, key);
        let Session { serial, since, .. } = self.sessions.remove(key).expect("the caller found the session");
        (SessionId { key, serial }, since)
    }

    /// The token of a grant, if anything may be granted.
    fn next_token(&mut self) -> Option<Token> {
        if self.stage != Stage::Open {
            return None;
        }
        let token = self.tokens.next();
        if token.is_none() {
            self.stage = Stage::Spent;
        }
        token
    }

    fn grant(&mut self, now: Timestamp, lock: Key, key: Key, token: Token, effects: &mut Effects) {
        self.locks[lock].holder = Some(key);
        let session = &mut self.sessions[key];
        let waited = now.since(session.since);
        session.role = Role::Holding { token };
        session.since = now;
        let id = SessionId { key, serial: session.serial };
        effects.push(Effect::Granted { session: id, name: self.locks[lock].name.clone(), token, waited });
    }

    fn append(&mut self, lock: Key, key: Key) {
        let lock = &mut self.locks[lock];
        let previous = lock.last.replace(key);
        lock.waiters += 1;
        self.sessions[key].role = Role::Waiting { previous, next: None };
        match previous {
            Some(previous) => self.sessions[previous].set_next(Some(key)),
            None => lock.first = Some(key),
        }
    }

    /// Takes a waiter out of its queue and closes the gap.
    fn unlink(&mut self, key: Key) {
        let Session { lock, role: Role::Waiting { previous, next }, .. } = self.sessions[key] else {
            unreachable!("a session in a queue waits")
        };
        let lock = &mut self.locks[lock];
        lock.waiters -= 1;
        match previous {
            Some(previous) => self.sessions[previous].set_next(next),
            None => lock.first = next,
        }
        match next {
            Some(next) => self.sessions[next].set_previous(previous),
            None => lock.last = previous,
        }
    }

    fn find_or_create(&mut self, name: LockNameRef<'_>) -> Key {
        let Self { names, locks, hasher, .. } = self;
        let hash = NameHash::of(name, hasher);
        match names.entry(hash.spread(), |named| named.is(hash, name, locks), |named| named.hash.spread()) {
            Entry::Occupied(found) => found.get().lock,
            Entry::Vacant(free) => {
                let lock = locks.insert(Lock::new(name.into()));
                free.insert(Named { hash, lock });
                lock
            }
        }
    }

    fn forget(&mut self, lock: Key) {
        let idle = self.locks.remove(lock).expect("the caller found the lock");
        let hash = NameHash::of(idle.name.as_name_ref(), &self.hasher);
        if let Ok(found) = self.names.find_entry(hash.spread(), |named| named.lock == lock) {
            found.remove();
        }
        if self.names.len() < self.names.capacity() / 8 {
            self.names.shrink_to(self.names.len() * 2, |named| named.hash.spread());
        }
    }
}

impl<S> LockEngine<S> {
    /// The locks that anybody claims, in no particular but a reproducible order.
    pub fn locks(&self) -> impl Iterator<Item = LockView<'_>> {
        self.locks.iter().map(|(_, lock)| LockView::new(&self.sessions, lock))
    }

    /// The locks that anybody claims and whose position is at least `position`, by their positions.
    ///
    /// A lock keeps its position as long as anybody claims it. So a driver can look at many locks a few at a time,
    /// going on from the position after the last, and sees each lock once that was claimed all the while.
    pub fn locks_from(&self, position: usize) -> impl Iterator<Item = (usize, LockView<'_>)> {
        self.locks.iter_from(position).map(|(key, lock)| (key.index(), LockView::new(&self.sessions, lock)))
    }

    /// How many locks are claimed.
    pub const fn lock_count(&self) -> usize {
        self.locks.len()
    }

    /// How many sessions live, holders and waiters.
    pub const fn session_count(&self) -> usize {
        self.sessions.len()
    }
}

impl Session {
    pub(crate) fn deadline(&self) -> Timestamp {
        self.last_seen.saturating_add(self.lease.as_duration())
    }

    pub(crate) const fn standing(&self) -> Standing {
        match self.role {
            Role::Waiting { .. } => Standing::Waiting,
            Role::Holding { token } => Standing::Holding(token),
        }
    }

    fn set_next(&mut self, key: Option<Key>) {
        let Role::Waiting { next, .. } = &mut self.role else { unreachable!("a session in a queue waits") };
        *next = key;
    }

    fn set_previous(&mut self, key: Option<Key>) {
        let Role::Waiting { previous, .. } = &mut self.role else { unreachable!("a session in a queue waits") };
        *previous = key;
    }
}

impl Lock {
    const fn new(name: LockName) -> Self {
        Self { name, holder: None, first: None, last: None, waiters: 0 }
    }

    /// How many sessions claim it.
    const fn claims(&self) -> usize {
        self.waiters as usize + self.holder.is_some() as usize
    }
}

impl Named {
    fn is(self, hash: NameHash, name: LockNameRef<'_>, locks: &Slab<Lock>) -> bool {
        self.hash == hash && locks[self.lock].name.as_name_ref() == name
    }
}

impl NameHash {
    fn of(name: LockNameRef<'_>, hasher: &impl BuildHasher) -> Self {
        let hash = hasher.hash_one(name.as_str());
        let folded = (hash >> 32) ^ (hash & u64::from(u32::MAX));
        Self(u32::try_from(folded).expect("the upper half is empty"))
    }

    /// What the table takes: it looks at both ends.
    fn spread(self) -> u64 {
        u64::from(self.0) << 32 | u64::from(self.0)
    }
}

impl SessionId {
    pub(crate) const fn new(key: Key, serial: u64) -> Self {
        Self { key, serial }
    }
}
