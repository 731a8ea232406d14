//! What one input of the engine costs, beside how many sessions it has.
//!
//! Every bench keeps its engine in a steady state: what an operation takes away, the preparation of the next sample
//! puts back, outside the measured time. One sample is many operations, and the figure is that of one. Names have 30
//! bytes, the hasher is the standard library's, sessions are met in random order, and clearing the effects is part of
//! each operation.

use std::cell::RefCell;
use std::hash::RandomState;
use std::sync::Arc;
use std::time::Duration;

use divan::Bencher;
use monolock_core::{
    Acquire, Effects, Lease, LockEngine, LockName, LockNameRef, ReleaseReason, SessionId, Timestamp, TokenSequence,
};

const SESSIONS: [usize; 3] = [10, 1_000, 1_000_000];

/// Operations in one sample, where a sample has to be prepared.
const PREPARED: u32 = 128;

fn main() {
    divan::main();
}

#[divan::bench(args = SESSIONS, sample_size = 1024, sample_count = 1000)]
fn heartbeat(bencher: Bencher<'_, '_>, sessions: usize) {
    let mut world = World::holding(sessions);
    let mut order = world.shuffled().into_iter().cycle();
    bencher.bench_local(|| world.heartbeat(order.next().expect("the order is endless")));
}

#[divan::bench(args = SESSIONS, sample_size = 256, sample_count = 1000)]
fn acquire_and_release_a_free_lock(bencher: Bencher<'_, '_>, sessions: usize) {
    let mut world = World::holding(sessions);
    let names: Vec<_> = (0..1000).map(|number| name(SESSIONS[2] + number)).collect();
    let mut names = names.iter().cycle();
    bencher.bench_local(|| {
        let session = world.acquire(names.next().expect("the names are endless").as_name_ref(), LONG);
        world.release(session);
    });
}

#[divan::bench(args = SESSIONS, sample_size = 256, sample_count = 1000)]
fn join_and_leave_a_queue(bencher: Bencher<'_, '_>, sessions: usize) {
    let mut world = World::queued(sessions);
    let one = name(0);
    bencher.bench_local(|| {
        let session = world.acquire(one.as_name_ref(), LONG);
        world.release(session);
    });
}

#[divan::bench(args = SESSIONS, sample_size = PREPARED, sample_count = 1000)]
fn promote_the_next(bencher: Bencher<'_, '_>, sessions: usize) {
    let world = RefCell::new(World::queued(sessions));
    let one = name(0);
    let mut served = 0;
    bencher
        .with_inputs(|| {
            let mut world = world.borrow_mut();
            world.join(one.as_name_ref());
            // The queue is in the order of arrival, and so is this list.
            served += 1;
            world.sessions[served - 1]
        })
        .bench_local_values(|holder| world.borrow_mut().release(holder));
}

/// Waiters leave in the order in which they came, every third, so the processor sees them coming.
#[divan::bench(args = SESSIONS, sample_size = PREPARED, sample_count = 1000)]
fn cancel_in_mid_queue(bencher: Bencher<'_, '_>, sessions: usize) {
    let world = RefCell::new(World::queued(sessions));
    let one = name(0);
    let mut place = 1;
    bencher
        .with_inputs(|| {
            let mut world = world.borrow_mut();
            world.join(one.as_name_ref());
            place = if place + 3 < world.sessions.len() { place + 3 } else { 1 };
            let last = world.sessions.pop().expect("the new one is there");
            std::mem::replace(&mut world.sessions[place], last)
        })
        .bench_local_values(|waiter| world.borrow_mut().release(waiter));
}

/// Whichever waiter leaves, nobody has looked at it for long: all of its memory and of its neighbours' has to be
/// fetched.
#[divan::bench(args = SESSIONS, sample_size = PREPARED, sample_count = 1000)]
fn cancel_in_mid_queue_at_random(bencher: Bencher<'_, '_>, sessions: usize) {
    let world = RefCell::new(World::queued(sessions));
    let one = name(0);
    bencher
        .with_inputs(|| {
            let mut world = world.borrow_mut();
            world.join(one.as_name_ref());
            world.pick_one()
        })
        .bench_local_values(|waiter| world.borrow_mut().release(waiter));
}

