//! The engines, and the way from their effects to the outboxes.
//!
//! The names are spread over shards by their hash; each shard is one engine behind one lock. Under that lock happen
//! engine calls and pushes into outboxes, never a system call and never a wait. What was pushed is sent right after, by
//! the task that is here: that is the handover.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use monolock_core::{
    Acquire, AcquireError, Effect, Effects, LockEngine, LockNameRef, LockView, ReleaseReason, SessionId, Standing,
    Timestamp, TokenSequence, UnknownSession,
};

use crate::clock::Clock;
use crate::connection::Connection;
use crate::outbox::{Farewell, Reply};
use crate::sync::{Mutex, Notify, yield_now};
use crate::witness::{News, Witness};

/// How many connections whose sessions are out of time are closed before others have a turn.
const CLOSED_PER_TURN: usize = 8;

#[derive(Debug)]
pub(crate) struct Shards {
    all: Box<[Shard]>,
    hasher: RandomState,
    tokens: Arc<TokenSequence>,
    clock: Clock,
    /// When the grace after the start is over.
    grants_from: Timestamp,
    witness: Witness,
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
    /// Called when a deadline appears that is earlier than the armed one, and when connections are to be seen off.
    expiry: Notify,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) engine: LockEngine<RandomState>,
    pub(crate) effects: Effects,
    /// The connection of each session, at the session's index.
    connections: Vec<Option<Arc<Connection>>>,
    /// Whose outbox has got something, in the order of the effects.
    touched: Vec<Arc<Connection>>,
    /// Whose session is out of time, and whose task has not been told so.
    expired: VecDeque<Arc<Connection>>,
    /// When the shard's expiry task wakes by itself.
    armed: Timestamp,
    /// What the input that is being taken in has put down so far.
    news: News,
    pub(crate) numbering: Numbering,
}

/// One number for a session of the server: each shard's engine counts its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbering {
    shard: u64,
    shards: u64,
}

/// One input to one engine, while it is taken in.
pub(crate) struct Turn<'a> {
    pub(crate) now: Timestamp,
    pub(crate) wall: SystemTime,
    pub(crate) state: &'a mut State,
    pub(crate) witness: &'a Witness,
}

impl Shards {
    pub(crate) fn new(
        count: NonZeroUsize,
        clock: Clock,
        grace: Duration,
        tokens: Arc<TokenSequence>,
        witness: Witness,
    ) -> Self {
        let grants_from = clock.now().saturating_add(grace);
        let shards = count.get() as u64;
        let numberings = (0..shards).map(|shard| Numbering { shard, shards });
        let all = numberings.map(|numbering| Shard::new(Arc::clone(&tokens), grants_from, numbering)).collect();
        Self { all, hasher: RandomState::new(), tokens, clock, grants_from, witness }
    }

    pub(crate) const fn count(&self) -> usize {
        self.all.len()
    }

    /// How long the server has been there.
    pub(crate) fn uptime(&self) -> Duration {
        self.clock.now().since(Timestamp::ORIGIN)
    }

    /// How long nothing is granted yet.
    pub(crate) fn start_grace_remaining(&self) -> Duration {
        self.grants_from.since(self.clock.now())
    }

    pub(crate) const fn witness(&self) -> &Witness {
        &self.witness
    }

    /// Claims a lock for a connection, and sends the first answer.
    pub(crate) fn acquire(&self, request: Acquire<'_>, connection: &Arc<Connection>) -> Result<Claim, AcquireError> {
        let shard = self.shard_of(request.name);
        let session = self.input(shard, |mut turn| {
            // The past first: a session that ends by it may leave its index to the new one.
            turn.settle();
            let session = turn.state.engine.acquire(turn.now, request, &mut turn.state.effects)?;
            turn.state.connect(session, Arc::clone(connection));
            // Before anybody is answered, as with heartbeats: what a client has been told is counted.
            turn.witness.metrics.acquires.inc();
            Ok(session)
        })?;
        Ok(Claim { shard, session })
    }

