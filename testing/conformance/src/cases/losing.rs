//! How a hold ends that the client did not end.

use std::thread;
use std::time::{Duration, Instant};

use super::{Case, case};
use crate::outcome::{Outcome, ensure, fail};
use crate::server::{Arrived, Peer, SOON, acquired, ensure_by, error, waiting};
use crate::world::{MARGIN, Op, PROMPTLY, TOKEN, World};

pub(super) const CASES: &[Case] = &[
    case(
        "b03_frozen_process",
        "stopped for longer than its lease: the loss is seen before any yes, a reply in the socket revives nothing",
        frozen,
    ),
    case(
        "b01_black_hole_under_a_holder",
        "the replies stop: lost before the server's expiry, and is_held says no",
        black_hole,
    ),
    case(
        "b02_late_replies_then_silence",
        "the give-up counts from the sending of the confirmed heartbeat",
        late_replies,
    ),
    case("b02_late_first_answer_then_silence", "the give-up counts from the sending of the ACQUIRE", late_first_answer),
    case("b02_answer_after_the_give_up", "an ACQUIRED after 0.8 leases is no grant", too_late_answer),
    case("b02b_push_with_an_unanswered_heartbeat", "the push confirms nothing", push_is_no_ack),
    case(
        "b02b_reply_behind_the_push",
        "the frame behind the push answers the heartbeat that was under way",
        reply_behind_push,
    ),
    case("b03_late_reply_revives_nothing", "a reply after the give-up changes nothing", late_reply),
    case(
        "b05_blocked_loop",
        "an event loop that is blocked for 0.9 leases: the loss comes first, nothing crashes",
        blocked,
    ),
    case("b07_no_answers_though_writes_succeed", "heartbeats without answers keep nothing", no_answers),
    case("b08_lost_once_timeout", "told once, with its reason", once_timeout),
    case("b08_lost_once_closed", "the end of the stream, at once", once_closed),
    case("b08_lost_once_reset", "a reset, at once", once_reset),
    case("b08_lost_once_server_error", "an ERROR with its code", once_error),
    case("b08_lost_once_protocol_violation", "a WAITING after the ACQUIRED", once_violation),
    case("b15_max_hold", "a hold longer than max_hold is lost", max_hold),
    case("no_silent_reacquire", "a lost lock is not taken again, not even in the retry form", no_reacquire),
];

/// The lease where the give-up is timed: 900 ms lie between it and the latest that is let pass.
const LEASE: u64 = 5000;

/// The server's own expiry, less the margin.
fn before_expiry(confirmed: Instant) -> Instant {
    confirmed + Duration::from_millis(LEASE).saturating_sub(MARGIN)
}

/// A loss must not come much before 0.8 leases either.
fn ensure_not_early(world: &World, lost: Instant, confirmed: Instant) -> Outcome {
    let earliest = confirmed + Duration::from_millis(LEASE * 7 / 10);
    ensure(lost >= earliest, || {
        let (earliest, lost) = (world.timeline.clock(earliest), world.timeline.clock(lost));
        format!("expected the loss at 0.8 leases, not before {earliest}; it came at {lost}")
    })
}

fn last(beats: &[Instant], otherwise: Instant) -> Instant {
    beats.last().copied().unwrap_or(otherwise)
}

fn black_hole(world: &World) -> Outcome {
    let server = world.server();
    let (peer, begun) = world.hold(&server, &Op::acquire(1, &server, LEASE))?;
    let confirmed = last(&peer.answer(Duration::from_secs(3), &acquired(TOKEN))?, begun);
    let by = before_expiry(confirmed);
    let lost = world.expect_lost(1, "timeout", None, by)?;
    ensure_not_early(world, lost.at, confirmed)?;
    let no = world.expect_held(1, false)?;
    ensure_by(&world.timeline, "is_held to say no", no.at, by + MARGIN)?;
    // The socket was open all the time; the client closes it.
    peer.expect_close(PROMPTLY)?;
    Ok(())
}

fn late_replies(world: &World) -> Outcome {
    // Five sessions at a time, with replies that are late by up to 0.4 leases: at 0.55, the heartbeat before has given
    // up.
    thread::scope(|scope| {
        let sessions: Vec<_> = [0, 100, 200, 300, 400]
            .into_iter()
            .zip(1..)
            .map(|(permille, id)| scope.spawn(move || late_by(world, id, permille)))
            .collect();
        sessions.into_iter().try_for_each(|session| session.join().expect("a session of a case ends"))
    })
}

fn late_by(world: &World, id: u64, permille: u64) -> Outcome {
    let server = world.server();
    let (peer, _) = world.hold(&server, &Op::acquire(id, &server, LEASE))?;
    peer.expect_heartbeat(SOON)?;
    peer.send(&acquired(TOKEN));
    let confirmed = peer.expect_heartbeat(SOON)?;
    thread::sleep(Duration::from_millis(LEASE * permille / 1000));
    peer.send(&acquired(TOKEN));
    let lost = world.expect_lost(id, "timeout", None, before_expiry(confirmed))?;
    ensure_not_early(world, lost.at, confirmed)
}

