//! A model of the server's queues, naive on purpose, that every input and effect of the engine is held against.
//!
//! It knows who arrived when, who was heard when, and what the engine was asked; from that alone it says which effect may
//! come next. It keeps one plain queue a lock.

use std::collections::VecDeque;
use std::hash::BuildHasher;

use monolock_core::{Effect, LockEngine, ReleaseReason, SessionId, Standing, Timestamp, Token};

use crate::oracle::{Breach, Oracle};

/// The model of one server's life.
#[derive(Debug, Default)]
pub struct Ledger {
    locks: Vec<Queue>,
    /// By serial, from 1.
    sessions: Vec<Entry>,
    live: Vec<usize>,
    last_token: Option<Token>,
    /// What the engine is in the middle of.
    asked: Asked,
}

/// What an engine was asked to do by the input that its effects come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asked {
    /// Nothing but to look at the clock, or to take something in.
    #[default]
    Nothing,
    /// To end this session.
    End(SessionId, ReleaseReason),
    /// To end all sessions.
    Close,
}

#[derive(Debug, Default)]
struct Queue {
    holder: Option<usize>,
    waiters: VecDeque<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    lock: usize,
    lease: u64,
    heard: u64,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Waiting,
    Holding(Token),
    Ended,
}

fn breach<T>(oracle: Oracle, what: impl Into<String>) -> Result<T, Breach> {
    Err((oracle, what.into()))
}

impl Ledger {
    /// A server without sessions. Tokens are to be larger than `last_token`.
    pub fn new(locks: usize, last_token: Option<Token>) -> Self {
        Self { locks: (0..locks).map(|_| Queue::default()).collect(), last_token, ..Self::default() }
    }

    /// The last token that was granted.
    pub const fn last_token(&self) -> Option<Token> {
        self.last_token
    }

    /// How many sessions live.
    pub fn session_count(&self) -> usize {
        self.live.len()
    }

    /// Whether this session lives.
    pub fn lives(&self, session: SessionId) -> bool {
        self.find(session).is_ok()
    }

    /// Who holds a lock, by serial.
    pub fn holder(&self, lock: usize) -> Option<u64> {
        self.locks[lock].holder.map(|at| at as u64 + 1)
    }

    /// An input begins.
    pub fn asks(&mut self, asked: Asked) {
        self.asked = asked;
    }

    /// A claim has arrived; its effects are still to come.
    ///
    /// # Errors
    /// A breach of [`Oracle::Order`] if serials do not rise one by one.
    pub fn arrives(&mut self, now: Timestamp, session: SessionId, lock: usize, lease_ns: u64) -> Result<(), Breach> {
        let at = self.sessions.len();
        if session.serial() != at as u64 + 1 {
            return breach(Oracle::Order, format!("session {} arrived as number {}", session.serial(), at + 1));
        }
        self.sessions.push(Entry { lock, lease: lease_ns, heard: now.as_nanos(), place: Place::Waiting });
        self.live.push(at);
        self.locks[lock].waiters.push_back(at);
        Ok(())
    }

    /// A heartbeat was taken in, or refused because the session had ended.
    ///
    /// # Errors
    /// A breach of [`Oracle::Lease`] if it should have been the other way.
    pub fn heartbeat(&mut self, now: Timestamp, session: SessionId, taken_in: bool) -> Result<(), Breach> {
        match (self.find(session), taken_in) {
            (Ok(at), true) => self.sessions[at].heard = now.as_nanos(),
            (Err(_), false) => {}
            (Ok(_), false) => return breach(Oracle::Lease, "a heartbeat of a living session was refused"),
            (Err(_), true) => return breach(Oracle::Lease, "a heartbeat of an ended session was taken in"),
        }
        Ok(())
    }

    /// An effect came out.
    ///
    /// # Errors
    /// The breach, if this is not what has to come.
    pub fn effect(&mut self, now: Timestamp, effect: &Effect) -> Result<(), Breach> {
        match effect {
            Effect::Granted { session, token, .. } => self.granted(now, *session, *token),
            Effect::Queued { session, ahead, .. } => self.queued(*session, *ahead),
            Effect::Confirmed { session, standing } => self.confirmed(*session, *standing),
            Effect::Released { session, token, reason, .. } => {
                let at = self.ends(now, *session, *reason)?;
                let Entry { lock, place, .. } = self.sessions[at];
                if place != Place::Holding(*token) || self.locks[lock].holder != Some(at) {
                    return breach(Oracle::Pairing, format!("{token:?} was released and not held"));
                }
                self.locks[lock].holder = None;
                self.forget(at);
                Ok(())
            }
            Effect::Withdrawn { session, reason, .. } => {
                let at = self.ends(now, *session, *reason)?;
                let Entry { lock, place, .. } = self.sessions[at];
                if place != Place::Waiting {
                    return breach(Oracle::Pairing, "a session was withdrawn that does not wait");
                }
                self.locks[lock].waiters.retain(|&waiter| waiter != at);
                self.forget(at);
                Ok(())
            }
        }
    }

