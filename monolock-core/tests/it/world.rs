//! One engine and its effects, for tests that count and compare rather than tell.

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use monolock_core::{
    Acquire, Effect, Effects, Lease, LockEngine, LockNameRef, ReleaseReason, SessionId, Standing, Timestamp, Token,
    TokenSequence, UnknownSession,
};

/// Keyed by nothing: the same story takes the same path in every run.
pub(crate) type Engine = LockEngine<BuildHasherDefault<DefaultHasher>>;

pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) effects: Effects,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::sharing(Arc::new(TokenSequence::new()))
    }

    pub(crate) fn sharing(tokens: Arc<TokenSequence>) -> Self {
        Self { engine: Engine::new(tokens, BuildHasherDefault::default()), effects: Effects::new() }
    }

    pub(crate) fn acquire(&mut self, now: Timestamp, name: &str, lease: Lease) -> SessionId {
        let request = Acquire { name: LockNameRef::new(name).unwrap(), lease };
        self.engine.acquire(now, request, &mut self.effects).expect("the engine is open")
    }

    pub(crate) fn heartbeat(&mut self, now: Timestamp, session: SessionId) -> Result<(), UnknownSession> {
        self.engine.heartbeat(now, session, &mut self.effects)
    }

    pub(crate) fn release(&mut self, now: Timestamp, session: SessionId) -> Result<(), UnknownSession> {
        self.engine.release(now, session, ReleaseReason::Graceful, &mut self.effects)
    }

    pub(crate) fn tick(&mut self, now: Timestamp) {
        self.engine.tick(now, &mut self.effects);
    }

    /// What has happened since the last question.
    pub(crate) fn effects(&mut self) -> Vec<Effect> {
        self.effects.drain().collect()
    }

    pub(crate) fn holder(&self, name: &str) -> Option<SessionId> {
        self.engine.lock(LockNameRef::new(name).unwrap())?.holder().map(|holder| holder.id())
    }

    pub(crate) fn queue(&self, name: &str) -> Vec<SessionId> {
        let lock = self.engine.lock(LockNameRef::new(name).unwrap());
        lock.map_or(Vec::new(), |lock| lock.waiters().map(|waiter| waiter.id()).collect())
    }

    pub(crate) fn token(&self, session: SessionId) -> Option<Token> {
        match self.engine.session(session)?.standing() {
            Standing::Waiting => None,
            Standing::Holding(token) => Some(token),
        }
    }
}

pub(crate) fn ms(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

pub(crate) fn lease(lease_ms: u32) -> Lease {
    Lease::from_millis(lease_ms).unwrap()
}

pub(crate) fn granted(effects: &[Effect]) -> Vec<SessionId> {
    let granted = effects.iter().filter(|effect| matches!(effect, Effect::Granted { .. }));
    granted.map(Effect::session).collect()
}