fn late_first_answer(world: &World) -> Outcome {
    let server = world.server();
    world.ask(&Op::acquire(1, &server, LEASE))?;
    let peer = world.accept(&server)?;
    let (begun, ..) = peer.expect_acquire()?;
    thread::sleep(Duration::from_millis(LEASE * 4 / 10));
    peer.send(&acquired(TOKEN));
    world.expect_acquired(1, TOKEN)?;
    let lost = world.expect_lost(1, "timeout", None, before_expiry(begun))?;
    ensure_not_early(world, lost.at, begun)
}

fn too_late_answer(world: &World) -> Outcome {
    let server = world.server();
    world.ask(&Op::acquire(1, &server, LEASE).with("connect_timeout_ms", 20_000))?;
    let peer = world.accept(&server)?;
    let (begun, ..) = peer.expect_acquire()?;
    let refused = world.expect_by(1, "error", before_expiry(begun))?;
    world.same(&refused, "kind", &"unreachable".into())?;
    ensure_not_early(world, refused.at, begun)?;
    peer.send(&acquired(TOKEN));
    world.quiet(1, Duration::from_millis(300))
}

fn push_is_no_ack(world: &World) -> Outcome {
    let server = world.server();
    let (peer, _) = world.queue(&server, &Op::acquire(1, &server, LEASE))?;
    peer.expect_heartbeat(SOON)?;
    peer.send(&waiting());
    let confirmed = peer.expect_heartbeat(SOON)?;
    peer.send(&waiting());
    peer.expect_heartbeat(SOON)?;
    // That one never reaches the lock's table: the promotion was pushed before, and then it is dark.
    peer.send(&acquired(TOKEN));
    world.expect_acquired(1, TOKEN)?;
    let lost = world.expect_lost(1, "timeout", None, before_expiry(confirmed))?;
    ensure_not_early(world, lost.at, confirmed)?;
    match peer.expect_heartbeat(Duration::ZERO) {
        Ok(_) => fail("expected no heartbeat beside the unanswered one; one came"),
        Err(_) => Ok(()),
    }
}

fn reply_behind_push(world: &World) -> Outcome {
    let server = world.server();
    let (peer, _) = world.queue(&server, &Op::acquire(1, &server, 2000))?;
    peer.expect_heartbeat(SOON)?;
    peer.send(&[acquired(TOKEN), acquired(TOKEN)].concat());
    world.expect_acquired(1, TOKEN)?;
    let beats = peer.answer(Duration::from_secs(3), &acquired(TOKEN))?;
    ensure(beats.len() >= 4, || format!("expected at least 4 heartbeats in 3 s; came {}", beats.len()))?;
    world.expect_held(1, true)?;
    world.release(1, &peer)
}

fn frozen(world: &World) -> Outcome {
    let server = world.server();
    // A hold that was revived would be lost after 2.4 s.
    let (peer, _) = world.hold(&server, &Op::acquire(1, &server, 3000))?;
    // The heartbeat's answer lies in the socket when the process goes on, and so does the question.
    peer.expect_heartbeat(SOON)?;
    world.driver.freeze();
    peer.send(&acquired(TOKEN));
    world.tell("is_held", 1)?;
    thread::sleep(Duration::from_secs(4));
    world.driver.thaw();
    world.expect_lost_and_not_held(1, Instant::now() + PROMPTLY)?;
    let next = peer.next(Instant::now() + PROMPTLY).map(|arrival| arrival.what);
    ensure(matches!(next, Some(Arrived::Closed(_))), || {
        format!("expected the connection to be closed; came {next:?}")
    })?;
    world.expect_held(1, false)?;
    world.quiet(1, Duration::from_millis(200))
}

fn late_reply(world: &World) -> Outcome {
    let server = world.server();
    let (peer, begun) = world.hold(&server, &Op::acquire(1, &server, LEASE))?;
    world.expect_lost(1, "timeout", None, before_expiry(begun))?;
    peer.send(&acquired(TOKEN));
    world.expect_held(1, false)?;
    world.quiet(1, Duration::from_millis(500))
}

