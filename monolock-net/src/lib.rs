//! The monolock server as a library: it maps wire frames to engine calls.
//!
//! [`Server`] is a value: bind it, ask for its address, run it until a future is ready. `PROTOCOL.md` is its contract towards clients.
//!
//! A handover is one hop: the task that sees the holder go writes the next waiter's `ACQUIRED` into that waiter's socket itself.

mod accept;
mod clock;
mod connection;
#[cfg(unix)]
mod descriptors;
mod outbox;
mod server;
mod session;
mod shards;

#[cfg(unix)]
pub use descriptors::raise_descriptor_limit;
pub use server::{Server, ServerBuilder, ServerHandle};
