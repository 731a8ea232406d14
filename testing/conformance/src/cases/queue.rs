//! Waiting for a turn.

use std::time::{Duration, Instant};

use super::{Case, case};
use crate::outcome::{Outcome, ensure, fail};
use crate::server::{Arrived, SOON, acquired, error, waiting};
use crate::world::{MARGIN, Op, PROMPTLY, TOKEN, World};

pub(super) const CASES: &[Case] = &[
    case(
        "b19_dark_while_queued",
        "the replies stop in the queue: lost at 0.8 leases, before the server drops the waiter",
        dark,
    ),
    case(
        "b18_leaves_in_the_moment_of_promotion",
        "cancelled as the push comes: granted and released, or never",
        leaving,
    ),
    case("b50_cancel_leaves_nothing_behind", "no thread and no file after 100 cancelled waits", nothing_left),
    case("queued_then_granted", "the push makes a waiter the holder", granted),
    case("queue_closed", "the end of the stream in the queue", closed),
    case("queue_reset", "a reset in the queue", reset),
    case("queue_server_condition", "an ERROR below 0x10 in the queue", condition),
    case("queue_client_error", "an ERROR from 0x10 up in the queue", client_error),
    case("queue_unasked_waiting", "a WAITING that answers nothing", unasked),
    case("b12_wait_limit", "the wait limit passes: wait_timeout, and the place is given up", wait_limit),
    case("b12_wait_limit_not_reached", "a grant within the wait limit is kept beyond it", within_limit),
    case("b27_twice_for_one_name", "one client asks twice: it queues behind itself, nothing is held twice", twice),
    case("b09_reacquire_on_the_same_client", "a new connection, a larger token, heartbeats of its own", again),
    case("b09_release_twice", "the second release is harmless", release_twice),
    case("release_closes_the_connection", "the release is the close", release),
    case("try_free", "try gets a free lock", try_free),
    case("b49_contended", "try does not wait", contended),
    case("b50_cancel_in_the_queue", "back at once, and the place is given up", cancel_queued),
    case("end_of_input_releases_all", "the driver ends with its input, and so do its connections", end_of_input),
];

fn granted(world: &World) -> Outcome {
    let server = world.server();
    // The next heartbeat, which would find the grant as well, is 5 s away.
    let (peer, _) = world.queue(&server, &Op::acquire(1, &server, 20_000))?;
    world.quiet(1, Duration::from_millis(500))?;
    let pushed = Instant::now();
    peer.send(&acquired(TOKEN));
    world.expect_by(1, "acquired", pushed + PROMPTLY)?;
    world.expect_held(1, true)?;
    world.release(1, &peer)
}

fn dark(world: &World) -> Outcome {
    let server = world.server();
    let lease = Duration::from_secs(5);
    let (peer, _) = world.queue(&server, &Op::acquire(1, &server, 5000))?;
    peer.expect_heartbeat(SOON)?;
    peer.send(&waiting());
    let confirmed = peer.expect_heartbeat(SOON)?;
    peer.send(&waiting());
    let lost = world.expect_by(1, "error", confirmed + lease.saturating_sub(MARGIN))?;
    world.same(&lost, "kind", &"lost".into())?;
    ensure(lost.at >= confirmed + lease * 7 / 10, || "expected the loss at 0.8 leases; it came before 0.7".into())?;
    peer.expect_close(PROMPTLY)?;
    peer.send(&acquired(TOKEN));
    world.quiet(1, Duration::from_millis(300))
}

fn leaving(world: &World) -> Outcome {
    for id in 1..=30 {
        let server = world.server();
        let (peer, _) = world.queue(&server, &Op::acquire(id, &server, 5000))?;
        if id % 2 == 0 {
            peer.send(&acquired(TOKEN));
            world.tell("cancel", id)?;
        } else {
            world.tell("cancel", id)?;
            peer.send(&acquired(TOKEN));
        }
        let Some(event) = world.driver.next(Some(id), Instant::now() + SOON) else {
            return fail("expected acquired or error; nothing came");
        };
        if event.body["event"] == "acquired" {
            world.release(id, &peer)?;
        } else {
            world.same(&event, "kind", &"cancelled".into())?;
            peer.expect_close(PROMPTLY)?;
        }
    }
    Ok(())
}

