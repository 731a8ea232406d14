//! The engine inside another program, under a clock of the program's own.
//!
//! Two night jobs want one lock. The first hangs; when its lease is out, the second takes over with a larger fencing
//! token, and the store that both write to refuses the first one's late write.
//!
//! ```text
//! cargo run -p monolock-core --example embedded_engine
//! ```

use std::hash::RandomState;
use std::sync::Arc;
use std::time::Duration;

use monolock_core::{
    Acquire, Effect, Effects, Lease, LockEngine, LockNameRef, ReleaseReason, SessionId, Standing, Timestamp, Token,
    TokenSequence,
};

/// A program with locks of its own: the engine, the clock that stamps its inputs, and the effects to be carried out.
struct Program {
    engine: LockEngine<RandomState>,
    effects: Effects,
    now: Timestamp,
}

impl Program {
    fn new() -> Self {
        let tokens = Arc::new(TokenSequence::new());
        Self { engine: LockEngine::new(tokens, RandomState::new()), effects: Effects::new(), now: Timestamp::ORIGIN }
    }

    fn acquire(&mut self, lock: &str, lease: Duration) -> SessionId {
        let name = LockNameRef::new(lock).expect("a lock's name is 1 to 255 bytes");
        let lease = Lease::try_from(lease).expect("a lease is a whole number of milliseconds");
        let session = self.engine.acquire(self.now, Acquire { name, lease }, &mut self.effects);
        self.carry_out();
        session.expect("an open engine takes claims in")
    }

    fn heartbeat(&mut self, session: SessionId) {
        self.engine.heartbeat(self.now, session, &mut self.effects).expect("the session lives");
        self.carry_out();
    }

    fn release(&mut self, session: SessionId) {
        self.engine.release(self.now, session, ReleaseReason::Graceful, &mut self.effects).expect("the session lives");
        self.carry_out();
    }

    /// Lets the clock run; whenever the engine wants a tick on the way, it gets it.
    fn sleep(&mut self, duration: Duration) {
        let end = self.now.saturating_add(duration);
        while let Some(deadline) = self.engine.next_deadline().filter(|&deadline| deadline <= end) {
            self.now = deadline;
            self.engine.tick(deadline, &mut self.effects);
            self.carry_out();
        }
        self.now = end;
    }

    /// A server would write to sockets here.
    fn carry_out(&mut self) {
        for effect in self.effects.drain() {
            let (now, session) = (self.now, effect.session().serial());
            match effect {
                Effect::Granted { name, token, waited, .. } => {
                    println!("{now:?}: session {session} owns {name} under token {token}, after {waited:?}");
                }
                Effect::Queued { name, ahead, .. } => {
                    println!("{now:?}: session {session} waits for {name}, {ahead} ahead");
                }
                Effect::Confirmed { standing: Standing::Waiting, .. } => {
                    println!("{now:?}: session {session} still waits");
                }
                Effect::Confirmed { standing: Standing::Holding(_), .. } => {
                    println!("{now:?}: session {session} still owns");
                }
                Effect::Released { name, held, reason, .. } => {
                    println!("{now:?}: session {session} gave {name} up after {held:?}: {reason}");
                }
                Effect::Withdrawn { name, reason, .. } => {
                    println!("{now:?}: session {session} left the queue of {name}: {reason}");
                }
            }
        }
    }

    fn token(&self, session: SessionId) -> Option<Token> {
        match self.engine.session(session)?.standing() {
            Standing::Waiting => None,
            Standing::Holding(token) => Some(token),
        }
    }
}

/// What the jobs write to: it refuses any token below the largest that it saw.
#[derive(Default)]
struct Store {
    largest: Option<Token>,
}

impl Store {
    fn write(&mut self, token: Token) -> bool {
        let accepted = self.largest.is_none_or(|largest| token >= largest);
        self.largest = self.largest.max(Some(token));
        accepted
    }
}

/// Tells the story.
pub(crate) fn main() {
    let mut program = Program::new();
    let mut store = Store::default();

    let first = program.acquire("nightly-import", Duration::from_secs(10));
    let first_token = program.token(first).expect("the lock was free");
    let second = program.acquire("nightly-import", Duration::from_secs(30));
    assert!(program.token(second).is_none(), "the lock has one owner");
    assert!(store.write(first_token));

    // Both are well, then the first one hangs.
    program.sleep(Duration::from_secs(8));
    program.heartbeat(first);
    program.heartbeat(second);
    program.sleep(Duration::from_secs(20));

    let second_token = program.token(second).expect("the first one's lease is out");
    assert!(program.engine.session(first).is_none());
    assert!(second_token > first_token, "tokens rise");
    assert!(store.write(second_token));
    assert!(!store.write(first_token), "the store refuses the write of a past owner");

    program.release(second);
    assert_eq!(program.engine.lock_count(), 0, "a name that nobody claims costs nothing");
    assert_eq!(program.engine.next_deadline(), None, "and there is nothing to wake up for");
}
