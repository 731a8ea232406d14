//! The Rust client of monolock: named locks with leases and fencing tokens.
//!
//! ```
//! # #[cfg(feature = "tokio")]
//! # mod example {
//! use std::time::Duration;
//!
//! use monolock_client::{Client, Held, WithLockError};
//!
//! # pub
//! async fn nightly_import(server: &str) -> Result<(), WithLockError<std::io::Error>> {
//!     let client = Client::builder(server).build().map_err(WithLockError::NotAcquired)?;
//!     // Waits until this process owns the lock, runs the work, and releases the lock when it returns.
//!     client.with_lock("nightly-import", Duration::from_secs(10), import).await
//! }
//!
//! async fn import(held: Held) -> Result<(), std::io::Error> {
//!     // Hand the token to whatever the lock guards, so that it can refuse a holder that lost the lock and does not know it.
//!     println!("writing with token {}", held.token());
//!     Ok(())
//! }
//! # }
//! # #[cfg(feature = "tokio")]
//! # fn main() {
//! # use std::io::{Read, Write};
//! # let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
//! # let server = listener.local_addr().unwrap().to_string();
//! # let serving = std::thread::spawn(move || {
//! #     let (mut stream, _) = listener.accept().unwrap();
//! #     stream.read_exact(&mut [0; 22]).unwrap();
//! #     stream.write_all(&[0x12, 0, 0, 0, 0, 0, 0, 0, 41]).unwrap();
//! #     stream.read_to_end(&mut Vec::new()).unwrap();
//! # });
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//! # runtime.block_on(example::nightly_import(&server)).unwrap();
//! # serving.join().unwrap();
//! # }
//! # #[cfg(not(feature = "tokio"))]
//! # fn main() {}
//! ```
//!
//! There are two clients with one vocabulary: the async `Client` on tokio (feature `tokio`, on by default) and
//! [`blocking::Client`] on plain threads, which needs no runtime. Both move bytes for one pure [`session::Session`],
//! which keeps the rules of the protocol (`docs/protocol.md`, "What a client must do").
//!
//! # What is promised
//!
//! - Every claim is a connection of its own, and closing it is the release. Nothing is re-acquired silently: a lock
//!   that was lost stays lost, and a new turn begins at the back of the queue.
//! - A lock that is not confirmed counts as lost 0.8 leases after the sending of the last frame that was, which is
//!   before the server gives it to another. [`Held::is_held`] asks a clock that runs on while the machine sleeps (see
//!   [`clock`]), so it is right after a suspend or a stopped process, before anything else has run.
//! - The loss reaches everybody who asks, before or after, with its [`LossReason`].
//! - A process can be stopped between its last look and its write. No client can prevent that: the guarded resource
//!   can, by refusing any token below the largest it saw.
//! - Over TLS (`Builder::tls`) all of this holds as well: a frame counts as sent before it is encrypted, and an end of
//!   the connection is the end, with a farewell or without.
//! - Leases run from [`MIN_LEASE_MS`] to 2^32 − 1 milliseconds. Anything else is an error before anything is dialled.
//!
//! # Errors
//!
//! One opaque [`Error`] with one of seven [kinds](ErrorKind), the same in every monolock client: cancelled, wait
//! timeout, contended, denied, lost, unreachable, invalid.

pub mod blocking;
pub mod clock;
pub mod session;

mod alarm;
mod backoff;
mod cancel;
mod claim;
mod claims;
mod config;
mod dial;
#[cfg(feature = "tokio")]
mod driver;
mod error;
mod held;
#[cfg(all(doctest, feature = "tokio"))]
mod manual;
mod resolve;
mod security;
mod signal;
mod transport;

pub use cancel::Cancel;
pub use config::{Builder, MIN_LEASE_MS};
#[cfg(feature = "tokio")]
pub use driver::{Client, LockGuard};
pub use error::{Error, ErrorKind, WithLockError};
pub use held::Held;
pub use monolock_core::wire::{ErrorClass, ErrorCode, UnknownServerFrame};
pub use monolock_core::{Lease, LeaseError, LockName, LockNameError, Timestamp, Token};
#[cfg(feature = "tls")]
pub use rustls;
pub use session::{LossReason, ProtocolViolation};