    /// Takes so many heartbeats in, and answers each.
    pub(crate) fn heartbeats(&self, claim: Claim, count: usize) -> Result<(), UnknownSession> {
        self.witness.metrics.heartbeats.inc_by(count as u64);
        self.input(claim.shard, |Turn { now, state, .. }| {
            (0..count).try_for_each(|_| state.engine.heartbeat(now, claim.session, &mut state.effects))
        })
    }

    /// Ends a session, and tells whoever is promoted by it.
    pub(crate) fn release(&self, claim: Claim, why: ReleaseReason) -> Result<(), UnknownSession> {
        self.input(claim.shard, |Turn { now, state, .. }| {
            state.engine.release(now, claim.session, why, &mut state.effects)
        })
    }

    /// Ends a session if it waits; says where it stood.
    pub(crate) fn withdraw(&self, claim: Claim, why: ReleaseReason) -> Result<Standing, UnknownSession> {
        self.input(claim.shard, |mut turn| {
            turn.settle();
            let Turn { now, state, .. } = turn;
            let standing = state.engine.session(claim.session).ok_or(UnknownSession)?.standing();
            if standing == Standing::Waiting {
                state.engine.release(now, claim.session, why, &mut state.effects)?;
            }
            Ok(standing)
        })
    }

    /// Ends all sessions, tells each, and takes no more. Nobody is promoted.
    pub(crate) fn close(&self) {
        self.witness.note_closing();
        for shard in 0..self.count() {
            self.input(shard, |Turn { now, state, .. }| state.engine.close(now, &mut state.effects));
            // Nobody may be left to do it.
            while self.see_off(shard) {}
        }
    }

    /// Looks at what time and new tokens have brought.
    pub(crate) fn tick(&self) {
        for shard in 0..self.count() {
            self.input(shard, |Turn { now, state, .. }| state.engine.tick(now, &mut state.effects));
        }
    }

    /// Ends the sessions of one shard that are out of time, each in its time, for ever.
    pub(crate) async fn expire(&self, shard: usize) {
        loop {
            // A timer may fire a little early or late, so the clock is asked after each wake.
            let armed = self.input(shard, |Turn { now, state, .. }| {
                state.engine.tick(now, &mut state.effects);
                state.armed = state.next_deadline();
                state.armed
            });
            if self.see_off(shard) {
                yield_now().await;
            } else {
                // Either way there is the clock to be asked.
                self.clock.reach(armed, self.all[shard].expiry.notified()).await;
            }
        }
    }

    /// Tells a few connections that their sessions are out of time; says whether there are more.
    ///
    /// To close one is work for its task. Thousands whose leases end in one instant would stand before every heartbeat
    /// that comes meanwhile, so others have their turn between a few and the next few. What they held has passed on
    /// already.
    fn see_off(&self, shard: usize) -> bool {
        let mut state = self.all[shard].state.lock();
        let few = state.expired.len().min(CLOSED_PER_TURN);
        let parting: Vec<_> = state.expired.drain(..few).collect();
        let are_left = !state.expired.is_empty();
        if !are_left {
            state.expired.shrink_to(CLOSED_PER_TURN);
        }
        drop(state);
        for connection in parting {
            connection.flush();
        }
        are_left
    }

