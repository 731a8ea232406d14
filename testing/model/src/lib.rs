//! The concurrency of monolock-net, under a scheduler that chooses every step.
//!
//! The modules of the server stand here as they ship: the same files, compiled a second time. What they share and wait
//! for each other with (`sync`), the network (`socket`), the time (`clock`) and the audit log's file (`audit_sink`) are
//! others here, so that [shuttle](https://docs.rs/shuttle) decides at each use of them which task goes on. A model plays
//! clients, an operator, the time and a stop against the server, in thousands of interleavings, and each of these can
//! be repeated.
//!
//! # What must hold
//!
//! In every interleaving, at each frame and at the end (`world.rs`):
//! - No client is told `WAITING` after `ACQUIRED`, another token than its first, or anything after an `ERROR`.
//! - The bytes that a socket took are those of the frames that were pushed, in order: all of them where the client
//!   stayed, a beginning of them where it did not.
//! - Each heartbeat is answered once while its session lives.
//! - Nobody waits for ever: a wake-up that is lost leaves a client waiting for its frame, or a task for its end, and
//!   the scheduler reports that as a deadlock. No timeout of the model comes to help, but where time is a part of it.
//! - In the audit log the `released` of a lock stands before its next `granted`, and tokens rise; every grant has one
//!   end.
//! - At the end no session is left in the engine, in the table of connections or in the limits' counts, no connection
//!   is alive, and no task of one.
//!
//! # What is not modelled
//!
//! - **Weak memory.** Every step is seen by all at once, whatever ordering an atomic asks for. The two atomics of these
//!   modules (`has_unread`, `is_unannounced`) and the token sequence need a look instead.
//! - **The inside of what is not ours**: atomic-waker, tokio's `Notify`, `CancellationToken` and `TaskTracker`,
//!   arc-swap and rustls. Each call is one step.
//! - **The accept loop, HTTP, the token file's keeper and TLS**: the first three share nothing with a session but what
//!   is modelled; with TLS the sessions are the same, and its machine's lock is not taken here.
//! - **More than one shard**: a session knows one, and shards have no order among each other that anybody is promised.
#![expect(dead_code, reason = "not all that the server has is played against")]
#![expect(unreachable_pub, reason = "what monolock-net publishes is not published again")]

#[path = "../../../monolock-net/src/acl.rs"]
mod acl;
#[path = "../../../monolock-net/src/administration.rs"]
mod administration;
#[path = "../../../monolock-net/src/audit.rs"]
mod audit;
mod audit_sink;
mod client;
mod clock;
#[path = "../../../monolock-net/src/connection.rs"]
mod connection;
#[path = "../../../monolock-net/src/event.rs"]
mod event;
#[path = "../../../monolock-net/src/events.rs"]
mod events;
#[path = "../../../monolock-net/src/limits.rs"]
#[expect(clippy::struct_field_names, reason = "the names of the settings, which monolock-net publishes")]
mod limits;
#[path = "../../../monolock-net/src/metrics.rs"]
mod metrics;
mod outbox;
#[path = "../../../monolock-net/src/policy.rs"]
mod policy;
#[path = "../../../monolock-net/src/repeated.rs"]
mod repeated;
pub mod scenarios;
mod schedules;
#[path = "../../../monolock-net/src/session.rs"]
mod session;
#[path = "../../../monolock-net/src/shards.rs"]
mod shards;
#[path = "../../../monolock-net/src/shared.rs"]
mod shared;
mod socket;
mod sync;
#[path = "../../../monolock-net/src/tls.rs"]
mod tls;
#[path = "../../../monolock-net/src/token_file.rs"]
mod token_file;
#[path = "../../../monolock-net/src/witness.rs"]
mod witness;
mod world;

pub use schedules::{Search, check};
