//! Everything that monolock-net promises, over real sockets and in raw bytes.
//!
//! Clients here are blocking sockets that know the protocol from `docs/protocol.md` and nothing else. What must have
//! happened before the next step is shown by a frame or by the number of sessions, never by the passing of time.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test that unwraps fails where it stands")]
#![expect(clippy::unchecked_time_subtraction, reason = "a test that goes before its beginning fails where it stands")]

mod child;
mod client;
mod follower;
mod http;
mod server;

mod admin;
mod embedded;
mod errors;
mod events;
mod frames;
mod hostile;
mod leases;
mod many_threads;
mod ops;
mod page;
mod queue;
mod stop;
mod transport;
