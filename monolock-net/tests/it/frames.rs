//! What a session is told, byte by byte.

use crate::client::{HEARTBEAT, Heard, LONG, Leave, acquire};
use crate::server::TestServer;

#[test]
fn an_acquire_of_a_free_lock_is_answered_by_acquired_and_nothing_else() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.send(b"\x01\x01\x00\x00\x75\x30\x00\x04jobs");
    client.half_close();
    let heard = client.hear_all();
    assert_eq!(heard.len(), 9);
    assert_eq!(heard[0], 0x12);
}

#[test]
fn an_acquire_of_a_held_lock_is_answered_by_waiting_and_nothing_else() {
    let server = TestServer::start();
    let _holder = server.holder("jobs", LONG);
    let mut client = server.connect();
    client.send(b"\x01\x01\x00\x00\x75\x30\x00\x04jobs");
    client.half_close();
    assert_eq!(client.hear_all(), [0x11]);
}

#[test]
fn each_heartbeat_has_one_answer_with_the_present_state() {
    let server = TestServer::start();
    let (mut holder, token) = server.holder("jobs", LONG);
    let mut waiter = server.waiter("jobs", LONG);
    for _ in 0..10 {
        holder.still_holds(token);
        waiter.still_waits();
    }
    holder.send(&HEARTBEAT.repeat(1000));
    waiter.send(&HEARTBEAT.repeat(1000));
    for _ in 0..1000 {
        assert_eq!(holder.acquired(), token);
        waiter.waiting();
    }
    holder.hears_nothing();
    waiter.hears_nothing();
}

#[test]
fn a_promotion_is_pushed_once_and_all_acquired_carry_its_token() {
    let server = TestServer::start();
    let (holder, first) = server.holder("jobs", LONG);
    let mut waiter = server.waiter("jobs", LONG);
    waiter.still_waits();
    drop(holder);
    let second = waiter.acquired();
    assert!(second > first);
    for _ in 0..3 {
        waiter.still_holds(second);
    }
    waiter.hears_nothing();
}

#[test]
fn heartbeats_around_a_promotion_have_one_answer_each_and_the_push_comes_first_of_acquired() {
    const ROUNDS: usize = 300;
    const HEARTBEATS: usize = 40;
    let server = TestServer::start();
    let mut last = 0;
    for _ in 0..ROUNDS {
        let (holder, first) = server.holder("jobs", LONG);
        let mut waiter = server.waiter("jobs", LONG);
        let leaving = std::thread::spawn(move || holder.reset());
        (0..HEARTBEATS).for_each(|_| waiter.send(&HEARTBEAT));
        let heard: Vec<_> = (0..=HEARTBEATS).map(|_| waiter.hear()).collect();
        let waiting = heard.iter().take_while(|heard| **heard == Heard::Waiting).count();
        let Some(Heard::Acquired(token)) = heard.get(waiting).cloned() else {
            panic!("the push is one of {} frames: {heard:?}", HEARTBEATS + 1)
        };
        assert!(heard[waiting..].iter().all(|heard| *heard == Heard::Acquired(token)), "{heard:?}");
        assert!(last < first && first < token);
        waiter.hears_nothing();
        leaving.join().unwrap();
        waiter.reset();
        last = token;
        server.await_connections(0);
    }
}

#[test]
fn a_holder_that_lets_go_in_whatever_way_promotes_the_next_at_once() {
    let server = TestServer::start();
    for how in Leave::ALL {
        let (holder, first) = server.holder("jobs", LONG);
        let mut next = server.waiter("jobs", LONG);
        let kept = holder.leave(how);
        assert!(next.acquired() > first, "{how:?}");
        // The server has closed its side as well.
        if let Some(mut half_closed) = kept {
            half_closed.ended();
        }
        next.reset();
        server.await_connections(0);
    }
}

#[test]
fn a_holder_that_is_reset_with_unread_answers_promotes_the_next_at_once() {
    let server = TestServer::start();
    let (mut holder, first) = server.holder("jobs", LONG);
    holder.send(&HEARTBEAT.repeat(10));
    let mut next = server.waiter("jobs", LONG);
    // A close with unread bytes is a reset by itself.
    drop(holder);
    assert!(next.acquired() > first);
}

#[test]
fn a_name_is_taken_raw() {
    let server = TestServer::start();
    let names = [
        "jobs",
        "Jobs",
        " jobs",
        "jobs ",
        "jobs\0",
        "jobs\n",
        "a/b",
        "*",
        "\u{e9}",
        "e\u{301}",
        "\u{1f512}",
        "\u{202e}",
    ];
    let longest = "n".repeat(255);
    let mut holders = Vec::new();
    for name in names.iter().copied().chain([longest.as_str(), "n"]) {
        holders.push(server.holder(name, LONG));
        server.waiter(name, LONG).reset();
    }
    let mut tokens: Vec<_> = holders.iter().map(|(_, token)| *token).collect();
    assert!(tokens.is_sorted());
    tokens.dedup();
    assert_eq!(tokens.len(), holders.len());
}

#[test]
fn tokens_are_lifted_to_the_wall_clock() {
    let before = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let server = TestServer::start();
    let (_holder, token) = server.holder("jobs", LONG);
    let after = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    assert!((before << 20..(after + 1) << 20).contains(&token));
}

#[test]
fn a_session_is_served_while_its_name_is_still_to_come_in_another() {
    let server = TestServer::start();
    let frame = acquire("jobs", LONG);
    let mut slow = server.connect();
    slow.send(&frame[..frame.len() - 1]);
    let (mut holder, token) = server.holder("jobs", LONG);
    holder.still_holds(token);
    slow.send(&frame[frame.len() - 1..]);
    slow.waiting();
}
