//! The model of the queues against engines that are told, or say, what is wrong.

use std::hash::RandomState;
use std::sync::Arc;
use std::time::Duration;

use monolock_core::{
    Acquire, Effect, Effects, Lease, LockEngine, LockNameRef, ReleaseReason, SessionId, Timestamp, Token, TokenSequence,
};
use monolock_sim::{Asked, Breach, Ledger, Oracle};

const LEASE: Duration = Duration::from_secs(10);

/// An engine and its model.
struct Pair {
    engine: LockEngine<RandomState>,
    ledger: Ledger,
}

impl Pair {
    fn new() -> Self {
        let engine = LockEngine::new(Arc::new(TokenSequence::new()), RandomState::new());
        Self { engine, ledger: Ledger::new(1, None) }
    }

    fn acquire(&mut self, now: Timestamp) -> (SessionId, Result<(), Breach>) {
        let mut effects = Effects::new();
        let name = LockNameRef::new("jobs").unwrap();
        let request = Acquire { name, lease: Lease::try_from(LEASE).unwrap() };
        let session = self.engine.acquire(now, request, &mut effects).unwrap();
        let lease_ns = u64::try_from(LEASE.as_nanos()).unwrap();
        let checked = self.ledger.arrives(now, session, 0, lease_ns).and_then(|()| self.heed(now, effects));
        (session, checked)
    }

    /// The engine's effects of a release, which the model has not seen.
    fn release(&mut self, now: Timestamp, session: SessionId) -> Vec<Effect> {
        let mut effects = Effects::new();
        self.engine.release(now, session, ReleaseReason::Graceful, &mut effects).unwrap();
        self.ledger.asks(Asked::End(session, ReleaseReason::Graceful));
        effects.drain().collect()
    }

    fn heed(&mut self, now: Timestamp, mut effects: Effects) -> Result<(), Breach> {
        effects.drain().try_for_each(|effect| self.ledger.effect(now, &effect))
    }
}

fn oracle(checked: Result<(), Breach>) -> Oracle {
    checked.unwrap_err().0
}

fn seconds(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

/// A holder and two waiters; the model agrees so far.
fn queue() -> (Pair, [SessionId; 3]) {
    let mut pair = Pair::new();
    let sessions = [0, 1, 2].map(|second| {
        let (session, checked) = pair.acquire(seconds(second));
        checked.unwrap();
        session
    });
    pair.ledger.settled(seconds(2), true, &pair.engine).unwrap();
    (pair, sessions)
}

#[test]
fn what_an_engine_does_is_right() {
    let (mut pair, [holder, ..]) = queue();
    for effect in pair.release(seconds(3), holder) {
        pair.ledger.effect(seconds(3), &effect).unwrap();
    }
    pair.ledger.settled(seconds(3), true, &pair.engine).unwrap();
    assert_eq!(pair.ledger.holder(0), Some(2));
}

#[test]
fn a_grant_past_the_head_of_the_queue_is_found() {
    let (mut pair, [holder, _, third]) = queue();
    let effects = pair.release(seconds(3), holder);
    pair.ledger.effect(seconds(3), &effects[0]).unwrap();
    let Effect::Granted { name, token, waited, .. } = effects[1].clone() else { panic!("a waiter is promoted") };
    let jump = Effect::Granted { session: third, name, token, waited };
    assert_eq!(oracle(pair.ledger.effect(seconds(3), &jump)), Oracle::Order);
}

#[test]
fn a_wrong_place_in_the_queue_is_found() {
    let (mut pair, _) = queue();
    let mut effects = Effects::new();
    let request = Acquire { name: LockNameRef::new("jobs").unwrap(), lease: Lease::MAX };
    let session = pair.engine.acquire(seconds(3), request, &mut effects).unwrap();
    pair.ledger.arrives(seconds(3), session, 0, u64::MAX).unwrap();
    let Some(Effect::Queued { name, .. }) = effects.drain().next() else { panic!("the lock is held") };
    assert_eq!(oracle(pair.ledger.effect(seconds(3), &Effect::Queued { session, name, ahead: 2 })), Oracle::Order);
}

#[test]
fn a_free_lock_with_a_queue_is_found() {
    let (mut pair, [holder, ..]) = queue();
    let effects = pair.release(seconds(3), holder);
    pair.ledger.effect(seconds(3), &effects[0]).unwrap();
    assert_eq!(oracle(pair.ledger.settled(seconds(3), true, &pair.engine)), Oracle::Pairing);
    pair.ledger.asks(Asked::Nothing);
    pair.ledger.settled(seconds(3), false, &pair.engine).unwrap();
}

#[test]
fn a_second_end_of_one_grant_is_found() {
    let (mut pair, [holder, ..]) = queue();
    let effects = pair.release(seconds(3), holder);
    pair.ledger.effect(seconds(3), &effects[0]).unwrap();
    assert_eq!(oracle(pair.ledger.effect(seconds(3), &effects[0])), Oracle::Pairing);
}

#[test]
fn an_end_that_nobody_asked_for_is_found() {
    let (mut pair, [holder, ..]) = queue();
    let effects = pair.release(seconds(3), holder);
    pair.ledger.asks(Asked::Nothing);
    assert_eq!(oracle(pair.ledger.effect(seconds(3), &effects[0])), Oracle::Pairing);
}

#[test]
fn a_session_that_expires_too_early_or_too_late_is_found() {
    let (mut pair, _) = queue();
    let just_before = Timestamp::from_nanos(seconds(10).as_nanos() - 1);
    let mut effects = Effects::new();
    pair.engine.tick(seconds(10), &mut effects);
    let expired = effects.drain().next().unwrap();
    assert_eq!(oracle(pair.ledger.effect(just_before, &expired)), Oracle::Lease);
    assert_eq!(oracle(pair.ledger.settled(seconds(10), true, &pair.engine)), Oracle::Lease);
}

#[test]
fn a_heartbeat_that_is_taken_in_for_the_dead_or_refused_to_the_living_is_found() {
    let (mut pair, [holder, ..]) = queue();
    assert_eq!(oracle(pair.ledger.heartbeat(seconds(3), holder, false)), Oracle::Lease);
    for effect in pair.release(seconds(3), holder) {
        pair.ledger.effect(seconds(3), &effect).unwrap();
    }
    assert_eq!(oracle(pair.ledger.heartbeat(seconds(4), holder, true)), Oracle::Lease);
}

#[test]
fn a_token_that_does_not_rise_is_found() {
    let mut pair = Pair::new();
    pair.ledger = Ledger::new(1, Token::new(1));
    let (_, checked) = pair.acquire(seconds(0));
    assert_eq!(oracle(checked), Oracle::Tokens);
}