fn blocked(world: &World) -> Outcome {
    // A hold that was revived would be lost after 2.4 s.
    const LEASE: u64 = 3000;
    let server = world.server();
    let (peer, _) = world.hold(&server, &Op::acquire(1, &server, LEASE))?;
    peer.answer(Duration::from_secs(1), &acquired(TOKEN))?;
    world.driver.send(&serde_json::json!({"op": "block", "ms": LEASE * 9 / 10}))?;
    let mut beats = peer.answer(Duration::from_millis(LEASE * 3 / 10), &acquired(TOKEN))?;
    world.tell("is_held", 1)?;
    beats.extend(peer.answer(Duration::from_millis(LEASE * 4 / 10), &acquired(TOKEN))?);
    if beats.len() > 1 {
        // Threads: nothing was blocked, so nothing is lost.
        world.same(&world.expect(1, "is_held", SOON)?, "held", &true.into())?;
        peer.answer(Duration::from_millis(LEASE / 2), &acquired(TOKEN))?;
        world.expect_held(1, true)?;
        // It says that it has unblocked what was not blocked, or it does not.
        while world.driver.next(None, Instant::now() + Duration::from_millis(300)).is_some() {}
        return world.release(1, &peer);
    }
    world.expect_lost_and_not_held(1, Instant::now() + Duration::from_millis(LEASE / 5) + PROMPTLY)?;
    let unblocked = world.driver.next(None, Instant::now() + SOON);
    ensure(unblocked.is_some_and(|event| event.body["event"] == "unblocked"), || {
        "expected unblocked; it did not come".to_owned()
    })?;
    peer.expect_close(PROMPTLY)?;
    world.expect_held(1, false)?;
    world.quiet(1, Duration::from_millis(300))
}

fn no_answers(world: &World) -> Outcome {
    let server = world.server();
    let (peer, begun) = world.hold(&server, &Op::acquire(1, &server, LEASE))?;
    peer.expect_heartbeat(SOON)?;
    world.expect_lost(1, "timeout", None, before_expiry(begun))?;
    peer.expect_close(PROMPTLY)?;
    Ok(())
}

/// Loses a hold under a long lease by what `how` does, and sees that it is told at once, and once.
fn once(world: &World, how: impl FnOnce(Peer) -> Option<Peer>, reason: &str, code: Option<u8>) -> Outcome {
    let server = world.server();
    let (peer, _) = world.hold(&server, &Op::acquire(1, &server, 20_000))?;
    let peer = how(peer);
    world.expect_lost(1, reason, code, Instant::now() + PROMPTLY)?;
    if let Some(peer) = peer {
        peer.expect_close(PROMPTLY)?;
    }
    world.expect_held(1, false)?;
    world.quiet(1, Duration::from_millis(400))?;
    world.tell("release", 1)?;
    world.expect(1, "released", PROMPTLY)?;
    Ok(())
}

fn once_timeout(world: &World) -> Outcome {
    let server = world.server();
    let (peer, _) = world.hold(&server, &Op::acquire(1, &server, 1000))?;
    world.expect_lost(1, "timeout", None, Instant::now() + SOON)?;
    peer.expect_close(PROMPTLY)?;
    world.quiet(1, Duration::from_millis(600))?;
    world.tell("release", 1)?;
    world.expect(1, "released", PROMPTLY)?;
    Ok(())
}

fn once_closed(world: &World) -> Outcome {
    once(
        world,
        |peer| {
            peer.finish();
            Some(peer)
        },
        "closed",
        None,
    )
}

fn once_reset(world: &World) -> Outcome {
    once(
        world,
        |peer| {
            peer.reset();
            None
        },
        "closed",
        None,
    )
}

fn once_error(world: &World) -> Outcome {
    once(
        world,
        |peer| {
            peer.send(&error(0x02, "closed by administrator"));
            peer.finish();
            Some(peer)
        },
        "server_error",
        Some(0x02),
    )
}

fn once_violation(world: &World) -> Outcome {
    once(
        world,
        |peer| {
            peer.send(&waiting());
            Some(peer)
        },
        "protocol_violation",
        None,
    )
}

fn max_hold(world: &World) -> Outcome {
    let server = world.server();
    let (peer, _) = world.hold(&server, &Op::acquire(1, &server, 4000).with("max_hold_ms", 3000))?;
    let granted = Instant::now();
    let answering = peer.answer(Duration::from_millis(2300), &acquired(TOKEN))?;
    ensure(!answering.is_empty(), || "expected a heartbeat in 2.3 s; none came".to_owned())?;
    // The give-up is later by more than a second.
    world.expect_lost(1, "max_hold", None, granted + Duration::from_secs(3) + PROMPTLY)?;
    peer.expect_close(PROMPTLY)?;
    world.expect_held(1, false)?;
    Ok(())
}

fn no_reacquire(world: &World) -> Outcome {
    let server = world.server();
    for (id, op) in [(1, Op::acquire(1, &server, 20_000)), (2, Op::acquire(2, &server, 20_000).retry())] {
        let (peer, _) = world.hold(&server, &op)?;
        peer.send(&error(0x01, "server shutting down"));
        peer.finish();
        world.expect_lost(id, "server_error", Some(0x01), Instant::now() + PROMPTLY)?;
        server.nobody(Duration::from_millis(700))?;
        world.expect_held(id, false)?;
    }
    Ok(())
}
