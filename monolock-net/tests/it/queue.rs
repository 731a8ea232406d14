//! The queue: in order, whoever leaves it, and never beside a free lock.

use std::thread;

use crate::client::{Client, HEARTBEAT, Heard, LONG, Leave};
use crate::server::{TestServer, crowd, dice};

#[test]
fn b16_a_queue_of_1000_of_which_500_are_killed_keeps_its_order() {
    const WAITERS: usize = 1000;
    let _crowd = crowd(WAITERS);
    let mut dice = dice();
    let server = TestServer::start();
    let (holder, mut last) = server.holder("jobs", LONG);
    let mut waiters: Vec<_> = (0..WAITERS).map(|_| Some(server.waiter("jobs", LONG))).collect();
    let mut places: Vec<_> = (0..WAITERS).collect();
    dice.shuffle(&mut places);
    let mut half_closed = Vec::new();
    for &place in &places[..WAITERS / 2] {
        let waiter = waiters[place].take().unwrap();
        half_closed.extend(waiter.leave(Leave::ALL[dice.usize(..3)]));
    }
    server.await_connections(1 + WAITERS / 2);
    let mut leaving = holder;
    for mut next in waiters.into_iter().flatten() {
        next.hears_nothing();
        half_closed.extend(leaving.leave(Leave::ALL[dice.usize(..3)]));
        let token = next.acquired();
        assert!(last < token);
        last = token;
        leaving = next;
    }
    leaving.still_holds(last);
    half_closed.iter_mut().for_each(Client::ended);
}

/// Queues are let go from their head on by two threads at once, so that each session leaves while it is being promoted
/// by the one before it.
#[test]
fn b18_a_waiter_that_leaves_in_the_moment_of_its_promotion_passes_the_lock_on() {
    const ROUNDS: usize = 500;
    const LEAVING: usize = 200;
    let _crowd = crowd(LEAVING);
    let mut dice = dice();
    let server = TestServer::start();
    let mut last = 0;
    for _ in 0..ROUNDS {
        let mut leaving: Vec<_> = (0..LEAVING).map(|_| server.claim("jobs", LONG)).collect();
        let mut grants = 0;
        for client in &mut leaving {
            match client.hear() {
                Heard::Waiting => {}
                Heard::Acquired(token) => {
                    assert!(last < token);
                    last = token;
                    grants += 1;
                }
                other @ (Heard::Error(..) | Heard::End | Heard::Reset) => panic!("{other:?}"),
            }
        }
        assert_eq!(grants, 1);
        let mut observer = server.waiter("jobs", LONG);
        // In the order of the queue, more or less: two threads, and the server has two more.
        let (mut even, mut odd) = (Vec::new(), Vec::new());
        for (place, client) in leaving.into_iter().enumerate() {
            if place % 2 == 0 { even.push(client) } else { odd.push(client) }
        }
        let by_protocol_error = dice.bool();
        let other = thread::spawn(move || leave_all(odd, by_protocol_error));
        leave_all(even, false);
        other.join().unwrap();
        let token = observer.acquired();
        assert!(last < token);
        last = token;
        observer.still_holds(token);
        observer.reset();
        server.await_connections(0);
    }
}

fn leave_all(clients: Vec<Client>, by_protocol_error: bool) {
    for mut client in clients {
        if by_protocol_error {
            client.send(&[0x7f]);
        }
        client.reset();
    }
}

#[test]
fn b18_a_waiter_that_breaks_the_protocol_in_the_moment_of_its_promotion_is_told_at_once() {
    const ROUNDS: usize = 2000;
    let server = TestServer::start();
    for _ in 0..ROUNDS {
        let (holder, _) = server.holder("jobs", LONG);
        let mut waiter = server.waiter("jobs", LONG);
        let leaving = thread::spawn(move || holder.reset());
        waiter.send(&[0x01]);
        let mut heard = waiter.hear();
        if matches!(heard, Heard::Acquired(_)) {
            heard = waiter.hear();
        }
        assert_eq!(heard, Heard::Error(0x12, "duplicate ACQUIRE".to_owned()));
        // The io-timeout outlasts the patience of this client.
        waiter.ended();
        leaving.join().unwrap();
        waiter.reset();
        server.await_connections(0);
    }
}

#[test]
fn b21_a_release_and_a_claim_in_the_same_instant_never_leave_a_free_lock_with_a_queue() {
    const ROUNDS: usize = 10_000;
    let mut dice = dice();
    let server = TestServer::start();
    let (mut holder, mut last) = server.holder("jobs", LONG);
    let mut next = server.connect();
    for _ in 0..ROUNDS {
        if dice.bool() {
            holder.reset();
            next.acquire("jobs", LONG);
        } else {
            next.acquire("jobs", LONG);
            holder.reset();
        }
        let token = match next.hear() {
            Heard::Acquired(token) => token,
            Heard::Waiting => next.acquired(),
            other @ (Heard::Error(..) | Heard::End | Heard::Reset) => panic!("{other:?}"),
        };
        assert!(last < token);
        last = token;
        holder = next;
        next = server.connect();
    }
}

#[test]
fn b22_one_release_before_5000_waiters_is_one_acquired() {
    const WAITERS: usize = 5000;
    let _crowd = crowd(WAITERS);
    let server = TestServer::start();
    let (holder, first) = server.holder("jobs", LONG);
    let mut waiters: Vec<_> = (0..WAITERS).map(|_| server.claim("jobs", LONG)).collect();
    waiters.iter_mut().for_each(Client::waiting);
    server.await_connections(1 + WAITERS);
    holder.reset();
    server.await_connections(WAITERS);
    let mut grants = Vec::new();
    for waiter in &mut waiters {
        waiter.send(&HEARTBEAT);
        if let Heard::Acquired(token) = waiter.hear() {
            assert_eq!(waiter.acquired(), token, "the push, then the answer");
            grants.push(token);
        }
    }
    assert_eq!(grants.len(), 1);
    assert!(first < grants[0]);
    waiters.iter_mut().for_each(Client::hears_nothing);
    // Nothing stays behind of those who came and went.
    waiters.into_iter().for_each(Client::reset);
    server.await_connections(0);
    server.holder("jobs", LONG);
}