    /// One input to one engine: under the lock what happens in memory, after it what goes to the sockets.
    pub(crate) fn input<T>(&self, shard: usize, input: impl FnOnce(Turn<'_>) -> T) -> T {
        let shard = &self.all[shard];
        let mut state = shard.state.lock();
        // Stamped under the lock, so that an engine's inputs come in the order of their times.
        let (now, wall) = (self.clock.now(), Clock::wall());
        self.tokens.lift_to_unix_second(Clock::unix_second(wall));
        let outcome = input(Turn { now, wall, state: &mut state, witness: &self.witness });
        state.route(wall, &self.witness);
        let deadline = state.next_deadline();
        if deadline < state.armed || !state.expired.is_empty() {
            state.armed = deadline.min(state.armed);
            shard.expiry.notify_one();
        }
        let touched = std::mem::take(&mut state.touched);
        let news = std::mem::take(&mut state.news);
        drop(state);
        for connection in touched {
            connection.flush();
        }
        self.witness.report(news);
        outcome
    }

    /// Looks at every claimed lock, a few at a time, so that no shard is held up for long.
    pub(crate) fn look_at_locks(&self, mut look: impl FnMut(&LockView<'_>, Timestamp)) {
        /// How many locks are looked at before others have a turn.
        const LOCKS_PER_TURN: usize = 128;

        for shard in &self.all {
            let mut position = Some(0);
            while let Some(from) = position.take() {
                let state = shard.state.lock();
                let now = self.clock.now();
                for (at, lock) in state.engine.locks_from(from).take(LOCKS_PER_TURN) {
                    look(&lock, now);
                    position = Some(at + 1);
                }
            }
        }
    }

    /// Waits until every input is over that is being taken in. Those that follow see what was written before this.
    pub(crate) fn pass_through(&self) {
        for shard in &self.all {
            drop(shard.state.lock());
        }
    }

    /// How many locks are claimed, and by how many sessions.
    pub(crate) fn counts(&self) -> (usize, usize) {
        self.all.iter().fold((0, 0), |(locks, sessions), shard| {
            let state = shard.state.lock();
            (locks + state.engine.lock_count(), sessions + state.engine.session_count())
        })
    }

    /// The shard that knows the lock of this name.
    pub(crate) fn shard_of(&self, name: LockNameRef<'_>) -> usize {
        let hash = self.hasher.hash_one(name.as_str());
        usize::try_from(hash % self.count() as u64).expect("a remainder is smaller than the count")
    }
}

impl Shard {
    fn new(tokens: Arc<TokenSequence>, grants_from: Timestamp, numbering: Numbering) -> Self {
        let state = State {
            engine: LockEngine::new(tokens, RandomState::new()).granting_from(grants_from),
            effects: Effects::new(),
            connections: Vec::new(),
            touched: Vec::new(),
            expired: VecDeque::new(),
            armed: Timestamp::MAX,
            news: News::None,
            numbering,
        };
        Self { state: Mutex::new(state), expiry: Notify::new() }
    }
}

impl Numbering {
    /// A number that no other session of this server has or will have.
    pub(crate) const fn of(self, session: SessionId) -> u64 {
        session.serial().saturating_mul(self.shards).saturating_add(self.shard)
    }
}

impl Turn<'_> {
    /// Lets what is due happen, and tells whom it concerns.
    pub(crate) fn settle(&mut self) {
        self.state.engine.tick(self.now, &mut self.state.effects);
        self.state.route(self.wall, self.witness);
    }
}

impl State {
    /// The connection of a living session.
    pub(crate) fn connection(&self, session: SessionId) -> Option<&Arc<Connection>> {
        self.connections.get(session.index())?.as_ref()
    }

    /// Carries each effect to the outbox of its session's connection.
    fn route(&mut self, wall: SystemTime, witness: &Witness) {
        let Self { effects, connections, touched, expired, news, numbering, .. } = self;
        for effect in effects.drain() {
            let place = &mut connections[effect.session().index()];
            if let Some(connection) = place {
                *news = news.and(witness.see(wall, &effect, connection, *numbering));
            }
            let connection = match effect {
                Effect::Granted { token, .. } => push(place.as_ref(), Reply::Acquired(token)),
                Effect::Queued { .. } => push(place.as_ref(), Reply::Waiting),
                Effect::Confirmed { standing, .. } => push(place.as_ref(), reply(standing)),
                Effect::Released { reason: ReleaseReason::Expired, .. }
                | Effect::Withdrawn { reason: ReleaseReason::Expired, .. } => {
                    expired.extend(end(place, ReleaseReason::Expired));
                    None
                }
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
