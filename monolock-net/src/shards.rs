//! The engines, and the way from their effects to the outboxes.
//!
//! The names are spread over shards by their hash; each shard is one engine behind one lock. Under that lock happen engine calls and pushes
//! into outboxes, never a system call and never a wait. What was pushed is sent right after, by the task that is here: that is the handover.

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroUsize;
use std::sync::Arc;

use monolock_core::{
    Acquire, AcquireError, Effect, Effects, LockEngine, ReleaseReason, SessionId, Standing, Timestamp, TokenSequence,
    UnknownSession,
};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::connection::Connection;
use crate::outbox::{Farewell, Reply};

#[derive(Debug)]
pub(crate) struct Shards {
    all: Box<[Shard]>,
    hasher: RandomState,
    tokens: Arc<TokenSequence>,
    clock: Clock,
}

/// A session of the server: which shard knows it, and as what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    shard: usize,
    session: SessionId,
}

#[derive(Debug)]
struct Shard {
    state: Mutex<State>,
    /// Called when a deadline appears that is earlier than the armed one.
    earlier: Notify,
}

#[derive(Debug)]
struct State {
    engine: LockEngine<RandomState>,
    effects: Effects,
    /// The connection of each session, at the session's index.
    connections: Vec<Option<Arc<Connection>>>,
    /// Whose outbox has got something, in the order of the effects.
    touched: Vec<Arc<Connection>>,
    /// When the shard's expiry task wakes by itself.
    armed: Timestamp,
}

impl Shards {
    pub(crate) fn new(count: NonZeroUsize, clock: Clock) -> Self {
        let tokens = Arc::new(TokenSequence::new());
        let all = (0..count.get()).map(|_| Shard::new(Arc::clone(&tokens))).collect();
        Self { all, hasher: RandomState::new(), tokens, clock }
    }

    pub(crate) const fn count(&self) -> usize {
        self.all.len()
    }

    /// Claims a lock for a connection, and sends the first answer.
    pub(crate) fn acquire(&self, request: Acquire<'_>, connection: &Arc<Connection>) -> Result<Claim, AcquireError> {
        let shard = self.shard_of(request.name.as_str());
        let session = self.input(shard, |state, now| {
            // The past first: a session that ends by it may leave its index to the new one.
            state.engine.tick(now, &mut state.effects);
            state.route();
            let session = state.engine.acquire(now, request, &mut state.effects)?;
            state.connect(session, Arc::clone(connection));
            Ok(session)
        })?;
        Ok(Claim { shard, session })
    }

    /// Takes so many heartbeats in, and answers each.
    pub(crate) fn heartbeats(&self, claim: Claim, count: usize) -> Result<(), UnknownSession> {
        self.input(claim.shard, |state, now| {
            (0..count).try_for_each(|_| state.engine.heartbeat(now, claim.session, &mut state.effects))
        })
    }

    /// Ends a session, and tells whoever is promoted by it.
    pub(crate) fn release(&self, claim: Claim, why: ReleaseReason) -> Result<(), UnknownSession> {
        self.input(claim.shard, |state, now| state.engine.release(now, claim.session, why, &mut state.effects))
    }

    /// Ends a session if it waits; says where it stood.
    pub(crate) fn withdraw(&self, claim: Claim, why: ReleaseReason) -> Result<Standing, UnknownSession> {
        self.input(claim.shard, |state, now| {
            state.engine.tick(now, &mut state.effects);
            let standing = state.engine.session(claim.session).ok_or(UnknownSession)?.standing();
            if standing == Standing::Waiting {
                state.engine.release(now, claim.session, why, &mut state.effects)?;
            }
            Ok(standing)
        })
    }

    /// Ends all sessions, tells each, and takes no more. Nobody is promoted.
    pub(crate) fn close(&self) {
        for shard in 0..self.count() {
            self.input(shard, |state, now| state.engine.close(now, &mut state.effects));
        }
    }