    /// An input has been taken in whole. `may_grant`: no grace is on, and there are tokens.
    ///
    /// # Errors
    /// What should have happened by now and has not.
    pub fn settled<S: BuildHasher>(
        &mut self,
        now: Timestamp,
        may_grant: bool,
        engine: &LockEngine<S>,
    ) -> Result<(), Breach> {
        self.asked = Asked::Nothing;
        let mut earliest = u64::MAX;
        for &at in &self.live {
            let deadline = self.sessions[at].deadline();
            if deadline <= now.as_nanos() {
                return breach(Oracle::Lease, format!("session {} outlived its lease", at + 1));
            }
            earliest = earliest.min(deadline);
        }
        if may_grant && self.locks.iter().any(|lock| lock.holder.is_none() && !lock.waiters.is_empty()) {
            return breach(Oracle::Pairing, "a free lock has a queue");
        }
        let claimed = self.locks.iter().filter(|lock| lock.holder.is_some() || !lock.waiters.is_empty()).count();
        if engine.session_count() != self.live.len() || engine.lock_count() != claimed {
            return breach(
                Oracle::Idle,
                format!("the engine has {} sessions and {} locks", engine.session_count(), engine.lock_count()),
            );
        }
        match engine.next_deadline() {
            Some(next) if next <= now => breach(Oracle::Progress, "the next deadline is past already"),
            Some(next) if next.as_nanos() > earliest => breach(Oracle::Lease, "the next deadline comes too late"),
            None if !self.live.is_empty() => breach(Oracle::Lease, "sessions live and there is no deadline"),
            Some(_) | None => Ok(()),
        }
    }

    fn granted(&mut self, now: Timestamp, session: SessionId, token: Token) -> Result<(), Breach> {
        let at = self.find(session)?;
        let lock = self.sessions[at].lock;
        let queue = &mut self.locks[lock];
        if queue.holder.is_some() {
            return breach(Oracle::Pairing, format!("{token:?} was granted while the lock was held"));
        }
        if queue.waiters.front() != Some(&at) {
            return breach(Oracle::Order, format!("{token:?} was granted past the head of the queue"));
        }
        if self.sessions[at].deadline() <= now.as_nanos() {
            return breach(Oracle::Lease, format!("{token:?} was granted to a session whose lease is out"));
        }
        if self.last_token.is_some_and(|last| token <= last) {
            return breach(Oracle::Tokens, format!("{token:?} came after {:?}", self.last_token));
        }
        queue.waiters.pop_front();
        queue.holder = Some(at);
        self.last_token = Some(token);
        self.sessions[at].place = Place::Holding(token);
        Ok(())
    }

    fn queued(&self, session: SessionId, ahead: usize) -> Result<(), Breach> {
        let at = self.find(session)?;
        let queue = &self.locks[self.sessions[at].lock];
        let before = queue.waiters.len() - 1 + usize::from(queue.holder.is_some());
        if queue.waiters.back() != Some(&at) || ahead != before {
            return breach(Oracle::Order, format!("a claim was queued behind {ahead}, and {before} are ahead"));
        }
        Ok(())
    }

    fn confirmed(&self, session: SessionId, standing: Standing) -> Result<(), Breach> {
        let at = self.find(session)?;
        match (self.sessions[at].place, standing) {
            (Place::Waiting, Standing::Waiting) => Ok(()),
            (Place::Holding(token), Standing::Holding(said)) if token == said => Ok(()),
            (place, _) => breach(Oracle::Pairing, format!("{standing:?} was confirmed to a session that is {place:?}")),
        }
    }

    /// A session that may end now, and for this reason.
    fn ends(&self, now: Timestamp, session: SessionId, reason: ReleaseReason) -> Result<usize, Breach> {
        let at = self.find(session)?;
        let was_asked = match self.asked {
            Asked::End(asked, why) => asked == session && why == reason,
            Asked::Close => reason == ReleaseReason::Shutdown,
            Asked::Nothing => false,
        };
        if reason == ReleaseReason::Expired {
            if now.as_nanos() < self.sessions[at].deadline() {
                return breach(Oracle::Lease, format!("session {} expired before its lease was out", at + 1));
            }
        } else if !was_asked {
            return breach(Oracle::Pairing, format!("session {} ended ({reason}) and nobody asked", at + 1));
        }
        Ok(at)
    }

    fn find(&self, session: SessionId) -> Result<usize, Breach> {
        let at = usize::try_from(session.serial()).ok().and_then(|serial| serial.checked_sub(1));
        at.filter(|&at| self.sessions.get(at).is_some_and(|entry| entry.place != Place::Ended))
            .ok_or_else(|| (Oracle::Pairing, format!("session {} has ended", session.serial())))
    }

    fn forget(&mut self, at: usize) {
        self.sessions[at].place = Place::Ended;
        self.live.retain(|&live| live != at);
    }
}

impl Entry {
    fn deadline(&self) -> u64 {
        self.heard.saturating_add(self.lease)
    }
}
