//! The monolock server as a library: it maps wire frames to engine calls.
//!
//! [`Server`] is a value: bind it, ask for its address, run it until a future is ready. `docs/protocol.md` is its
//! contract towards clients.
//!
//! A handover is one hop: the task that sees the holder go writes the next waiter's `ACQUIRED` into that waiter's
//! socket itself.

mod accept;
mod acl;
mod admin;
mod administration;
mod audit;
mod audit_sink;
mod builder;
mod clock;
mod connection;
#[cfg(unix)]
mod descriptors;
mod event;
mod event_stream;
mod events;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod guard;
mod http;
mod limits;
mod metrics;
mod ops;
mod outbox;
mod page;
mod passed;
mod policy;
#[cfg(target_os = "linux")]
mod process;
mod repeated;
mod reserve;
mod server;
mod session;
mod shards;
mod shared;
mod socket;
mod sync;
mod tls;
mod token_file;
#[cfg(unix)]
mod unix_socket;
mod uri;
mod witness;

pub use acl::{Acl, AclError, AclRule};
pub use admin::{AdminAccess, AdminListen, AdminSettings};
pub use audit::{AuditFailure, AuditLog, AuditSink};
pub use builder::{ServerBuilder, StartError};
#[cfg(unix)]
pub use descriptors::raise_descriptor_limit;
pub use limits::Limits;
pub use passed::{AdminSocket, SocketPurpose};
pub use policy::PolicyError;
pub use server::{AuditFailed, Counts, Server, ServerHandle};
pub use tls::{TlsError, TlsFiles};
pub use token_file::TokenFileError;
