//! What a session costs, and that nothing of it stays.
//!
//! A binary of its own with one test, because the counting allocator counts for all threads.
#![expect(clippy::unwrap_used, reason = "a test that unwraps fails where it stands")]

use std::alloc::System;
use std::hash::RandomState;
use std::sync::Arc;

use monolock_core::{
    Acquire, Effects, Lease, LockEngine, LockNameRef, ReleaseReason, SessionId, Timestamp, TokenSequence,
};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const SESSIONS: usize = 1_000_000;

/// What a session may cost, beside the name of its lock.
const BYTES_A_SESSION: usize = 128;

/// What an engine may keep that had a million sessions and has none.
const BYTES_KEPT: usize = 256 << 10;

const NAME_BYTES: usize = 30;

/// A name is an `Arc<str>`: two counts, the text, and the room to the next multiple of their alignment.
const BYTES_A_NAME: usize = (16 + NAME_BYTES).next_multiple_of(8);

const ONE_DAY: u32 = 86_400_000;

#[test]
fn a_session_costs_at_most_128_bytes_and_leaves_nothing() {
    let own_locks = measure("each holding its own lock", |number| format!("{number:0NAME_BYTES$}"));
    assert!(own_locks <= BYTES_A_SESSION + BYTES_A_NAME, "{own_locks} bytes, the name's {BYTES_A_NAME} included");
    let one_queue = measure("all waiting for one lock", |_| "x".repeat(NAME_BYTES));
    assert!(one_queue <= BYTES_A_SESSION, "{one_queue} bytes");
}

/// The bytes that one of a million sessions takes, rounded up.
fn measure(what: &str, name: impl Fn(usize) -> String) -> usize {
    let mut sessions: Vec<SessionId> = Vec::with_capacity(SESSIONS);
    let mut effects = Effects::new();
    let mut engine = LockEngine::new(Arc::new(TokenSequence::new()), RandomState::new());
    let lease = Lease::from_millis(ONE_DAY).unwrap();
    let empty = heap();
    for number in 0..SESSIONS {
        let name = name(number);
        let request = Acquire { name: LockNameRef::new(&name).unwrap(), lease };
        sessions.push(engine.acquire(Timestamp::ORIGIN, request, &mut effects).unwrap());
        effects.clear();
    }
    let bytes = (heap() - empty).div_ceil(SESSIONS);
    // Leave in an order that empties no page before its time: every 7919th, then the next of each.
    for first in 0..7919 {
        for &session in sessions.iter().skip(first).step_by(7919) {
            engine.release(Timestamp::ORIGIN, session, ReleaseReason::Graceful, &mut effects).unwrap();
            effects.clear();
        }
    }
    assert_eq!(engine.session_count(), 0);
    assert_eq!(engine.next_deadline(), None, "a day-long lease that is released leaves nothing behind");
    let kept = heap().saturating_sub(empty);
    println!("{what}: {bytes} bytes a session, {kept} bytes kept in all");
    assert!(kept <= BYTES_KEPT, "{kept} bytes are kept for nobody");
    bytes
}

fn heap() -> usize {
    let stats = HEAP.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}
