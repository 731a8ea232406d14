//! Many clients at once, each in its own thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::client::{Client, HEARTBEAT, Heard, LONG, Leave};
use crate::server::{TestServer, dice};

const CLIENTS: usize = 64;
const NAMES: usize = 8;
const ROUNDS: usize = 60;

/// A lock, from the frames' point of view.
#[derive(Debug, Default)]
struct Seen {
    /// The token of the client that believes in it; 0 for none.
    believed: AtomicU64,
    largest: AtomicU64,
}

impl Seen {
    fn believe(&self, token: u64) {
        assert_eq!(self.believed.swap(token, Ordering::SeqCst), 0, "two clients believe at once");
        assert!(self.largest.swap(token, Ordering::SeqCst) < token, "tokens of a lock rise");
    }

    fn let_go(&self, token: u64) {
        assert_eq!(self.believed.swap(0, Ordering::SeqCst), token);
    }
}

#[test]
fn of_64_clients_that_come_and_go_at_random_never_two_hold_one_lock_and_each_is_served() {
    let mut dice = dice();
    let server = TestServer::start();
    let locks: [Seen; NAMES] = Default::default();
    thread::scope(|threads| {
        for _ in 0..CLIENTS {
            let mut dice = dice.fork();
            let (server, locks) = (&server, &locks);
            threads.spawn(move || {
                for round in 0..ROUNDS {
                    let name = dice.usize(..NAMES);
                    // In its last round each waits until it is served.
                    let is_patient = round + 1 == ROUNDS || dice.bool();
                    turn(server.claim(format!("lock {name}"), LONG), &locks[name], is_patient, &mut dice);
                }
            });
        }
    });
    server.await_connections(0);
}

/// One claim, from its `ACQUIRE` to its end.
fn turn(mut client: Client, lock: &Seen, is_patient: bool, dice: &mut fastrand::Rng) {
    let mut heartbeats = dice.usize(..4);
    (0..heartbeats).for_each(|_| client.send(&HEARTBEAT));
    let token = loop {
        match client.hear() {
            Heard::Acquired(token) => break token,
            Heard::Waiting if is_patient => {}
            Heard::Waiting => return leave(client, dice),
            other @ (Heard::Error(..) | Heard::End | Heard::Reset) => panic!("{other:?}"),
        }
    };
    lock.believe(token);
    heartbeats = dice.usize(1..4);
    (0..heartbeats).for_each(|_| client.send(&HEARTBEAT));
    (0..heartbeats).for_each(|_| assert_eq!(client.acquired(), token));
    lock.let_go(token);
    leave(client, dice);
}

fn leave(client: Client, dice: &mut fastrand::Rng) {
    let how = Leave::ALL[dice.usize(..3)];
    if let Some(half_closed) = client.leave(how) {
        half_closed.reset();
    }
}
