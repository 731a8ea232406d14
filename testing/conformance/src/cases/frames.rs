//! Bytes: how frames are read, whatever the network does to them, and what no server may send.

use std::thread;
use std::time::{Duration, Instant};

use super::{Case, case};
use crate::outcome::{Outcome, ensure};
use crate::server::{SOON, acquired, error, waiting};
use crate::world::{Op, PROMPTLY, TOKEN, World};

pub(super) const CASES: &[Case] = &[
    case("b38_cut_at_every_position", "every stream of a session, cut at every position", cut),
    case("b38_byte_by_byte", "every byte comes alone", byte_by_byte),
    case("b38_glued", "WAITING, the push and the end in one packet", glued),
    case("b38_error_glued_to_the_grant", "ACQUIRED and ERROR in one packet: granted, then lost", error_behind_grant),
    case("b59_token_2_53_minus_1", "the largest token that a double holds", token_53),
    case("b59_tokens_beyond_a_double", "2^53 + 1 and 2^64 - 1 are exact", token_64),
    case("acquire_is_sent_once_and_exact", "version, lease and name, byte for byte", exact),
    case("names_are_raw", "case, spaces, NUL, newline and combining marks go through as they are", names),
    case("waiting_after_acquired", "a holder never goes back into the queue", waiting_after_acquired),
    case("another_token", "the token of a session never changes", another_token),
    case("reply_to_nothing", "an ACQUIRED that answers no heartbeat", reply_to_nothing),
    case("unknown_byte_under_a_holder", "no frame begins with it", unknown_byte),
    case("token_zero_under_a_holder", "no server grants token 0", zero_under_holder),
    case("token_zero_at_the_push", "a push with token 0 is no grant", zero_push),
    case("token_zero_as_the_answer", "a first answer with token 0 is no grant", zero_answer),
    case("unknown_byte_as_the_answer", "a server of another kind: unreachable", unknown_answer),
];

fn cut(world: &World) -> Outcome {
    thread::scope(|scope| {
        let sessions: Vec<_> = (1..=18).map(|id| scope.spawn(move || cut_at(world, id))).collect();
        sessions.into_iter().try_for_each(|session| session.join().expect("a session of a case ends"))
    })
}

/// The first stream is cut behind `id` bytes (of 10), the second as well (of 19).
fn cut_at(world: &World, id: u64) -> Outcome {
    const PAUSE: Duration = Duration::from_millis(60);
    let server = world.server();
    world.ask(&Op::acquire(id, &server, 6000))?;
    let peer = world.accept(&server)?;
    peer.expect_acquire()?;
    let position = usize::try_from(id).unwrap_or_default();
    let stream = [waiting(), acquired(TOKEN)].concat();
    let (head, tail) = stream.split_at(position.min(stream.len()));
    peer.send_pieces(&[head, tail], PAUSE);
    world.expect_acquired(id, TOKEN)?;
    peer.expect_heartbeat(SOON)?;
    let stream = [acquired(TOKEN), error(0x02, "evicted")].concat();
    let (head, tail) = stream.split_at(position.min(stream.len()));
    peer.send_pieces(&[head, tail], PAUSE);
    world.expect_lost(id, "server_error", Some(0x02), Instant::now() + PROMPTLY)?;
    Ok(())
}

fn byte_by_byte(world: &World) -> Outcome {
    let server = world.server();
    world.ask(&Op::acquire(1, &server, 4000))?;
    let peer = world.accept(&server)?;
    peer.expect_acquire()?;
    let slowly = |stream: &[u8]| peer.send_pieces(&stream.chunks(1).collect::<Vec<_>>(), Duration::from_millis(8));
    slowly(&[waiting(), acquired(TOKEN)].concat());
    world.expect_acquired(1, TOKEN)?;
    for _ in 0..2 {
        peer.expect_heartbeat(SOON)?;
        slowly(&acquired(TOKEN));
    }
    world.expect_held(1, true)?;
    peer.expect_heartbeat(SOON)?;
    slowly(&[acquired(TOKEN), error(0x01, "server shutting down")].concat());
    world.expect_lost(1, "server_error", Some(0x01), Instant::now() + PROMPTLY)?;
    Ok(())
}

fn glued(world: &World) -> Outcome {
    let server = world.server();
    world.ask(&Op::acquire(1, &server, 4000))?;
    let peer = world.accept(&server)?;
    peer.expect_acquire()?;
    peer.send(&[waiting(), acquired(TOKEN)].concat());
    world.expect_acquired(1, TOKEN)?;
    let beats = peer.answer(Duration::from_millis(3500), &acquired(TOKEN))?;
    ensure(beats.len() >= 2, || format!("expected at least 2 heartbeats in 3.5 s; came {}", beats.len()))?;
    world.release(1, &peer)
}

fn error_behind_grant(world: &World) -> Outcome {
    let server = world.server();
    world.ask(&Op::acquire(1, &server, 20_000))?;
    let peer = world.accept(&server)?;
    peer.expect_acquire()?;
    peer.send(&[acquired(TOKEN), error(0x02, &"r".repeat(255))].concat());
    peer.finish();
    // The grant and its end came together: a client may never have told of the grant.
    let Some(event) = world.driver.next(Some(1), Instant::now() + PROMPTLY) else {
        return crate::outcome::fail("expected acquired or error; nothing came");
    };
    if event.body["event"] == "acquired" {
        world.expect_lost(1, "server_error", Some(0x02), Instant::now() + PROMPTLY)?;
    } else {
        world.same(&event, "kind", &"lost".into())?;
        world.same(&event, "code", &2.into())?;
    }
    Ok(())
}