fn nothing_left(world: &World) -> Outcome {
    let server = world.server();
    let mut before = None;
    for id in 1..=120 {
        let (peer, _) = world.queue(&server, &Op::acquire(id, &server, 20_000).with("client", "one"))?;
        world.tell("cancel", id)?;
        world.expect_error(id, "cancelled", None, PROMPTLY)?;
        peer.expect_close(PROMPTLY)?;
        if id == 20 {
            // What a runtime keeps for later is there by now.
            before = world.driver.belongings();
        }
    }
    let by = Instant::now() + SOON;
    while let (Some(before), Some(after)) = (before, world.driver.belongings()) {
        if after.0 <= before.0 + 8 && after.1 <= before.1 + 8 {
            break;
        }
        ensure(Instant::now() < by, || {
            format!("expected about {} threads and {} files; came {} and {}", before.0, before.1, after.0, after.1)
        })?;
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn closed(world: &World) -> Outcome {
    let server = world.server();
    let (peer, _) = world.queue(&server, &Op::acquire(1, &server, 4000))?;
    peer.expect_heartbeat(SOON)?;
    peer.send(&waiting());
    peer.finish();
    world.expect_error(1, "lost", None, PROMPTLY)?;
    Ok(())
}

fn reset(world: &World) -> Outcome {
    let server = world.server();
    let (peer, _) = world.queue(&server, &Op::acquire(1, &server, 4000))?;
    peer.expect_heartbeat(SOON)?;
    peer.send(&waiting());
    peer.expect_heartbeat(SOON)?;
    peer.reset();
    world.expect_error(1, "lost", None, PROMPTLY)?;
    Ok(())
}

fn queued_error(world: &World, code: u8) -> Outcome {
    let server = world.server();
    let (peer, _) = world.queue(&server, &Op::acquire(1, &server, 4000))?;
    peer.expect_heartbeat(SOON)?;
    peer.send(&waiting());
    peer.send(&error(code, "as it is"));
    peer.finish();
    world.expect_error(1, "lost", Some(code), PROMPTLY)?;
    server.nobody(Duration::from_millis(400))
}

fn condition(world: &World) -> Outcome {
    queued_error(world, 0x02)
}

fn client_error(world: &World) -> Outcome {
    queued_error(world, 0x13)
}

fn unasked(world: &World) -> Outcome {
    let server = world.server();
    let (peer, _) = world.queue(&server, &Op::acquire(1, &server, 20_000))?;
    peer.send(&waiting());
    world.expect_error(1, "lost", None, PROMPTLY)?;
    peer.expect_close(PROMPTLY)?;
    Ok(())
}

fn wait_limit(world: &World) -> Outcome {
    let server = world.server();
    let begun = Instant::now();
    let (peer, _) = world.queue(&server, &Op::acquire(1, &server, 20_000).with("wait_ms", 600))?;
    let event = world.expect_error(1, "wait_timeout", None, Duration::from_millis(600) + PROMPTLY)?;
    ensure(event.at >= begun + Duration::from_millis(500), || {
        "expected wait_timeout after 600 ms; it came before 500".into()
    })?;
    peer.expect_close(PROMPTLY)?;
    Ok(())
}

fn within_limit(world: &World) -> Outcome {
    let server = world.server();
    let (peer, _) = world.queue(&server, &Op::acquire(1, &server, 20_000).with("wait_ms", 2500))?;
    std::thread::sleep(Duration::from_millis(300));
    peer.send(&acquired(TOKEN));
    world.expect_acquired(1, TOKEN)?;
    world.quiet(1, Duration::from_millis(2600))?;
    world.expect_held(1, true)?;
    world.release(1, &peer)
}

fn twice(world: &World) -> Outcome {
    let server = world.server();
    let acquire = |id| Op::acquire(id, &server, 20_000).with("client", "one");
    let (first, _) = world.hold(&server, &acquire(1))?;
    let (second, _) = world.queue(&server, &acquire(2))?;
    world.quiet(2, Duration::from_millis(400))?;
    world.release(1, &first)?;
    second.send(&acquired(TOKEN + 1));
    world.expect_acquired(2, TOKEN + 1)?;
    world.expect_held(1, false)?;
    world.expect_held(2, true)?;
    world.release(2, &second)
}

fn again(world: &World) -> Outcome {
    let server = world.server();
    let acquire = |id| Op::acquire(id, &server, 2000).with("client", "one");
    let (first, _) = world.hold(&server, &acquire(1))?;
    first.answer(Duration::from_millis(700), &acquired(TOKEN))?;
    world.release(1, &first)?;
    world.ask(&acquire(2))?;
    let second = world.accept(&server)?;
    second.expect_acquire()?;
    second.send(&acquired(TOKEN + 1));
    world.expect_acquired(2, TOKEN + 1)?;
    let beats = second.answer(Duration::from_secs(3), &acquired(TOKEN + 1))?;
    ensure(beats.len() >= 4, || format!("expected at least 4 heartbeats in 3 s; came {}", beats.len()))?;
    world.expect_held(2, true)?;
    world.release(2, &second)
}

fn release_twice(world: &World) -> Outcome {
    let server = world.server();
    let (peer, _) = world.hold(&server, &Op::acquire(1, &server, 20_000))?;
    world.release(1, &peer)?;
    world.tell("release", 1)?;
    world.expect(1, "released", PROMPTLY)?;
    world.expect_held(1, false)?;
    world.quiet(1, Duration::from_millis(300))
}

fn release(world: &World) -> Outcome {
    let server = world.server();
    let (peer, _) = world.hold(&server, &Op::acquire(1, &server, 20_000))?;
    world.expect_held(1, true)?;
    world.release(1, &peer)?;
    world.expect_held(1, false)?;
    // A release is no loss.
    world.quiet(1, Duration::from_millis(300))?;
    server.nobody(Duration::from_millis(100))
}

fn try_free(world: &World) -> Outcome {
    let server = world.server();
    let (peer, _) = world.hold(&server, &Op::acquire(1, &server, 20_000).only_try())?;
    world.release(1, &peer)
}

fn contended(world: &World) -> Outcome {
    let server = world.server();
    let (peer, _) = world.queue(&server, &Op::acquire(1, &server, 20_000).only_try())?;
    world.expect_error(1, "contended", None, PROMPTLY)?;
    peer.expect_close(PROMPTLY)?;
    Ok(())
}

fn cancel_queued(world: &World) -> Outcome {
    let server = world.server();
    let (peer, _) = world.queue(&server, &Op::acquire(1, &server, 4000))?;
    peer.expect_heartbeat(SOON)?;
    peer.send(&waiting());
    world.tell("cancel", 1)?;
    world.expect_error(1, "cancelled", None, PROMPTLY)?;
    peer.expect_close(PROMPTLY)?;
    Ok(())
}

fn end_of_input(world: &World) -> Outcome {
    let server = world.server();
    let (peer, _) = world.hold(&server, &Op::acquire(1, &server, 20_000))?;
    let (waiter, _) = world.queue(&server, &Op::acquire(2, &server, 20_000))?;
    world.driver.close_input();
    peer.expect_close(SOON)?;
    waiter.expect_close(SOON)?;
    world.driver.expect_end()?;
    let second = peer.next(Instant::now());
    ensure(!second.is_some_and(|arrival| matches!(arrival.what, Arrived::Acquire { .. })), || {
        "a second ACQUIRE came".into()
    })?;
    world.driver.take_unread();
    Ok(())
}
