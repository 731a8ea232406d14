//! Clients that break the rules, or keep them out of measure.

use std::io::{BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::client::{HEARTBEAT, Heard, LONG, acquire};
use crate::server::{TestServer, dice};

/// What `docs/protocol.md` has a server answer to a stream on a free lock: how many `ACQUIRED`, and the code of the
/// `ERROR`.
fn documented(stream: &[u8]) -> (usize, Option<u8>) {
    let first = match stream {
        [] | [0x01] => return (0, None),
        [0x01, version, ..] if *version != 1 => return (0, Some(0x10)),
        [0x01, ..] => stream,
        [0x02, ..] => return (0, Some(0x11)),
        _ => return (0, Some(0x13)),
    };
    if first.get(2..6) == Some(&[0; 4]) {
        return (0, Some(0x17));
    }
    let Some(&[high, low]) = first.get(6..8) else { return (0, None) };
    let name_len = usize::from(u16::from_be_bytes([high, low]));
    if name_len == 0 {
        return (0, Some(0x14));
    }
    if name_len > 255 {
        return (0, Some(0x15));
    }
    let Some(name) = first.get(8..8 + name_len) else { return (0, None) };
    if std::str::from_utf8(name).is_err() {
        return (0, Some(0x16));
    }
    let later = &first[8 + name_len..];
    let heartbeats = later.iter().take_while(|byte| **byte == 0x02).count();
    let error = later.get(heartbeats).map(|byte| if *byte == 0x01 { 0x12 } else { 0x13 });
    (1 + heartbeats, error)
}

/// A stream that is right, wrong in one place or two, or noise.
fn stream(dice: &mut fastrand::Rng) -> Vec<u8> {
    let name: Vec<u8> = (0..dice.usize(1..=255)).map(|_| dice.u8(b'a'..=b'z')).collect();
    let mut stream = acquire(name, u32::MAX - dice.u32(..256));
    stream.extend(HEARTBEAT.repeat(dice.usize(..600)));
    match dice.usize(..6) {
        0 => {}
        1 => stream = (0..dice.usize(..600)).map(|_| dice.u8(..)).collect(),
        2 => stream.truncate(dice.usize(..stream.len())),
        3 => stream.rotate_left(dice.usize(..8)),
        _ => {
            for _ in 0..dice.usize(1..3) {
                // Most of what can be wrong is at the start.
                let place = if dice.bool() { dice.usize(..8) } else { dice.usize(..stream.len()) };
                stream[place] = [0x00, 0x01, 0x02, 0x7f, 0xff, dice.u8(..)][dice.usize(..6)];
            }
            stream.extend(acquire("again", LONG).repeat(dice.usize(..2)));
        }
    }
    stream
}

#[test]
fn b51_random_streams_have_the_documented_answers() {
    let mut dice = dice();
    let server = TestServer::start();
    let (mut bystander, token) = server.holder("bystander", LONG);
    for _ in 0..2000 {
        let stream = stream(&mut dice);
        let mut client = server.connect();
        let mut rest = &stream[..];
        while !rest.is_empty() {
            let (piece, later) = rest.split_at(dice.usize(1..=rest.len()));
            // What comes behind an error may find the door shut.
            if client.try_send(piece).is_err() {
                break;
            }
            rest = later;
        }
        let _shut_already = client.stream().shutdown(Shutdown::Write);
        let (answers, error) = documented(&stream);
        let heard: Vec<_> = std::iter::from_fn(|| Some(client.hear()).filter(|heard| *heard != Heard::End)).collect();
        let acquired = heard.iter().take_while(|heard| matches!(heard, Heard::Acquired(_))).count();
        let code = match &heard[acquired..] {
            [] => None,
            [Heard::Error(code, _)] => Some(*code),
            other => panic!("{other:?} to {stream:02x?}"),
        };
        assert_eq!((acquired, code), (answers, error), "to {stream:02x?}");
        assert!(heard[..acquired].windows(2).all(|pair| pair[0] == pair[1]));
        client.reset();
        // The next one may take the same name.
        server.await_connections(1);
    }
    bystander.still_holds(token);
}

#[test]
fn b51_a_flood_of_heartbeats_starves_nobody_and_each_is_answered() {
    const HANDOVERS: usize = 300;
    let server = TestServer::start();
    let (flooding, token) = server.holder("flood", LONG);
    let flooding = flooding.into_stream();
    let is_over = AtomicBool::new(false);
    thread::scope(|threads| {
        let sent = threads.spawn(|| flood(&flooding, &is_over));
        let answers = threads.spawn(|| count_answers(&flooding, token));
        let (mut holder, mut last) = server.holder("jobs", LONG);
        for _ in 0..HANDOVERS {
            let mut next = server.waiter("jobs", LONG);
            holder.reset();
            let token = next.acquired();
            assert!(last < token);
            last = token;
            holder = next;
        }
        is_over.store(true, Ordering::Relaxed);
        // The end of the stream releases the lock, and what came before it has been answered.
        assert_eq!(answers.join().unwrap(), sent.join().unwrap());
    });
}

fn flood(mut stream: &TcpStream, is_over: &AtomicBool) -> usize {
    let piece = HEARTBEAT.repeat(4096);
    let mut sent = 0;
    while !is_over.load(Ordering::Relaxed) {
        stream.write_all(&piece).unwrap();
        sent += piece.len();
    }
    stream.shutdown(Shutdown::Write).unwrap();
    sent
}

fn count_answers(stream: &TcpStream, token: u64) -> usize {
    let mut stream = BufReader::with_capacity(1 << 16, stream);
    let mut answers = 0;
    let mut frame = [0; 9];
    while stream.read_exact(&mut frame).is_ok() {
        assert!(frame[0] == 0x12 && frame[1..] == token.to_be_bytes());
        answers += 1;
    }
    answers
}

#[test]
fn a_reset_is_heeded_at_once_though_the_socket_takes_no_more() {
    let server = TestServer::start();
    let (mut full, first) = server.holder("jobs", LONG);
    let mut next = server.waiter("jobs", LONG);
    full.fill();
    full.reset();
    assert!(next.acquired() > first);
    server.await_connections(1);
}

#[test]
fn b51_a_client_that_floods_and_never_reads_is_held_up_then_dropped_by_the_io_timeout() {
    let io_timeout = Duration::from_secs(5);
    let server = TestServer::with_time_on_demand(io_timeout);
    let (flooding, first) = server.holder("jobs", LONG);
    let mut next = server.waiter("jobs", LONG);
    let mut flooding = flooding.into_stream();
    flooding.set_nonblocking(true).unwrap();
    let piece = HEARTBEAT.repeat(4096);
    // Until it is refused again and again, though the server has done all that it could meanwhile.
    let (mut taken, mut refusals) = (0, 0);
    while refusals < 10 {
        match flooding.write(&piece) {
            Ok(bytes) => {
                taken += bytes;
                refusals = 0;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                server.advance(Duration::ZERO);
                refusals += 1;
            }
            Err(error) => panic!("it is dropped before its time: {error}"),
        }
        // What both sockets' buffers hold, and no more: what it cannot answer it does not take into its memory.
        assert!(taken < 64 << 20, "{taken} bytes");
    }
    server.advance(io_timeout - Duration::from_millis(1));
    next.hears_nothing();
    server.advance(Duration::from_millis(2));
    let dropped = flooding.write(&piece).map_err(|error| error.kind());
    assert!(matches!(dropped, Err(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)), "{dropped:?}");
    assert!(next.acquired() > first);
    server.await_connections(1);
}
