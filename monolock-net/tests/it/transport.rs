//! Streams cut and glued, dribbled and abandoned.

use std::time::Duration;

use crate::client::{Client, HEARTBEAT, LONG, acquire};
use crate::server::TestServer;

const IO_TIMEOUT: Duration = Duration::from_secs(5);

const MILLISECOND: Duration = Duration::from_millis(1);

#[test]
fn b38_a_stream_cut_at_every_position_with_a_timer_and_a_promotion_between_means_the_same() {
    const HEARTBEATS: usize = 4;
    let claim = acquire("jobs/\u{e9}", LONG);
    let stream = [claim.clone(), HEARTBEAT.repeat(HEARTBEATS)].concat();
    let server = TestServer::with_time_on_demand(IO_TIMEOUT);
    for cut in 0..=stream.len() {
        let (mut holder, first) = server.holder("jobs/\u{e9}", 1_000);
        let mut client = server.connect();
        client.send(&stream[..cut]);
        let answers = (cut + 1).saturating_sub(claim.len());
        (0..answers).for_each(|_| client.waiting());
        server.await_connections(2);
        server.advance(Duration::from_secs(1) - MILLISECOND);
        client.hears_nothing();
        server.advance(2 * MILLISECOND);
        holder.ended();
        // The push, if it had claimed before.
        let mut owed = usize::from(answers > 0) + stream.len() - cut;
        if answers == 0 {
            owed = 1 + HEARTBEATS;
        }
        client.send(&stream[cut..]);
        let tokens: Vec<_> = (0..owed).map(|_| client.acquired()).collect();
        assert!(first < tokens[0]);
        assert!(tokens.iter().all(|token| *token == tokens[0]), "cut at {cut}: {tokens:?}");
        client.hears_nothing();
        client.reset();
        server.await_connections(0);
    }
}

#[test]
fn b38_a_stream_in_single_bytes_or_in_one_piece_means_the_same() {
    let stream = [acquire("jobs", LONG), HEARTBEAT.repeat(500)].concat();
    let server = TestServer::with_time_on_demand(IO_TIMEOUT);
    for bytes in [1, 2, 7, 64, stream.len()] {
        let mut client = server.connect();
        for piece in stream.chunks(bytes) {
            client.send(piece);
            if bytes <= 2 {
                server.advance(Duration::ZERO);
            }
        }
        let token = client.acquired();
        (0..500).for_each(|_| assert_eq!(client.acquired(), token));
        client.hears_nothing();
        client.reset();
        server.await_connections(0);
    }
}

#[test]
fn b39_a_claim_that_comes_byte_by_byte_is_cut_by_a_total_deadline() {
    let server = TestServer::with_time_on_demand(IO_TIMEOUT);
    let mut dribbling = server.connect();
    server.await_connections(1);
    server.advance(Duration::ZERO);
    let claim = acquire("jobs", LONG);
    dribbling.send(&claim[..1]);
    server.advance(Duration::from_millis(4_900));
    dribbling.send(&claim[1..2]);
    server.advance(Duration::from_millis(99));
    dribbling.hears_nothing();
    server.advance(2 * MILLISECOND);
    dribbling.ended();
    server.await_connections(0);
}

#[test]
fn b39_a_mute_connection_is_cut_by_the_io_timeout() {
    let server = TestServer::with_time_on_demand(IO_TIMEOUT);
    let mut mute = server.connect();
    server.await_connections(1);
    server.advance(IO_TIMEOUT - MILLISECOND);
    mute.hears_nothing();
    server.advance(2 * MILLISECOND);
    mute.ended();
    server.await_connections(0);
}

#[test]
fn b39_an_idle_session_is_not_cut_by_the_io_timeout() {
    let server = TestServer::with_time_on_demand(IO_TIMEOUT);
    let (mut holder, token) = server.holder("jobs", 60_000);
    let mut waiter = server.waiter("jobs", 60_000);
    for _ in 0..3 {
        server.advance(Duration::from_mins(1) - MILLISECOND);
        holder.still_holds(token);
        waiter.still_waits();
    }
}

#[test]
fn b42_an_error_is_read_though_the_server_has_not_read_all_that_was_sent() {
    // The time in which the server listens to what nobody wants to hear does not pass by itself.
    let server = TestServer::with_time_on_demand(IO_TIMEOUT);
    let junk = vec![0x55; 1 << 16];
    for head in [acquire(b"\xff", LONG), vec![0x01, 0x02], HEARTBEAT.to_vec()] {
        let mut client = server.connect();
        client.send(&[head, junk.clone()].concat());
        read_after_the_server_has_closed(&server, client);
    }
    let (mut client, _) = server.holder("jobs", LONG);
    client.send(&[vec![0x01], junk].concat());
    read_after_the_server_has_closed(&server, client);
}

/// A reset destroys what a client has not read yet; on Linux it spares what came before it, so the socket is asked.
#[track_caller]
fn read_after_the_server_has_closed(server: &TestServer, mut client: Client) {
    server.await_connections(1);
    server.advance(Duration::ZERO);
    server.advance(Duration::from_secs(2));
    server.await_connections(0);
    assert!(client.stream().take_error().unwrap().is_none(), "the server reset the connection");
    assert_eq!(client.hear_all()[0], 0x13);
}

#[test]
fn b42_a_stop_is_read_though_the_server_has_not_read_all_that_was_sent() {
    // The time in which the server listens to what nobody wants to hear does not pass by itself.
    let server = TestServer::with_time_on_demand(IO_TIMEOUT);
    let _holder = server.holder("jobs", LONG);
    // Its answers have one byte each, so that the sockets hold them all.
    let mut session = server.waiter("jobs", LONG);
    let mut mute = server.connect();
    server.await_connections(3);
    server.handle().shutdown();
    session.send(&HEARTBEAT.repeat(1 << 16));
    mute.send(&vec![0x55; 1 << 16]);
    server.advance(Duration::ZERO);
    server.advance(Duration::from_secs(2));
    server.await_tasks_gone();
    for client in [&session, &mute] {
        assert!(client.stream().take_error().unwrap().is_none(), "the server reset the connection");
    }
    let heard = session.hear_all();
    let farewell = b"\x13\x01\x14server shutting down";
    let (answers, last) = heard.split_at(heard.len() - farewell.len());
    assert_eq!(last, farewell);
    assert!(answers.iter().all(|answer| *answer == 0x11));
    let heard = mute.hear_all();
    assert!(heard == farewell || heard.starts_with(&[0x13, 0x13]), "{heard:?}");
}
