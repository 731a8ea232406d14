//! What a session of monolock-net takes of the heap, counted for as many sessions as wanted: a million, where a process
//! has 20 000 descriptors.
//!
//! The modules of the server stand here as they ship: the same files, compiled a second time, as in `testing/model`.
//! The network alone is another: a stream in memory, whose room is reserved before anything is counted. So what is
//! counted is all that the server takes for a session, its task included, and nothing of the system: not the socket
//! itself, and not the place where tokio registers it.
//!
//! The program `monolock-capacity` prints the figures; the test holds a smaller crowd to the same limits.
#![expect(dead_code, reason = "not all that the server has is used")]
#![expect(unreachable_pub, reason = "what monolock-net publishes is not published again")]

#[path = "../../../monolock-net/src/acl.rs"]
mod acl;
#[path = "../../../monolock-net/src/administration.rs"]
mod administration;
#[path = "../../../monolock-net/src/audit.rs"]
mod audit;
#[path = "../../../monolock-net/src/audit_sink.rs"]
mod audit_sink;
#[path = "../../../monolock-net/src/clock.rs"]
mod clock;
#[path = "../../../monolock-net/src/connection.rs"]
mod connection;
mod crowd;
#[path = "../../../monolock-net/src/event.rs"]
mod event;
#[path = "../../../monolock-net/src/events.rs"]
mod events;
#[path = "../../../monolock-net/src/limits.rs"]
#[expect(clippy::struct_field_names, reason = "the names of the settings, which monolock-net publishes")]
mod limits;
#[path = "../../../monolock-net/src/metrics.rs"]
mod metrics;
#[path = "../../../monolock-net/src/outbox.rs"]
mod outbox;
#[path = "../../../monolock-net/src/policy.rs"]
mod policy;
#[path = "../../../monolock-net/src/repeated.rs"]
mod repeated;
#[path = "../../../monolock-net/src/session.rs"]
mod session;
#[path = "../../../monolock-net/src/shards.rs"]
mod shards;
#[path = "../../../monolock-net/src/shared.rs"]
mod shared;
mod socket;
#[path = "../../../monolock-net/src/sync.rs"]
mod sync;
#[path = "../../../monolock-net/src/tls.rs"]
mod tls;
#[path = "../../../monolock-net/src/token_file.rs"]
mod token_file;
#[path = "../../../monolock-net/src/witness.rs"]
mod witness;

pub use crowd::{Claims, Taken, measure};
