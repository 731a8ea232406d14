//! Each `ERROR` that a client can earn, in its exact bytes, and as early as its bytes decide.

use std::time::Duration;

use crate::client::{Client, HEARTBEAT, LONG, acquire};
use crate::server::TestServer;

/// Sends bytes and no end, and expects the `ERROR` and the end of the stream.
#[track_caller]
fn refused(server: &TestServer, bytes: &[u8], code: u8, reason: &str) {
    let mut client = server.connect();
    client.send(bytes);
    client.error(code, reason);
}

#[test]
fn an_error_is_its_code_and_its_reason_byte_by_byte() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.send(&[0x7f]);
    assert_eq!(client.hear_all(), b"\x13\x13\x1aunknown message type: 0x7f");
}

#[test]
fn another_version_is_refused_by_its_byte_alone() {
    let server = TestServer::start();
    for version in [0, 2, 0xff] {
        refused(&server, &[0x01, version], 0x10, &format!("unsupported protocol version: {version}"));
    }
}

#[test]
fn a_heartbeat_first_is_refused() {
    refused(&TestServer::start(), &HEARTBEAT, 0x11, "first message must be ACQUIRE");
}

#[test]
fn a_second_acquire_is_refused_by_its_type_byte_alone_and_ends_the_claim() {
    let server = TestServer::start();
    let (mut holder, _) = server.holder("jobs", LONG);
    let mut waiter = server.waiter("jobs", LONG);
    let mut next = server.waiter("jobs", LONG);
    waiter.send(&[0x01]);
    waiter.error(0x12, "duplicate ACQUIRE");
    holder.send(&[0x01]);
    holder.error(0x12, "duplicate ACQUIRE");
    next.acquired();
}

#[test]
fn an_unknown_type_is_refused_first_or_later_and_named() {
    let server = TestServer::start();
    for kind in [0x00, 0x03, 0x11, 0x12, 0x13, 0x7f, 0xff] {
        let reason = format!("unknown message type: {kind:#04x}");
        refused(&server, &[kind], 0x13, &reason);
        let (mut holder, token) = server.holder("jobs", LONG);
        holder.still_holds(token);
        holder.send(&[kind]);
        holder.error(0x13, &reason);
        server.await_connections(0);
    }
}

#[test]
fn an_empty_name_is_refused() {
    refused(&TestServer::start(), &acquire("", LONG), 0x14, "empty lock name");
}

#[test]
fn a_name_that_is_too_long_is_refused_by_its_length_alone() {
    let server = TestServer::start();
    for length in [256_u16, 257, u16::MAX] {
        let mut head = acquire("", LONG);
        head[6..8].copy_from_slice(&length.to_be_bytes());
        refused(&server, &head, 0x15, &format!("lock name too long: {length} bytes, 255 are allowed"));
    }
}

#[test]
fn a_name_that_is_not_utf8_is_refused() {
    let server = TestServer::start();
    for name in [&b"\xff"[..], b"jobs\xc3", b"\xed\xa0\x80", b"\xc0\x80"] {
        refused(&server, &acquire(name, LONG), 0x16, "lock name is not valid UTF-8");
    }
}

#[test]
fn b30_a_lease_of_0_is_refused_by_its_field_alone() {
    let server = TestServer::start();
    refused(&server, &acquire("jobs", 0), 0x17, "lease must be positive");
    refused(&server, &acquire("jobs", 0)[..6], 0x17, "lease must be positive");
}

#[test]
fn the_first_wrong_field_decides() {
    let server = TestServer::start();
    let wrong = |version: u8, lease_ms: u32, name_len: u16, name: &[u8]| {
        let mut frame = acquire(name, lease_ms);
        frame[1] = version;
        frame[6..8].copy_from_slice(&name_len.to_be_bytes());
        frame
    };
    refused(&server, &wrong(2, 0, 0, b""), 0x10, "unsupported protocol version: 2");
    refused(&server, &wrong(2, 0, 256, b"\xff"), 0x10, "unsupported protocol version: 2");
    refused(&server, &wrong(1, 0, 0, b""), 0x17, "lease must be positive");
    refused(&server, &wrong(1, 0, 1, b"\xff"), 0x17, "lease must be positive");
    refused(&server, &wrong(1, 1, 0, b"\xff"), 0x14, "empty lock name");
    refused(&server, &wrong(1, 1, 256, b"\xff"), 0x15, "lock name too long: 256 bytes, 255 are allowed");
}

#[test]
fn what_is_right_is_answered_before_what_is_wrong_behind_it() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.send(&[acquire("jobs", LONG), HEARTBEAT.repeat(300), vec![0x7f]].concat());
    let token = client.acquired();
    for _ in 0..300 {
        assert_eq!(client.acquired(), token);
    }
    client.error(0x13, "unknown message type: 0x7f");
    server.holder("jobs", LONG);
}

#[test]
fn the_end_follows_an_error_at_once_and_the_socket_is_closed_soon_whatever_the_client_does() {
    // No time passes: the end of the stream does not wait for the end of the drain.
    let server = TestServer::with_time_on_demand(Duration::from_mins(1));
    let mut client = server.claim("jobs", 0);
    client.error(0x17, "lease must be positive");
    assert_eq!(server.connections(), 1);
    server.advance(Duration::from_secs(2));
    assert_eq!(server.connections(), 0);
}

#[test]
fn a_refused_claim_was_never_made() {
    let server = TestServer::start();
    let mut refused: Vec<Client> = (0..20).map(|_| server.claim("jobs", 0)).collect();
    let (mut holder, token) = server.holder("jobs", LONG);
    holder.still_holds(token);
    for client in &mut refused {
        client.error(0x17, "lease must be positive");
    }
}