    /// Ends the sessions of one shard that are out of time, each in its time, for ever.
    pub(crate) async fn expire(&self, shard: usize) {
        loop {
            // A timer may fire a little early or late, so the clock is asked after each wake.
            let armed = self.input(shard, |state, now| {
                state.engine.tick(now, &mut state.effects);
                state.armed = state.next_deadline();
                state.armed
            });
            let earlier = self.all[shard].earlier.notified();
            match self.clock.instant(armed) {
                Some(deadline) if armed < Timestamp::MAX => {
                    // Either way there is the clock to be asked.
                    let _ = tokio::time::timeout_at(deadline, earlier).await;
                }
                _ => earlier.await,
            }
        }
    }

    /// One input to one engine: under the lock what happens in memory, after it what goes to the sockets.
    fn input<T>(&self, shard: usize, input: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        let shard = &self.all[shard];
        let mut state = shard.state.lock();
        // Stamped under the lock, so that an engine's inputs come in the order of their times.
        self.tokens.lift_to_unix_second(Clock::unix_second());
        let outcome = input(&mut state, self.clock.now());
        state.route();
        let deadline = state.next_deadline();
        if deadline < state.armed {
            state.armed = deadline;
            shard.earlier.notify_one();
        }
        let touched = std::mem::take(&mut state.touched);
        drop(state);
        for connection in touched {
            connection.flush();
        }
        outcome
    }

    fn shard_of(&self, name: &str) -> usize {
        let hash = self.hasher.hash_one(name);
        usize::try_from(hash % self.count() as u64).expect("a remainder is smaller than the count")
    }
}

impl Shard {
    fn new(tokens: Arc<TokenSequence>) -> Self {
        let state = State {
            engine: LockEngine::new(tokens, RandomState::new()),
            effects: Effects::new(),
            connections: Vec::new(),
            touched: Vec::new(),
            armed: Timestamp::MAX,
        };
        Self { state: Mutex::new(state), earlier: Notify::new() }
    }
}

impl State {
    /// Carries each effect to the outbox of its session's connection.
    fn route(&mut self) {
        let Self { effects, connections, touched, .. } = self;
        for effect in effects.drain() {
            let place = &mut connections[effect.session().index()];
            let connection = match effect {
                Effect::Granted { token, .. } => push(place.as_ref(), Reply::Acquired(token)),
                Effect::Queued { .. } => push(place.as_ref(), Reply::Waiting),
                Effect::Confirmed { standing, .. } => push(place.as_ref(), reply(standing)),
                Effect::Released { reason, .. } | Effect::Withdrawn { reason, .. } => end(place, reason),
            };
            touched.extend(connection);
        }
        self.effects.clear();
        self.forget_ended();
    }

    fn connect(&mut self, session: SessionId, connection: Arc<Connection>) {
        let index = session.index();
        if index >= self.connections.len() {
            self.connections.resize(index + 1, None);
        }
        self.connections[index] = Some(connection);
    }

    /// Gives back the memory of places that no session needs.
    fn forget_ended(&mut self) {
        while self.connections.last().is_some_and(Option::is_none) {
            self.connections.pop();
        }
        if self.connections.len() < self.connections.capacity() / 4 {
            self.connections.shrink_to(self.connections.len() * 2);
        }
    }

    fn next_deadline(&self) -> Timestamp {
        self.engine.next_deadline().unwrap_or(Timestamp::MAX)
    }
}

fn push(place: Option<&Arc<Connection>>, reply: Reply) -> Option<Arc<Connection>> {
    let connection = place?;
    connection.push(reply);
    Some(Arc::clone(connection))
}

/// Parts a connection from its session, and says so if it was not the connection's own doing.
fn end(place: &mut Option<Arc<Connection>>, reason: ReleaseReason) -> Option<Arc<Connection>> {
    let connection = place.take()?;
    match reason {
        ReleaseReason::Graceful | ReleaseReason::IoTimeout | ReleaseReason::ProtocolError => return None,
        ReleaseReason::Expired => connection.end(None),
        ReleaseReason::Force => connection.end(Some(Farewell::ClosedByAdministrator)),
        ReleaseReason::Shutdown => connection.end(Some(Farewell::ShuttingDown)),
    }
    Some(connection)
}

const fn reply(standing: Standing) -> Reply {
    match standing {
        Standing::Waiting => Reply::Waiting,
        Standing::Holding(token) => Reply::Acquired(token),
    }
}