#[divan::bench(args = SESSIONS, sample_size = 1024, sample_count = 1000)]
fn tick_with_nothing_due(bencher: Bencher<'_, '_>, sessions: usize) {
    let mut world = World::holding(sessions);
    bencher.bench_local(|| world.tick(Duration::from_nanos(1)));
}

#[divan::bench(args = SESSIONS, sample_size = PREPARED, sample_count = 1000)]
fn expire_one(bencher: Bencher<'_, '_>, sessions: usize) {
    let world = RefCell::new(World::expiring_in_turn(sessions));
    bencher
        .with_inputs(|| world.borrow_mut().hold_one_more())
        .bench_local_values(|()| world.borrow_mut().tick(BETWEEN_DEADLINES));
}

/// So long that nothing expires while it is measured.
const LONG: Lease = Lease::MAX;

const BETWEEN_DEADLINES: Duration = Duration::from_millis(2);

struct World {
    engine: LockEngine<RandomState>,
    effects: Effects,
    now: Timestamp,
    sessions: Vec<SessionId>,
    random: u64,
    claims: usize,
}

impl World {
    fn new() -> Self {
        let engine = LockEngine::new(Arc::new(TokenSequence::new()), RandomState::new());
        Self { engine, effects: Effects::new(), now: Timestamp::ORIGIN, sessions: Vec::new(), random: 1, claims: 0 }
    }

    /// Each session holds its own lock.
    fn holding(sessions: usize) -> Self {
        let mut world = Self::new();
        (0..sessions).for_each(|number| world.join(name(number).as_name_ref()));
        world
    }

    /// One session holds the lock for which all others wait.
    fn queued(sessions: usize) -> Self {
        let mut world = Self::new();
        (0..=sessions).for_each(|_| world.join(name(0).as_name_ref()));
        world
    }

    /// Each session holds its own lock, and one by one their leases are out.
    fn expiring_in_turn(sessions: usize) -> Self {
        let mut world = Self::new();
        (0..sessions).for_each(|_| world.hold_one_more());
        world
    }

    fn hold_one_more(&mut self) {
        self.claims += 1;
        let claims = u64::try_from(self.claims).expect("it is few millions");
        let deadline = Timestamp::from_millis(2 * claims);
        let lease = Lease::try_from(deadline.since(self.now)).expect("deadlines are whole milliseconds");
        self.acquire(name(self.claims).as_name_ref(), lease);
    }

    fn acquire(&mut self, name: LockNameRef<'_>, lease: Lease) -> SessionId {
        let session = self.engine.acquire(self.now, Acquire { name, lease }, &mut self.effects);
        self.effects.clear();
        session.expect("the engine is open")
    }

    fn join(&mut self, name: LockNameRef<'_>) {
        let session = self.acquire(name, LONG);
        self.sessions.push(session);
    }

    fn heartbeat(&mut self, session: SessionId) {
        self.engine.heartbeat(self.now, session, &mut self.effects).expect("the session lives");
        self.effects.clear();
    }

    fn release(&mut self, session: SessionId) {
        self.engine.release(self.now, session, ReleaseReason::Graceful, &mut self.effects).expect("the session lives");
        self.effects.clear();
    }

    fn tick(&mut self, after: Duration) {
        self.now = self.now.saturating_add(after);
        self.engine.tick(self.now, &mut self.effects);
        self.effects.clear();
    }

    /// Any session but the first, which holds the lock; it is forgotten here.
    fn pick_one(&mut self) -> SessionId {
        let at = 1 + self.below(self.sessions.len() - 1);
        self.sessions.swap_remove(at)
    }

    fn shuffled(&mut self) -> Vec<SessionId> {
        let mut order = self.sessions.clone();
        (1..order.len()).rev().for_each(|at| order.swap(at, self.below(at + 1)));
        order
    }

    fn below(&mut self, end: usize) -> usize {
        // Knuth's MMIX generator; its upper bits are the good ones.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.random >> 33).expect("31 bits") % end
    }
}

fn name(number: usize) -> LockName {
    LockName::new(&format!("{number:030}")).expect("it has 30 bytes")
}
