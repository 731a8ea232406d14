//! Work under the lock.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Case, case};
use crate::driver::Event;
use crate::outcome::{Outcome, ensure};
use crate::server::{SOON, Server, acquired, error, waiting};
use crate::world::{MARGIN, Op, PROMPTLY, TOKEN, World};

pub(super) const CASES: &[Case] = &[
    case(
        "b10_cancel_keeps_the_lock_until_the_work_ends",
        "asked to stop, the work takes 3 leases: heartbeats go on till then",
        cancel,
    ),
    case("b11_loss_stops_the_work", "dark under the work: it is told before the server's expiry", told),
    case("b11_work_fails_and_lock_is_lost", "the work's own error stands, the loss is joined to it", both),
    case("b11_work_fails", "the work's error alone; the connection closes", failed),
    case("b11_work_succeeds", "the work's end is the release", succeeded),
    case("b11_work_ends_after_a_loss", "work that ends well without the lock is reported lost", lost),
    case("b12_wait_limit_of_work", "the body never runs", never_runs),
    case("b10_cancel_before_the_work", "cancelled in the queue, the body never runs", cancelled_queued),
    case("work_runs_at_most_once", "lost during the work: in the retry form it is not run again", at_most_once),
    case("b49_work_denied", "the refusal's kind and code come through", denied),
];

fn work(server: &Server, lease_ms: u64) -> Op {
    Op::acquire(1, server, lease_ms).work()
}

fn begin(world: &World, server: &Server, op: &Op) -> Outcome<crate::server::Peer> {
    world.ask(op)?;
    let peer = world.accept(server)?;
    peer.expect_acquire()?;
    peer.send(&acquired(TOKEN));
    let started = world.expect(1, "started", SOON)?;
    world.same(&started, "token", &json!(TOKEN.to_string()))?;
    Ok(peer)
}

fn finish(world: &World, result: &str) -> Outcome {
    world.driver.send(&json!({"op": "finish", "id": 1, "result": result}))
}

fn expect_done(world: &World, kind: &Value, work_failed: bool, lost: &Value) -> Outcome<Event> {
    let done = world.expect(1, "done", PROMPTLY)?;
    world.same(&done, "outcome", &json!("error"))?;
    world.same(&done, "kind", kind)?;
    world.same(&done, "work_failed", &json!(work_failed))?;
    world.same(&done, "lost", lost)?;
    Ok(done)
}

/// Finishes work that was told of a loss, and ends well or was dropped at the loss: it is reported lost either way.
fn finish_after_loss(world: &World, reason: &str) -> Outcome {
    finish(world, "ok")?;
    expect_done(world, &json!("lost"), false, &json!(reason))?;
    Ok(())
}

fn cancel(world: &World) -> Outcome {
    let server = world.server();
    let peer = begin(world, &server, &work(&server, 2000))?;
    peer.answer(Duration::from_millis(700), &acquired(TOKEN))?;
    let asked = Instant::now();
    world.tell("cancel", 1)?;
    let beats = peer.answer(Duration::from_secs(6), &acquired(TOKEN))?;
    world.expect_by(1, "stop_requested", asked + PROMPTLY)?;
    ensure(beats.len() >= 7, || format!("expected at least 7 heartbeats in 6 s; came {}", beats.len()))?;
    world.quiet(1, Duration::ZERO)?;
    finish(world, "ok")?;
    let done = world.expect(1, "done", PROMPTLY)?;
    world.same(&done, "lost", &Value::Null)?;
    // Work that was asked to stop and ended well has succeeded; where the language says so, it was cancelled.
    ensure(done.body["outcome"] == "ok" || done.body["kind"] == "cancelled", || {
        format!("expected ok or cancelled; came {}", done.body)
    })?;
    peer.expect_close(PROMPTLY)?;
    Ok(())
}

fn told(world: &World) -> Outcome {
    let server = world.server();
    let lease = Duration::from_secs(5);
    let peer = begin(world, &server, &work(&server, 5000))?;
    peer.expect_heartbeat(SOON)?;
    peer.send(&acquired(TOKEN));
    let confirmed = peer.expect_heartbeat(SOON)?;
    peer.send(&acquired(TOKEN));
    world.expect_by(1, "stop_requested", confirmed + lease.saturating_sub(MARGIN))?;
    finish_after_loss(world, "timeout")?;
    peer.expect_close(PROMPTLY)?;
    Ok(())
}

