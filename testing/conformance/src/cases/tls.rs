//! TLS, and proof of who the client is.

use std::time::Duration;

use serde_json::Value;

use super::{Case, case};
use crate::outcome::{Outcome, Stop, ensure};
use crate::server::{Server, acquired, waiting};
use crate::world::{Op, PROMPTLY, TOKEN, World};

pub(super) const CASES: &[Case] = &[
    case("tls_hold", "heartbeats over TLS, then the release", hold),
    case("tls_push_cut_in_pieces", "a push over TLS, cut and glued", push),
    case("tls_mutual", "the client shows its certificate", mutual),
    case("tls_mutual_without_a_certificate", "a server that asks for one is unreachable without", no_certificate),
    case(
        "tls_unknown_authority",
        "a server that nobody vouches for is unreachable, and no ACQUIRE is sent",
        unknown_authority,
    ),
    case("tls_wrong_name", "a certificate for another name: unreachable, and no ACQUIRE is sent", wrong_name),
    case(
        "b46_tls_mute_handshake_then_living",
        "one accepts and never shakes hands: the next has its share",
        mute_then_living,
    ),
    case("b46_tls_failed_handshake_then_living", "one fails the handshake: the next is tried", failed_then_living),
    case("b50_cancel_in_the_handshake", "back at once, the socket is closed", cancel),
    case("tls_server_without_tls", "a plain client before a TLS server: unreachable", plain_client),
];

fn secured(op: Op, options: Value) -> Op {
    op.with("tls", options)
}

fn hold(world: &World) -> Outcome {
    let authority = world.authority();
    let server = Server::with_tls(&authority.server(), &world.timeline);
    let op = secured(Op::acquire(1, &server, 4000), authority.options());
    let (peer, _) = world.hold(&server, &op)?;
    let beats = peer.answer(Duration::from_millis(4500), &acquired(TOKEN))?;
    ensure(beats.len() >= 3, || format!("expected at least 3 heartbeats in 4.5 s; came {}", beats.len()))?;
    world.expect_held(1, true)?;
    world.release(1, &peer)
}

fn push(world: &World) -> Outcome {
    let authority = world.authority();
    let server = Server::with_tls(&authority.server(), &world.timeline);
    for (id, position) in [(1, 1), (2, 4), (3, 10)] {
        world.ask(&secured(Op::acquire(id, &server, 4000), authority.options()))?;
        let peer = world.accept(&server)?;
        peer.expect_acquire()?;
        let stream = [waiting(), acquired(TOKEN)].concat();
        let (head, tail) = stream.split_at(position);
        peer.send_pieces(&[head, tail], Duration::from_millis(50));
        world.expect_acquired(id, TOKEN)?;
        world.release(id, &peer)?;
    }
    Ok(())
}

fn mutual(world: &World) -> Outcome {
    let authority = world.authority();
    let server = Server::with_tls(&authority.strict_server(), &world.timeline);
    let op = secured(Op::acquire(1, &server, 4000), authority.mutual_options());
    let (peer, _) = world.hold(&server, &op)?;
    world.release(1, &peer)
}

/// The call ends as unreachable; an `ACQUIRE` must not have been sent.
fn unreachable(world: &World, server: &Server, op: &Op) -> Outcome {
    world.ask(op)?;
    let event = world.expect(op.id(), "error", Duration::from_secs(6))?;
    world.same(&event, "kind", &"unreachable".into())?;
    if let Some(peer) = server.poll(Duration::ZERO) {
        peer.expect_close(PROMPTLY)?;
    }
    Ok(())
}

fn no_certificate(world: &World) -> Outcome {
    let authority = world.authority();
    let server = Server::with_tls(&authority.strict_server(), &world.timeline);
    unreachable(world, &server, &secured(Op::acquire(1, &server, 20_000), authority.options()))
}

fn unknown_authority(world: &World) -> Outcome {
    let (authority, other) = (world.authority(), world.authority());
    let server = Server::with_tls(&authority.server(), &world.timeline);
    unreachable(world, &server, &secured(Op::acquire(1, &server, 20_000), other.options()))
}

fn wrong_name(world: &World) -> Outcome {
    let authority = world.authority();
    let server = Server::with_tls(&authority.server(), &world.timeline);
    let mut options = authority.options();
    options["server_name"] = "elsewhere.example".into();
    unreachable(world, &server, &secured(Op::acquire(1, &server, 20_000), options))
}

fn serve_second(world: &World, first: String, living: &Server, options: Value) -> Outcome {
    let op = Op::at(1, &[first, living.address()], 30_000).with("connect_timeout_ms", 4000);
    world.ask(&secured(op, options))?;
    let peer = world.accept(living)?;
    peer.expect_acquire()?;
    peer.send(&acquired(TOKEN));
    world.expect_acquired(1, TOKEN)?;
    world.release(1, &peer)
}

fn mute_then_living(world: &World) -> Outcome {
    let authority = world.authority();
    let mute = std::net::TcpListener::bind("127.0.0.1:0").map_err(|error| Stop::Skipped(error.to_string()))?;
    let address = mute.local_addr().map_err(|error| Stop::Skipped(error.to_string()))?.to_string();
    let living = Server::with_tls(&authority.server(), &world.timeline);
    serve_second(world, address, &living, authority.options())
}

fn failed_then_living(world: &World) -> Outcome {
    let (authority, other) = (world.authority(), world.authority());
    let strange = Server::with_tls(&other.server(), &world.timeline);
    let living = Server::with_tls(&authority.server(), &world.timeline);
    serve_second(world, strange.address(), &living, authority.options())
}

fn cancel(world: &World) -> Outcome {
    let authority = world.authority();
    let mute = std::net::TcpListener::bind("127.0.0.1:0").map_err(|error| Stop::Skipped(error.to_string()))?;
    let address = mute.local_addr().map_err(|error| Stop::Skipped(error.to_string()))?.to_string();
    world.ask(&secured(Op::at(1, &[address], 30_000), authority.options()))?;
    match world.driver.next(Some(1), std::time::Instant::now() + Duration::from_millis(400)) {
        None => {}
        Some(event) if event.body["unsupported"] == true => {
            return Err(Stop::Skipped("the driver does not support it".to_owned()));
        }
        Some(event) => return crate::outcome::fail(format!("expected no event; came {}", event.body)),
    }
    world.tell("cancel", 1)?;
    world.expect_error(1, "cancelled", None, PROMPTLY)?;
    Ok(())
}

fn plain_client(world: &World) -> Outcome {
    let authority = world.authority();
    let server = Server::with_tls(&authority.server(), &world.timeline);
    world.ask(&Op::acquire(1, &server, 20_000))?;
    world.expect_error(1, "unreachable", None, PROMPTLY)?;
    Ok(())
}
