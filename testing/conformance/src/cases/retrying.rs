//! The retry form: what is tried again, and when.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::heartbeats::median;
use super::{Case, case};
use crate::outcome::{Outcome, ensure, fail};
use crate::server::{Arrived, RefusingPort, SOON, acquired, error, waiting};
use crate::world::{Op, PROMPTLY, TOKEN, World};

pub(super) const CASES: &[Case] = &[
    case("b48_backoff_after_02", "a server condition is answered with backoff: no storm", backoff),
    case(
        "b48_refused_port_costs_nothing",
        "two seconds before a refused port: next to no processor time",
        refused_port,
    ),
    case("b48_denied_is_final", "0x18: no second attempt", denied),
    case("b48_client_error_in_the_queue_is_final", "a code from 0x10 up in the queue: no second attempt", client_error),
    case(
        "b48_unknown_client_error_is_final",
        "0x10 and up by range: 0x7e is no more tried again than 0x18",
        unknown_client_error,
    ),
    case("b48_unknown_server_condition_is_tried_again", "below 0x10 by range: 0x0f is tried again", unknown_condition),
    case("b47_jitter_before_the_first_reconnect", "20 waiters hear 0x01: they come back spread over 100 ms", jitter),
    case("retry_reaches_a_server_that_comes_up", "a port that begins to listen is found", comes_up),
    case("retry_after_a_lost_place", "closed in the queue: a new turn at the back", lost_place),
    case("retry_within_the_wait_limit", "all attempts together take no longer than the wait limit", wait_limit),
    case("b50_cancel_between_attempts", "cancelled in the backoff: back at once, no further attempt", cancel),
    case("without_retry_one_attempt", "the plain form does not try again", one_attempt),
];

fn refuse(world: &World, code: u8, kind: &str) -> Outcome {
    let server = world.server();
    world.ask(&Op::acquire(1, &server, 20_000).retry())?;
    let peer = world.accept(&server)?;
    peer.expect_acquire()?;
    peer.send(&error(code, "as it is"));
    peer.finish();
    world.expect_error(1, kind, Some(code), PROMPTLY)?;
    server.nobody(Duration::from_millis(900))
}

fn denied(world: &World) -> Outcome {
    refuse(world, 0x18, "denied")
}

fn unknown_client_error(world: &World) -> Outcome {
    refuse(world, 0x7e, "invalid")
}

fn client_error(world: &World) -> Outcome {
    let server = world.server();
    let (peer, _) = world.queue(&server, &Op::acquire(1, &server, 4000).retry())?;
    peer.expect_heartbeat(SOON)?;
    peer.send(&waiting());
    peer.send(&error(0x13, "unknown message type"));
    peer.finish();
    world.expect_error(1, "lost", Some(0x13), PROMPTLY)?;
    server.nobody(Duration::from_millis(900))
}

fn unknown_condition(world: &World) -> Outcome {
    let server = world.server();
    world.ask(&Op::acquire(1, &server, 20_000).retry())?;
    let peer = world.accept(&server)?;
    peer.expect_acquire()?;
    peer.send(&error(0x0f, "something new"));
    peer.finish();
    let peer = world.accept(&server)?;
    peer.expect_acquire()?;
    peer.send(&acquired(TOKEN));
    world.expect_acquired(1, TOKEN)?;
    world.release(1, &peer)
}

fn backoff(world: &World) -> Outcome {
    let server = world.server();
    world.ask(&Op::acquire(1, &server, 20_000).retry())?;
    let by = Instant::now() + Duration::from_millis(2500);
    let mut attempts = 0;
    while let Some(peer) = server.poll(by.saturating_duration_since(Instant::now())) {
        attempts += 1;
        peer.expect_acquire()?;
        peer.send(&error(0x02, "closed by administrator"));
        peer.finish();
        // The client is to have read it before the socket goes.
        let _ = peer.expect_close(SOON);
    }
    // With full jitter and ceilings of 100, 200, 400, … ms about six.
    ensure((2..=16).contains(&attempts), || format!("expected 2 to 16 attempts in 2.5 s; came {attempts}"))?;
    world.tell("cancel", 1)?;
    world.expect_error(1, "cancelled", None, PROMPTLY)?;
    Ok(())
}

fn refused_port(world: &World) -> Outcome {
    let port = RefusingPort::new();
    let before = world.driver.processor_time();
    let op = Op::at(1, &[port.address()], 20_000).retry().with("wait_ms", 2000);
    world.ask(&op)?;
    world.expect_error(1, "wait_timeout", None, Duration::from_secs(2) + PROMPTLY)?;
    if let (Some(before), Some(after)) = (before, world.driver.processor_time()) {
        let used = after.saturating_sub(before);
        ensure(used <= Duration::from_millis(600), || {
            format!("expected no more than 600 ms of processor time in 2 s of retrying; came {used:?}")
        })?;
    }
    Ok(())
}

