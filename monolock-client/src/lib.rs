//! The Rust client of monolock: named locks with leases and fencing tokens.
//!
//! There are two clients with one vocabulary: the async `Client` on tokio (feature `tokio`, on by default) and
//! [`blocking::Client`] on plain threads. Both move bytes for one pure [`session::Session`], which keeps the rules.
pub mod blocking;
pub mod clock;
pub mod session;

mod alarm;
mod backoff;
mod cancel;
mod claim;
mod config;
mod dial;
#[cfg(feature = "tokio")]
mod driver;
mod error;
mod held;
mod resolve;
mod signal;

pub use cancel::Cancel;
pub use config::{Builder, MIN_LEASE_MS};
#[cfg(feature = "tokio")]
pub use driver::{Client, LockGuard};
pub use error::{Error, ErrorKind, WithLockError};
pub use held::Held;
pub use monolock_core::wire::{ErrorClass, ErrorCode, UnknownServerFrame};
pub use monolock_core::{Lease, LeaseError, LockName, LockNameError, Timestamp, Token};
pub use session::{LossReason, ProtocolViolation};
