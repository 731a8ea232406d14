//! Reaching a server: several addresses, dead and mute ones, and the connect deadline.

use std::net::ToSocketAddrs;
use std::time::{Duration, Instant};

use super::{Case, case};
use crate::outcome::{Outcome, Stop, ensure};
use crate::server::{DeafPort, RefusingPort, SOON, Server, acquired, error};
use crate::world::{Op, PROMPTLY, TOKEN, World};

pub(super) const CASES: &[Case] = &[
    case("b46_mute_then_living", "one accepts and says nothing: the next has its share of the deadline", mute_first),
    case("b46_deaf_then_living", "one answers no connection attempt", deaf_first),
    case("b46_dead_then_living", "one refuses", dead_first),
    case("b46_closing_then_living", "one closes before its answer", closing_first),
    case("b46_server_condition_then_living", "one says that it is shutting down", condition_first),
    case("b46_client_error_ends_the_search", "a code from 0x10 up is final for all addresses", client_error_first),
    case("b46_name_with_a_dead_address", "localhost, served on IPv4 alone", name),
    case("b46_all_dead", "unreachable, at once", all_dead),
    case(
        "mute_server_within_the_connect_timeout",
        "unreachable when the connect timeout is over; the socket is closed",
        mute,
    ),
    case("deaf_server_within_the_connect_timeout", "unreachable when the connect timeout is over", deaf),
    case("mute_server_within_the_default", "without a connect timeout it is 5 seconds", mute_by_default),
    case("b50_cancel_before_a_mute_server", "back at once, the socket is closed", cancel_mute),
    case("b50_cancel_while_connecting", "back at once", cancel_deaf),
];

fn serve(world: &World, server: &Server, within: Duration) -> Outcome {
    let peer = server.accept(within)?;
    peer.expect_acquire()?;
    peer.send(&acquired(TOKEN));
    world.expect_acquired(1, TOKEN)?;
    world.release(1, &peer)
}

/// Two addresses, of which the second is `living`.
fn then(first: String, living: &Server) -> Op {
    Op::at(1, &[first, living.address()], 30_000).with("connect_timeout_ms", 10_000)
}

/// The same, where the first takes all of its share: half of this.
fn after_the_share_of(first: String, living: &Server) -> Op {
    then(first, living).with("connect_timeout_ms", 4000)
}

fn deaf_port() -> Outcome<DeafPort> {
    DeafPort::new().ok_or_else(|| Stop::Skipped("this system answers connection attempts beyond the queue".to_owned()))
}

fn dead_first(world: &World) -> Outcome {
    let (dead, living) = (RefusingPort::new(), world.server());
    world.ask(&then(dead.address(), &living))?;
    serve(world, &living, PROMPTLY)
}

fn mute_first(world: &World) -> Outcome {
    let (mute, living) = (world.server(), world.server());
    world.ask(&after_the_share_of(mute.address(), &living))?;
    let _silent = mute.accept(PROMPTLY)?;
    serve(world, &living, Duration::from_secs(4))
}

fn deaf_first(world: &World) -> Outcome {
    let (deaf, living) = (deaf_port()?, world.server());
    world.ask(&after_the_share_of(deaf.address(), &living))?;
    serve(world, &living, Duration::from_secs(4))
}

fn closing_first(world: &World) -> Outcome {
    let (closing, living) = (world.server(), world.server());
    world.ask(&then(closing.address(), &living))?;
    closing.accept(PROMPTLY)?.reset();
    serve(world, &living, PROMPTLY)
}

fn condition_first(world: &World) -> Outcome {
    let (stopping, living) = (world.server(), world.server());
    world.ask(&then(stopping.address(), &living))?;
    let peer = stopping.accept(PROMPTLY)?;
    peer.expect_acquire()?;
    peer.send(&error(0x01, "server shutting down"));
    peer.finish();
    serve(world, &living, PROMPTLY)
}

fn client_error_first(world: &World) -> Outcome {
    let (refusing, living) = (world.server(), world.server());
    world.ask(&then(refusing.address(), &living))?;
    let peer = refusing.accept(PROMPTLY)?;
    peer.expect_acquire()?;
    peer.send(&error(0x18, "not authorized for lock"));
    peer.finish();
    world.expect_error(1, "denied", Some(0x18), PROMPTLY)?;
    living.nobody(Duration::from_millis(400))
}

fn name(world: &World) -> Outcome {
    let living = world.server();
    let host = format!("localhost:{}", living.port());
    let resolves = host.to_socket_addrs().is_ok_and(|mut found| found.any(|address| address.is_ipv4()));
    if !resolves {
        return Err(Stop::Skipped("localhost has no IPv4 address here".to_owned()));
    }
    world.ask(&Op::at(1, &[host], 30_000))?;
    serve(world, &living, SOON)
}

fn all_dead(world: &World) -> Outcome {
    let (one, two) = (RefusingPort::new(), RefusingPort::new());
    world.ask(&Op::at(1, &[one.address(), two.address()], 30_000))?;
    world.expect_error(1, "unreachable", None, PROMPTLY)?;
    Ok(())
}

/// The call ends as unreachable, no earlier than this and not much later.
fn unreachable_after(world: &World, begun: Instant, timeout: Duration) -> Outcome {
    let event = world.expect_error(1, "unreachable", None, timeout + PROMPTLY)?;
    let earliest = begun + timeout * 9 / 10;
    ensure(event.at >= earliest, || {
        format!("expected unreachable after {timeout:?}; it came after {:?}", event.at - begun)
    })
}

fn mute(world: &World) -> Outcome {
    let server = world.server();
    let begun = Instant::now();
    world.ask(&Op::acquire(1, &server, 30_000).with("connect_timeout_ms", 800))?;
    let peer = world.accept(&server)?;
    peer.expect_acquire()?;
    unreachable_after(world, begun, Duration::from_millis(800))?;
    peer.expect_close(PROMPTLY)?;
    Ok(())
}

fn deaf(world: &World) -> Outcome {
    let port = deaf_port()?;
    let begun = Instant::now();
    world.ask(&Op::at(1, &[port.address()], 30_000).with("connect_timeout_ms", 800))?;
    unreachable_after(world, begun, Duration::from_millis(800))
}

fn mute_by_default(world: &World) -> Outcome {
    let server = world.server();
    let begun = Instant::now();
    world.ask(&Op::acquire(1, &server, 60_000))?;
    let peer = world.accept(&server)?;
    peer.expect_acquire()?;
    unreachable_after(world, begun, Duration::from_secs(5))?;
    peer.expect_close(PROMPTLY)?;
    Ok(())
}

fn cancel_mute(world: &World) -> Outcome {
    let server = world.server();
    world.ask(&Op::acquire(1, &server, 30_000))?;
    let peer = world.accept(&server)?;
    peer.expect_acquire()?;
    world.tell("cancel", 1)?;
    world.expect_error(1, "cancelled", None, PROMPTLY)?;
    peer.expect_close(PROMPTLY)?;
    Ok(())
}

fn cancel_deaf(world: &World) -> Outcome {
    let port = deaf_port()?;
    world.ask(&Op::at(1, &[port.address()], 30_000))?;
    world.quiet(1, Duration::from_millis(300))?;
    world.tell("cancel", 1)?;
    world.expect_error(1, "cancelled", None, PROMPTLY)?;
    Ok(())
}
