//! What is asked for: leases and names at their edges.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Case, case};
use crate::outcome::{Outcome, ensure, fail};
use crate::server::{acquired, error};
use crate::world::{Op, PROMPTLY, TOKEN, World};

pub(super) const CASES: &[Case] = &[
    case("b30_lease_0", "refused before dialling", lease_0),
    case("b30_lease_0_4_ms", "refused before dialling", lease_fraction),
    case("b30_lease_1500_5_ms", "no whole milliseconds: refused before dialling", lease_not_whole),
    case("b30_lease_negative", "refused before dialling", lease_negative),
    case("b30_lease_nan", "refused before dialling", lease_nan),
    case("b30_lease_infinity", "refused before dialling", lease_infinity),
    case("b30_lease_2_32", "refused before dialling", lease_2_32),
    case("b30_lease_2_32_minus_1", "exact on the wire", lease_longest),
    case("b29_leases_too_short_to_be_kept", "1, 2 and 19 ms: refused before dialling", leases_too_short),
    case("b29_short_leases_are_exact", "50, 100, 399, 400 and 401 ms: exact on the wire", leases_short),
    case("name_empty", "invalid", name_empty),
    case("name_too_long", "256 bytes and 300: invalid", name_too_long),
];

fn refused(world: &World, id: u64, lease_ms: impl Into<Value>) -> Outcome {
    let server = world.server();
    world.ask(&Op::acquire(id, &server, 1000).with("lease_ms", lease_ms))?;
    world.expect_error(id, "invalid", None, PROMPTLY)?;
    server.nobody(Duration::from_millis(200))
}

fn lease_0(world: &World) -> Outcome {
    refused(world, 1, 0)
}

fn lease_fraction(world: &World) -> Outcome {
    refused(world, 1, 0.4)
}

fn lease_not_whole(world: &World) -> Outcome {
    refused(world, 1, 1500.5)
}

fn lease_negative(world: &World) -> Outcome {
    refused(world, 1, -1)
}

fn lease_nan(world: &World) -> Outcome {
    refused(world, 1, "NaN")
}

fn lease_infinity(world: &World) -> Outcome {
    refused(world, 1, "Infinity")
}

fn lease_2_32(world: &World) -> Outcome {
    refused(world, 1, 1_u64 << 32)
}

fn leases_too_short(world: &World) -> Outcome {
    [1, 2, 19].into_iter().zip(1..).try_for_each(|(lease_ms, id)| refused(world, id, lease_ms))
}

/// The `ACQUIRE` carries this lease; whether it can be kept on this machine is not looked at.
fn exact(world: &World, id: u64, expected: u64) -> Outcome {
    let server = world.server();
    world.ask(&Op::acquire(id, &server, expected))?;
    let peer = world.accept(&server)?;
    let (_, lease_ms, _) = peer.expect_acquire()?;
    ensure(u64::from(lease_ms) == expected, || format!("expected a lease of {expected} ms; came {lease_ms}"))?;
    peer.send(&error(0x18, "not authorized for lock"));
    peer.finish();
    let event = world.expect(id, "error", PROMPTLY)?;
    // The give-up of the shortest is 40 ms away.
    let in_time = expected >= 1000 || event.body["kind"] == "denied";
    if in_time {
        world.same(&event, "kind", &json!("denied"))
    } else {
        world.same(&event, "kind", &json!("unreachable"))
    }
}

fn leases_short(world: &World) -> Outcome {
    [50, 100, 399, 400, 401].into_iter().zip(1..).try_for_each(|(lease_ms, id)| exact(world, id, lease_ms))
}

fn lease_longest(world: &World) -> Outcome {
    exact(world, 1, u64::from(u32::MAX))?;
    let server = world.server();
    let (peer, _) = world.hold(&server, &Op::acquire(2, &server, u64::from(u32::MAX)))?;
    // A timer of 40 days that wraps or is cut to nothing would fire at once.
    peer.nothing(Duration::from_millis(500))?;
    world.quiet(2, Duration::ZERO)?;
    world.expect_held(2, true)?;
    world.release(2, &peer)
}

/// Refused before dialling, or by the server: invalid either way.
fn bad_name(world: &World, id: u64, name: &str, code: u8) -> Outcome {
    let server = world.server();
    world.ask(&Op::acquire(id, &server, 20_000).with("name", name))?;
    let by = Instant::now() + PROMPTLY;
    let mut dialled = Vec::new();
    while Instant::now() < by {
        if let Some(event) = world.driver.next(Some(id), Instant::now() + Duration::from_millis(20)) {
            world.same(&event, "event", &json!("error"))?;
            return world.same(&event, "kind", &json!("invalid"));
        }
        if let Some(peer) = server.poll(Duration::ZERO) {
            peer.send(&error(code, "as it is"));
            peer.finish();
            dialled.push(peer);
        }
    }
    fail("expected error; nothing came")
}

fn name_empty(world: &World) -> Outcome {
    bad_name(world, 1, "", 0x14)
}

fn name_too_long(world: &World) -> Outcome {
    bad_name(world, 1, &"x".repeat(256), 0x15)?;
    bad_name(world, 2, &"€".repeat(100), 0x15)?;
    // The longest that is allowed.
    let server = world.server();
    world.ask(&Op::acquire(3, &server, 20_000).with("name", "€".repeat(85)))?;
    let peer = world.accept(&server)?;
    peer.expect_acquire()?;
    peer.send(&acquired(TOKEN));
    world.expect_acquired(3, TOKEN)?;
    world.release(3, &peer)
}
