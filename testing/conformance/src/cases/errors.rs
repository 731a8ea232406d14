//! What a refusal is called: the seven kinds, and the codes by their range.

use std::time::{Duration, Instant};

use super::{Case, case};
use crate::outcome::Outcome;
use crate::server::{RefusingPort, acquired, error};
use crate::world::{Op, PROMPTLY, TOKEN, World};

pub(super) const CASES: &[Case] = &[
    case("b49_unreachable_refused", "a refused port", refused),
    case("b49_unreachable_closed", "closed before the answer", closed),
    case("b49_unreachable_reset", "reset before the answer", reset),
    case("b49_unreachable_01", "the server is shutting down", code_01),
    case("b49_unreachable_03", "a limit is reached", code_03),
    case("b49_unreachable_0f", "an unknown code below 0x10", code_0f),
    case("b49_invalid_10", "the first code that is the client's fault", code_10),
    case("b49_invalid_19", "the lease is too long for the operator", code_19),
    case("b49_invalid_ff", "an unknown code from 0x10 up", code_ff),
    case("b49_denied", "0x18", code_18),
    case("b49_cancelled", "cancelled before the answer", cancelled),
    case("unknown_code_0f_under_a_holder", "lost, with its code", held_0f),
    case("unknown_code_7e_under_a_holder", "lost, with its code", held_7e),
    case("reason_is_not_read", "a reason that is no UTF-8 and full of control characters", odd_reason),
];

fn refused(world: &World) -> Outcome {
    let port = RefusingPort::new();
    world.ask(&Op::at(1, &[port.address()], 20_000))?;
    world.expect_error(1, "unreachable", None, PROMPTLY)?;
    Ok(())
}

fn closed(world: &World) -> Outcome {
    let server = world.server();
    world.ask(&Op::acquire(1, &server, 20_000))?;
    let peer = world.accept(&server)?;
    peer.expect_acquire()?;
    peer.finish();
    world.expect_error(1, "unreachable", None, PROMPTLY)?;
    peer.expect_close(PROMPTLY)?;
    Ok(())
}

fn reset(world: &World) -> Outcome {
    let server = world.server();
    world.ask(&Op::acquire(1, &server, 20_000))?;
    let peer = world.accept(&server)?;
    peer.expect_acquire()?;
    peer.reset();
    world.expect_error(1, "unreachable", None, PROMPTLY)?;
    Ok(())
}

fn answered(world: &World, code: u8, kind: &str) -> Outcome {
    let server = world.server();
    world.ask(&Op::acquire(1, &server, 20_000))?;
    let peer = world.accept(&server)?;
    peer.expect_acquire()?;
    peer.send(&error(code, "not authorized for lock"));
    peer.finish();
    world.expect_error(1, kind, Some(code), PROMPTLY)?;
    peer.expect_close(PROMPTLY)?;
    server.nobody(Duration::from_millis(300))
}

fn code_01(world: &World) -> Outcome {
    answered(world, 0x01, "unreachable")
}

fn code_03(world: &World) -> Outcome {
    answered(world, 0x03, "unreachable")
}

fn code_0f(world: &World) -> Outcome {
    answered(world, 0x0f, "unreachable")
}

fn code_10(world: &World) -> Outcome {
    answered(world, 0x10, "invalid")
}

fn code_18(world: &World) -> Outcome {
    answered(world, 0x18, "denied")
}

fn code_19(world: &World) -> Outcome {
    answered(world, 0x19, "invalid")
}

fn code_ff(world: &World) -> Outcome {
    answered(world, 0xff, "invalid")
}

fn cancelled(world: &World) -> Outcome {
    let server = world.server();
    world.ask(&Op::acquire(1, &server, 20_000))?;
    let peer = world.accept(&server)?;
    peer.expect_acquire()?;
    world.tell("cancel", 1)?;
    world.expect_error(1, "cancelled", None, PROMPTLY)?;
    server.nobody(Duration::from_millis(300))
}

fn held(world: &World, bytes: &[u8], code: u8) -> Outcome {
    let server = world.server();
    let (peer, _) = world.hold(&server, &Op::acquire(1, &server, 20_000))?;
    peer.send(bytes);
    peer.finish();
    world.expect_lost(1, "server_error", Some(code), Instant::now() + PROMPTLY)?;
    peer.expect_close(PROMPTLY)?;
    server.nobody(Duration::from_millis(300))
}

fn held_0f(world: &World) -> Outcome {
    held(world, &error(0x0f, ""), 0x0f)
}

fn held_7e(world: &World) -> Outcome {
    held(world, &error(0x7e, "something new"), 0x7e)
}

fn odd_reason(world: &World) -> Outcome {
    held(world, b"\x13\x02\x07\xff\n\x1b[31m", 0x02)?;
    let server = world.server();
    world.ask(&Op::acquire(2, &server, 20_000))?;
    let peer = world.accept(&server)?;
    peer.expect_acquire()?;
    peer.send(&acquired(TOKEN));
    world.expect_acquired(2, TOKEN)?;
    world.release(2, &peer)
}
