//! When heartbeats go out.

use std::thread;
use std::time::{Duration, Instant};

use super::{Case, case};
use crate::outcome::{Outcome, ensure, fail};
use crate::server::{Peer, SOON, Server, acquired, waiting};
use crate::world::{Op, PROMPTLY, TOKEN, World};

pub(super) const CASES: &[Case] = &[
    case(
        "heartbeat_every_quarter_of_the_lease",
        "answered at once, heartbeats come every lease/4, send to send",
        quarter,
    ),
    case("heartbeat_earlier_by_two_round_trips", "the smoothed round-trip is taken off the interval, twice", earlier),
    case(
        "heartbeat_at_once_where_the_way_is_slow",
        "2·rtt ≥ lease/4: the next one as soon as the answer is in",
        at_once,
    ),
    case("heartbeat_one_unanswered_at_most", "a heartbeat without its answer is followed by no other", one_unanswered),
    case("heartbeat_in_the_queue", "a waiter sends heartbeats as a holder does", queued),
    case("b07_prompt_heartbeats_are_never_lost", "a hold over five leases is not signalled", prompt),
    case(
        "b14_second_hold_has_its_heartbeats",
        "lost, taken again on the same client, held for five leases",
        second_hold,
    ),
    case("b29_floor_of_short_leases", "the heartbeat floor is min(100 ms, lease/4)", floor),
];