fn jitter(world: &World) -> Outcome {
    // A stall spreads those who would come back all at once, or brings the others back together: it is no part of the
    // median of three rounds.
    let (mut middles, mut spreads) = (Vec::new(), Vec::new());
    for first in [1, 101, 201] {
        let delays = come_back(world, first..first + 20)?;
        middles.push(median(delays.clone()));
        spreads.push(delays[delays.len() - 1].saturating_sub(delays[0]));
    }
    let (middle, spread) = (median(middles), median(spreads));
    ensure(middle >= Duration::from_millis(10) && spread >= Duration::from_millis(30), || {
        format!("expected a random delay up to 100 ms; it was {middle:.1?} in the median, spread over {spread:.1?}")
    })
}

/// How long after 0x01 these waiters come back, sorted.
fn come_back(world: &World, ids: Range<u64>) -> Outcome<Vec<Duration>> {
    let server = world.server();
    let mut peers = Vec::new();
    for id in ids.clone() {
        peers.push(world.queue(&server, &Op::acquire(id, &server, 20_000).retry())?.0);
    }
    // Everybody has had its time to take the WAITING in.
    std::thread::sleep(Duration::from_millis(300));
    let told = Instant::now();
    for peer in &peers {
        peer.send(&error(0x01, "server shutting down"));
        peer.finish();
    }
    let mut delays = Vec::new();
    let mut returned = Vec::new();
    for _ in ids.clone() {
        let peer = world.accept(&server)?;
        delays.push(peer.connected.saturating_duration_since(told));
        returned.push(peer);
    }
    delays.sort_unstable();
    let last = delays[delays.len() - 1];
    ensure(last <= Duration::from_millis(100) + PROMPTLY, || {
        format!("expected all back within 100 ms (and 2 s of margin) after 0x01; the last came after {last:.1?}")
    })?;
    for peer in &returned {
        peer.expect_acquire()?;
        peer.send(&waiting());
    }
    for id in ids {
        world.tell("cancel", id)?;
        world.expect_error(id, "cancelled", None, PROMPTLY)?;
    }
    Ok(delays)
}

fn comes_up(world: &World) -> Outcome {
    let port = RefusingPort::new();
    world.ask(&Op::at(1, &[port.address()], 20_000).retry())?;
    world.quiet(1, Duration::from_millis(400))?;
    let server = port.open(&world.timeline);
    let peer = world.accept(&server)?;
    peer.expect_acquire()?;
    peer.send(&acquired(TOKEN));
    world.expect_acquired(1, TOKEN)?;
    world.release(1, &peer)
}

fn lost_place(world: &World) -> Outcome {
    let server = world.server();
    let (peer, _) = world.queue(&server, &Op::acquire(1, &server, 20_000).retry())?;
    world.quiet(1, Duration::from_millis(200))?;
    peer.finish();
    let peer = world.accept(&server)?;
    peer.expect_acquire()?;
    peer.send(&acquired(TOKEN));
    world.expect_acquired(1, TOKEN)?;
    world.release(1, &peer)
}

fn wait_limit(world: &World) -> Outcome {
    let server = world.server();
    world.ask(&Op::acquire(1, &server, 20_000).retry().with("wait_ms", 1000))?;
    let by = Instant::now() + Duration::from_secs(1) + PROMPTLY;
    loop {
        if let Some(peer) = server.poll(Duration::from_millis(20)) {
            // It may have been given up already: the limit passes whenever it passes.
            peer.next(Instant::now() + Duration::from_millis(50));
            peer.reset();
        }
        if let Some(event) = world.driver.next(Some(1), Instant::now()) {
            world.same(&event, "kind", &"wait_timeout".into())?;
            return ensure(event.at <= by, || "expected wait_timeout after 1 s; it came late".into());
        }
        if Instant::now() > by {
            return fail("expected wait_timeout after 1 s; nothing came");
        }
    }
}

fn cancel(world: &World) -> Outcome {
    let server = world.server();
    world.ask(&Op::acquire(1, &server, 20_000).retry())?;
    for _ in 0..3 {
        let peer = world.accept(&server)?;
        peer.expect_acquire()?;
        peer.reset();
    }
    world.tell("cancel", 1)?;
    world.expect_error(1, "cancelled", None, PROMPTLY)?;
    // One more may have begun before the driver read of the cancel.
    if let Some(peer) = server.poll(Duration::from_millis(100)) {
        let first = peer.next(Instant::now() + PROMPTLY);
        if !first.is_some_and(|arrival| matches!(arrival.what, Arrived::Closed(_))) {
            peer.expect_close(PROMPTLY)?;
        }
    }
    server.nobody(Duration::from_millis(1200))
}

fn one_attempt(world: &World) -> Outcome {
    let server = world.server();
    world.ask(&Op::acquire(1, &server, 20_000))?;
    let peer = world.accept(&server)?;
    peer.expect_acquire()?;
    peer.send(&error(0x01, "server shutting down"));
    peer.finish();
    world.expect_error(1, "unreachable", Some(0x01), PROMPTLY)?;
    server.nobody(Duration::from_millis(500))
}
