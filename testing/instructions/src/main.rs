//! Operations of monolock-core, to be run under a tool that counts instructions: `cargo xtask instructions`.
//!
//! Called with a case and a number it gets ready for [`MOST`] operations, does so many of them, and ends without
//! clearing up. So two runs with different numbers differ by the operations alone, and whatever else the process does
//! cancels out. Nothing depends on a clock, on chance or on the system: the hasher has fixed keys.

use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;

use monolock_core::wire::{ClientFrame, Phase, ServerFrame, decode_client, decode_server};
use monolock_core::{
    Acquire, Effects, Lease, LockEngine, LockName, LockNameRef, ReleaseReason, SessionId, Timestamp, Token,
    TokenSequence,
};

/// The most operations of a run, for which every run gets ready.
const MOST: usize = 20_000;

type Case = fn(usize);

const CASES: &[(&str, Case)] = &[
    ("acquire-and-release-a-free-lock", acquire_and_release),
    ("heartbeat", heartbeat),
    ("join-and-leave-a-queue", join_and_leave),
    ("promote-the-next", promote),
    ("cancel-in-mid-queue", cancel),
    ("expire-one-of-many", expire),
    ("decode-acquire", decode_acquire),
    ("decode-heartbeat", decode_heartbeat),
    ("decode-acquired", decode_acquired),
    ("encode-acquire", encode_acquire),
    ("encode-acquired", encode_acquired),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => {
            for (name, _) in CASES {
                println!("{name}");
            }
            ExitCode::SUCCESS
        }
        [name, count] => {
            let case = CASES.iter().find(|(known, _)| *known == name);
            match (case, count.parse()) {
                (Some((_, case)), Ok(count)) if count <= MOST => {
                    case(count);
                    ExitCode::SUCCESS
                }
                _ => usage(),
            }
        }
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("monolock-instructions [CASE COUNT]: without arguments the cases are listed; a count is at most {MOST}");
    ExitCode::FAILURE
}

const LONG: Lease = Lease::MAX;

struct World {
    engine: LockEngine<BuildHasherDefault<DefaultHasher>>,
    effects: Effects,
    now: Timestamp,
}

impl World {
    fn new() -> Self {
        let engine = LockEngine::new(Arc::new(TokenSequence::new()), BuildHasherDefault::default());
        Self { engine, effects: Effects::new(), now: Timestamp::ORIGIN }
    }

    fn acquire(&mut self, name: LockNameRef<'_>, lease: Lease) -> SessionId {
        let session = self.engine.acquire(self.now, Acquire { name, lease }, &mut self.effects);
        self.effects.clear();
        session.expect("the engine is open")
    }

    fn release(&mut self, session: SessionId) {
        self.engine.release(self.now, session, ReleaseReason::Graceful, &mut self.effects).expect("the session lives");
        self.effects.clear();
    }

    /// Sessions that all want one lock, in the order of their queue.
    fn queue(&mut self, sessions: usize) -> Vec<SessionId> {
        let name = name(0);
        (0..sessions).map(|_| self.acquire(name.as_name_ref(), LONG)).collect()
    }

    /// Clearing up would count, and differ.
    fn leave(self) {
        std::mem::forget(self);
    }
}

fn name(number: usize) -> LockName {
    LockName::new(&format!("{number:030}")).expect("it has 30 bytes")
}

fn acquire_and_release(count: usize) {
    let mut world = World::new();
    let names: Vec<LockName> = (0..1000).map(name).collect();
    for name in names.iter().cycle().take(count) {
        let session = world.acquire(black_box(name.as_name_ref()), LONG);
        world.release(session);
    }
    std::mem::forget(names);
    world.leave();
}

fn heartbeat(count: usize) {
    let mut world = World::new();
    let sessions: Vec<SessionId> = (0..1000).map(|number| world.acquire(name(number).as_name_ref(), LONG)).collect();
    for session in sessions.iter().cycle().take(count) {
        world.engine.heartbeat(world.now, black_box(*session), &mut world.effects).expect("the session lives");
        world.effects.clear();
    }
    world.leave();
}

fn join_and_leave(count: usize) {
    let mut world = World::new();
    world.queue(1000);
    let name = name(0);
    for _ in 0..count {
        let session = world.acquire(black_box(name.as_name_ref()), LONG);
        world.release(session);
    }
    world.leave();
}

fn promote(count: usize) {
    let mut world = World::new();
    let queue = world.queue(MOST + 1);
    for holder in queue.iter().take(count) {
        world.release(black_box(*holder));
    }
    world.leave();
}

fn cancel(count: usize) {
    let mut world = World::new();
    let queue = world.queue(2 * MOST + 1);
    // Every second, so that those before and behind it stay.
    for waiter in queue.iter().skip(1).step_by(2).take(count) {
        world.release(black_box(*waiter));
    }
    world.leave();
}

fn expire(count: usize) {
    let mut world = World::new();
    let short = Lease::from_millis(1000).expect("1000 is not 0");
    for number in 0..MOST {
        let lease = if number < count { short } else { LONG };
        world.acquire(name(number).as_name_ref(), lease);
    }
    world.engine.tick(black_box(Timestamp::from_millis(1000)), &mut world.effects);
    world.leave();
}

fn decode_acquire(count: usize) {
    let mut bytes = Vec::new();
    ClientFrame::Acquire { lease: LONG, name: name(7).as_name_ref() }.encode(&mut bytes);
    for _ in 0..count {
        let _ = black_box(decode_client(Phase::First, black_box(&bytes)));
    }
}

fn decode_heartbeat(count: usize) {
    let mut bytes = Vec::new();
    ClientFrame::Heartbeat.encode(&mut bytes);
    for _ in 0..count {
        let _ = black_box(decode_client(Phase::Later, black_box(&bytes)));
    }
}

fn decode_acquired(count: usize) {
    let mut bytes = Vec::new();
    ServerFrame::Acquired { token: token() }.encode(&mut bytes);
    for _ in 0..count {
        let _ = black_box(decode_server(black_box(&bytes)));
    }
}

fn encode_acquire(count: usize) {
    let (name, mut bytes) = (name(7), Vec::with_capacity(64));
    for _ in 0..count {
        bytes.clear();
        black_box(ClientFrame::Acquire { lease: LONG, name: name.as_name_ref() }).encode(black_box(&mut bytes));
    }
}

fn encode_acquired(count: usize) {
    let mut bytes = Vec::with_capacity(64);
    for _ in 0..count {
        bytes.clear();
        black_box(ServerFrame::Acquired { token: token() }).encode(black_box(&mut bytes));
    }
}

fn token() -> Token {
    Token::new(1 << 50).expect("it is not 0")
}