fn gaps(instants: &[Instant]) -> Vec<Duration> {
    instants.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

pub(super) fn median(mut durations: Vec<Duration>) -> Duration {
    durations.sort_unstable();
    durations.get(durations.len() / 2).copied().unwrap_or_default()
}

fn ensure_between(what: &str, found: Duration, least: u64, most: u64) -> Outcome {
    let (least, most) = (Duration::from_millis(least), Duration::from_millis(most));
    ensure(least <= found && found <= most, || format!("expected {what} from {least:?} to {most:?}; came {found:.1?}"))
}

fn quarter(world: &World) -> Outcome {
    let server = world.server();
    let (peer, begun) = world.hold(&server, &Op::acquire(1, &server, 2000))?;
    let beats = peer.answer(Duration::from_millis(4300), &acquired(TOKEN))?;
    ensure(beats.len() >= 5, || format!("expected at least 5 heartbeats in 4.3 s; came {}", beats.len()))?;
    let all = gaps(&[&[begun], &beats[..]].concat());
    ensure_between("the gaps between heartbeats in the median", median(all), 330, 580)?;
    world.release(1, &peer)
}

/// Answers each heartbeat so long after it came; the arrivals.
fn answer_late(peer: &Peer, delay: Duration, count: usize) -> Outcome<Vec<(Instant, Instant)>> {
    let mut beats = Vec::new();
    for _ in 0..count {
        let came = peer.expect_heartbeat(SOON)?;
        thread::sleep((came + delay).saturating_duration_since(Instant::now()));
        peer.send(&acquired(TOKEN));
        beats.push((came, Instant::now()));
    }
    Ok(beats)
}

fn earlier(world: &World) -> Outcome {
    let server = world.server();
    let delay = Duration::from_millis(120);
    world.ask(&Op::acquire(1, &server, 2000))?;
    let peer = world.accept(&server)?;
    peer.expect_acquire()?;
    thread::sleep(delay);
    peer.send(&acquired(TOKEN));
    world.expect_acquired(1, TOKEN)?;
    let beats = answer_late(&peer, delay, 15)?;
    let late: Vec<_> = beats.iter().skip(8).map(|(came, _)| *came).collect();
    // 500 − 2·120 = 260; counted from the receipt it would be 380, and without the round-trips 500.
    ensure_between("the gaps between heartbeats in the median", median(gaps(&late)), 120, 340)?;
    world.release(1, &peer)
}

fn at_once(world: &World) -> Outcome {
    let server = world.server();
    let delay = Duration::from_millis(65);
    world.ask(&Op::acquire(1, &server, 480))?;
    let peer = world.accept(&server)?;
    peer.expect_acquire()?;
    thread::sleep(delay);
    peer.send(&acquired(TOKEN));
    world.expect_acquired(1, TOKEN)?;
    let beats = answer_late(&peer, delay, 24)?;
    let after = beats.windows(2).skip(13).map(|pair| pair[1].0.saturating_duration_since(pair[0].1)).collect();
    // With the floor of 100 ms instead of "at once" it would be 35 ms.
    ensure_between("the time from an answer to the next heartbeat in the median", median(after), 0, 22)?;
    world.release(1, &peer)
}

fn one_unanswered(world: &World) -> Outcome {
    let server = world.server();
    let (peer, _) = world.hold(&server, &Op::acquire(1, &server, 6000))?;
    peer.expect_heartbeat(SOON)?;
    peer.send(&acquired(TOKEN));
    peer.expect_heartbeat(SOON)?;
    // Another one would have come after 1.5 s; the give-up is 0.55 leases away.
    peer.nothing(Duration::from_millis(2400))?;
    peer.send(&acquired(TOKEN));
    peer.expect_heartbeat(PROMPTLY)?;
    peer.send(&acquired(TOKEN));
    world.release(1, &peer)
}

fn queued(world: &World) -> Outcome {
    let server = world.server();
    let (peer, begun) = world.queue(&server, &Op::acquire(1, &server, 2000))?;
    let beats = peer.answer(Duration::from_millis(4300), &waiting())?;
    ensure(beats.len() >= 5, || format!("expected at least 5 heartbeats in 4.3 s; came {}", beats.len()))?;
    ensure_between(
        "the gaps between heartbeats in the median",
        median(gaps(&[&[begun], &beats[..]].concat())),
        330,
        580,
    )?;
    peer.send(&acquired(TOKEN));
    world.expect_acquired(1, TOKEN)?;
    world.release(1, &peer)
}

fn prompt(world: &World) -> Outcome {
    let server = world.server();
    let (peer, _) = world.hold(&server, &Op::acquire(1, &server, 2000))?;
    let beats = peer.answer(Duration::from_secs(10), &acquired(TOKEN))?;
    ensure(beats.len() >= 12, || format!("expected at least 12 heartbeats in 10 s; came {}", beats.len()))?;
    world.quiet(1, Duration::ZERO)?;
    world.expect_held(1, true)?;
    world.release(1, &peer)
}

fn second_hold(world: &World) -> Outcome {
    let server = world.server();
    let acquire = |id| Op::acquire(id, &server, 2000).with("client", "one");
    let (peer, _) = world.hold(&server, &acquire(1))?;
    peer.answer(Duration::from_millis(700), &acquired(TOKEN))?;
    peer.finish();
    world.expect_lost(1, "closed", None, Instant::now() + PROMPTLY)?;
    drop(peer);
    world.ask(&acquire(2))?;
    let peer = world.accept(&server)?;
    peer.expect_acquire()?;
    peer.send(&acquired(TOKEN + 1));
    world.expect_acquired(2, TOKEN + 1)?;
    let beats = peer.answer(Duration::from_secs(10), &acquired(TOKEN + 1))?;
    ensure(beats.len() >= 12, || format!("expected at least 12 heartbeats in 10 s; came {}", beats.len()))?;
    world.quiet(2, Duration::ZERO)?;
    world.expect_held(2, true)?;
    world.expect_held(1, false)?;
    world.release(2, &peer)
}

fn floor(world: &World) -> Outcome {
    // So short leases may be lost on a busy machine: the heartbeats are what is looked at.
    for (id, lease_ms) in [(1, 100), (2, 399), (3, 400), (4, 401)] {
        let server = world.server();
        let op = Op::acquire(id, &server, lease_ms);
        let held = if lease_ms < 300 { hold_if_in_time(world, &server, &op)? } else { Some(world.hold(&server, &op)?) };
        let Some((peer, begun)) = held else { continue };
        let beats: Vec<Instant> = (0..8)
            .map_while(|_| {
                let came = peer.expect_heartbeat(Duration::from_millis(lease_ms)).ok()?;
                peer.send(&acquired(TOKEN));
                Some(came)
            })
            .collect();
        if beats.len() == 8 {
            let found = median(gaps(&[&[begun], &beats[..]].concat()));
            // Under the shortest, a round-trip of 13 ms is slow enough for "at once".
            let least = if lease_ms < 300 { 0 } else { lease_ms / 8 };
            ensure_between(&format!("the gaps under a lease of {lease_ms} ms"), found, least, lease_ms / 4 + 45)?;
        }
        world.tell("release", id)?;
        drop(peer);
        while world
            .driver
            .next(Some(id), Instant::now() + PROMPTLY)
            .is_some_and(|event| event.body["event"] != "released")
        {}
    }
    world.driver.take_unread();
    Ok(())
}

/// Acquires a free lock, as [`World::hold`] does. `None`: the answer came after the give-up.
fn hold_if_in_time(world: &World, server: &Server, op: &Op) -> Outcome<Option<(Peer, Instant)>> {
    world.ask(op)?;
    let peer = world.accept(server)?;
    let (at, ..) = peer.expect_acquire()?;
    peer.send(&acquired(TOKEN));
    let Some(event) = world.driver.next(Some(op.id()), Instant::now() + SOON) else {
        return fail("expected acquired or error; nothing came");
    };
    if event.body["event"] == "error" {
        world.same(&event, "kind", &"unreachable".into())?;
        return Ok(None);
    }
    world.same(&event, "event", &"acquired".into())?;
    world.same(&event, "token", &TOKEN.to_string().into())?;
    Ok(Some((peer, at)))
}