fn token(world: &World, id: u64, token: u64) -> Outcome {
    let server = world.server();
    world.ask(&Op::acquire(id, &server, 2000))?;
    let peer = world.accept(&server)?;
    peer.expect_acquire()?;
    peer.send(&acquired(token));
    world.expect_acquired(id, token)?;
    peer.expect_heartbeat(SOON)?;
    // A neighbour that the same double stands for is another token.
    peer.send(&acquired(token));
    world.expect_held(id, true)?;
    world.release(id, &peer)
}

fn token_53(world: &World) -> Outcome {
    token(world, 1, (1 << 53) - 1)
}

fn token_64(world: &World) -> Outcome {
    token(world, 1, (1 << 53) + 1)?;
    token(world, 2, u64::MAX)
}

fn exact(world: &World) -> Outcome {
    let server = world.server();
    world.ask(&Op::acquire(1, &server, 16_909_060).with("name", "nightly-import"))?;
    let peer = world.accept(&server)?;
    let (_, lease_ms, name) = peer.expect_acquire()?;
    ensure(lease_ms == 16_909_060 && name == "nightly-import", || {
        format!("expected a lease of 16909060 ms and nightly-import; came {lease_ms} and {name:?}")
    })?;
    peer.nothing(Duration::from_millis(300))?;
    peer.send(&acquired(TOKEN));
    world.expect_acquired(1, TOKEN)?;
    peer.nothing(Duration::from_millis(300))?;
    world.release(1, &peer)
}

fn names(world: &World) -> Outcome {
    let longest = "x".repeat(255);
    let names = [" jobs ", "JoBs", "a\0b\nc/*", "\"\\'", "é", "e\u{301}", "🔒", "\u{202e}x", "\r", longest.as_str()];
    for (id, expected) in (1..).zip(names) {
        let server = world.server();
        world.ask(&Op::acquire(id, &server, 20_000).with("name", expected))?;
        let peer = world.accept(&server)?;
        let (_, _, name) = peer.expect_acquire()?;
        ensure(name == expected, || format!("expected the name {expected:?}; came {name:?}"))?;
        peer.send(&acquired(TOKEN));
        world.expect_acquired(id, TOKEN)?;
        world.release(id, &peer)?;
    }
    Ok(())
}

/// A holder is sent this, unasked: lost, and the connection closed.
fn violation(world: &World, bytes: &[u8]) -> Outcome {
    let server = world.server();
    let (peer, _) = world.hold(&server, &Op::acquire(1, &server, 20_000))?;
    peer.send(bytes);
    world.expect_lost(1, "protocol_violation", None, Instant::now() + PROMPTLY)?;
    peer.expect_close(PROMPTLY)?;
    server.nobody(Duration::from_millis(300))
}

/// A holder's heartbeat is answered with this: lost, and the connection closed.
fn wrong_answer(world: &World, bytes: &[u8]) -> Outcome {
    let server = world.server();
    let (peer, _) = world.hold(&server, &Op::acquire(1, &server, 4000))?;
    peer.expect_heartbeat(SOON)?;
    peer.send(bytes);
    world.expect_lost(1, "protocol_violation", None, Instant::now() + PROMPTLY)?;
    peer.expect_close(PROMPTLY)?;
    server.nobody(Duration::from_millis(300))
}

fn waiting_after_acquired(world: &World) -> Outcome {
    wrong_answer(world, &waiting())
}

fn another_token(world: &World) -> Outcome {
    wrong_answer(world, &acquired(TOKEN + 1))
}

fn reply_to_nothing(world: &World) -> Outcome {
    violation(world, &acquired(TOKEN))
}

fn unknown_byte(world: &World) -> Outcome {
    violation(world, &[0x14])
}

fn zero_under_holder(world: &World) -> Outcome {
    wrong_answer(world, &acquired(0))
}

fn zero_push(world: &World) -> Outcome {
    let server = world.server();
    let (peer, _) = world.queue(&server, &Op::acquire(1, &server, 20_000))?;
    peer.send(&acquired(0));
    world.expect_error(1, "lost", None, PROMPTLY)?;
    peer.expect_close(PROMPTLY)?;
    Ok(())
}

fn bad_answer(world: &World, bytes: &[u8]) -> Outcome {
    let server = world.server();
    world.ask(&Op::acquire(1, &server, 20_000))?;
    let peer = world.accept(&server)?;
    peer.expect_acquire()?;
    peer.send(bytes);
    world.expect_error(1, "unreachable", None, PROMPTLY)?;
    peer.expect_close(PROMPTLY)?;
    Ok(())
}

fn zero_answer(world: &World) -> Outcome {
    bad_answer(world, &acquired(0))
}

fn unknown_answer(world: &World) -> Outcome {
    bad_answer(world, b"HTTP/1.1 400 Bad Request\r\n\r\n")
}