fn both(world: &World) -> Outcome {
    let server = world.server();
    let peer = begin(world, &server, &work(&server, 20_000))?;
    peer.finish();
    world.expect(1, "stop_requested", PROMPTLY)?;
    // A client whose work is dropped at the loss is done before it is told to finish.
    let dropped = world.driver.next(Some(1), Instant::now() + PROMPTLY);
    let work_failed = dropped.is_none();
    let done = if let Some(done) = dropped {
        world.same(&done, "kind", &json!("lost"))?;
        done
    } else {
        finish(world, "fail")?;
        world.expect(1, "done", PROMPTLY)?
    };
    world.same(&done, "event", &json!("done"))?;
    world.same(&done, "outcome", &json!("error"))?;
    world.same(&done, "work_failed", &json!(work_failed))?;
    world.same(&done, "lost", &json!("closed"))?;
    peer.expect_close(PROMPTLY)?;
    Ok(())
}

fn failed(world: &World) -> Outcome {
    let server = world.server();
    let peer = begin(world, &server, &work(&server, 20_000))?;
    finish(world, "fail")?;
    expect_done(world, &Value::Null, true, &Value::Null)?;
    peer.expect_close(PROMPTLY)?;
    Ok(())
}

fn succeeded(world: &World) -> Outcome {
    let server = world.server();
    let peer = begin(world, &server, &work(&server, 20_000))?;
    peer.nothing(Duration::from_millis(300))?;
    finish(world, "ok")?;
    let done = world.expect(1, "done", PROMPTLY)?;
    world.same(&done, "outcome", &json!("ok"))?;
    peer.expect_close(PROMPTLY)?;
    Ok(())
}

fn lost(world: &World) -> Outcome {
    let server = world.server();
    let peer = begin(world, &server, &work(&server, 20_000))?;
    peer.send(&error(0x02, "closed by administrator"));
    peer.finish();
    world.expect(1, "stop_requested", PROMPTLY)?;
    finish_after_loss(world, "server_error")?;
    peer.expect_close(PROMPTLY)?;
    Ok(())
}

fn never_runs(world: &World) -> Outcome {
    let server = world.server();
    world.ask(&work(&server, 20_000).with("wait_ms", 500))?;
    let peer = world.accept(&server)?;
    peer.expect_acquire()?;
    peer.send(&waiting());
    let done = world.expect(1, "done", Duration::from_millis(500) + PROMPTLY)?;
    world.same(&done, "kind", &json!("wait_timeout"))?;
    world.same(&done, "work_failed", &json!(false))?;
    peer.expect_close(PROMPTLY)?;
    world.quiet(1, Duration::from_millis(200))
}

fn cancelled_queued(world: &World) -> Outcome {
    let server = world.server();
    world.ask(&work(&server, 20_000))?;
    let peer = world.accept(&server)?;
    peer.expect_acquire()?;
    peer.send(&waiting());
    world.quiet(1, Duration::from_millis(200))?;
    world.tell("cancel", 1)?;
    expect_done(world, &json!("cancelled"), false, &Value::Null)?;
    peer.expect_close(PROMPTLY)?;
    Ok(())
}

fn at_most_once(world: &World) -> Outcome {
    let server = world.server();
    let peer = begin(world, &server, &work(&server, 20_000).retry())?;
    peer.send(&error(0x01, "server shutting down"));
    peer.finish();
    world.expect(1, "stop_requested", PROMPTLY)?;
    finish_after_loss(world, "server_error")?;
    server.nobody(Duration::from_millis(700))?;
    world.quiet(1, Duration::from_millis(100))
}

fn denied(world: &World) -> Outcome {
    let server = world.server();
    world.ask(&work(&server, 20_000))?;
    let peer = world.accept(&server)?;
    peer.expect_acquire()?;
    peer.send(&error(0x18, "not authorized for lock"));
    peer.finish();
    let done = expect_done(world, &json!("denied"), false, &Value::Null)?;
    world.same(&done, "code", &json!(0x18))?;
    peer.expect_close(PROMPTLY)?;
    Ok(())
}
