//! The pure heart of monolock: who holds which lock, what goes over the wire, which names a pattern means.
//!
//! Nothing here does I/O, reads a clock or draws a random number. A driver stamps each input with its own time and
//! carries the effects out, so the same code runs in a server, inside another program, under a fake clock and under a
//! fuzzer.
//!
//! - [`LockEngine`] decides who holds which lock: `acquire`, `heartbeat`, `release`, `tick`.
//! - [`wire`] turns frames into bytes and bytes into frames. It and the engine do not know each other.
//! - [`Glob`] matches names and identities.
//!
//! ```
//! use std::hash::RandomState;
//! use std::sync::Arc;
//!
//! use monolock_core::{Acquire, Effects, Lease, LockEngine, LockNameRef, Standing, Timestamp, TokenSequence};
//!
//! let mut engine = LockEngine::new(Arc::new(TokenSequence::new()), RandomState::new());
//! let mut effects = Effects::new();
//! let lease = Lease::from_millis(2000).expect("2000 is not zero");
//! let request = Acquire { name: LockNameRef::new("nightly-import")?, lease };
//!
//! let holder = engine.acquire(Timestamp::from_millis(0), request, &mut effects)?;
//! let waiter = engine.acquire(Timestamp::from_millis(100), request, &mut effects)?;
//! engine.heartbeat(Timestamp::from_millis(1500), waiter, &mut effects)?;
//!
//! // The holder stays silent for its lease; the next in the queue owns the lock.
//! assert_eq!(engine.next_deadline(), Some(Timestamp::from_millis(2000)));
//! engine.tick(Timestamp::from_millis(2000), &mut effects);
//! assert!(engine.session(holder).is_none());
//! assert!(matches!(engine.session(waiter).map(|session| session.standing()), Some(Standing::Holding(_))));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod deadlines;
mod effect;
mod engine;
mod glob;
mod lease;
mod name;
mod slab;
mod time;
mod token;
mod view;
pub mod wire;

pub use effect::{Effect, Effects, ReleaseReason, Standing};
pub use engine::{Acquire, AcquireError, LockEngine, SessionId, UnknownSession};
pub use glob::Glob;
pub use lease::{Lease, LeaseError};
pub use name::{LockName, LockNameError, LockNameRef, MAX_NAME_BYTES};
pub use time::Timestamp;
pub use token::{Token, TokenSequence};
pub use view::{LockView, SessionView};
