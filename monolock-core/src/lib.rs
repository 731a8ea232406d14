#![no_std]
#![doc = "x"]
extern crate alloc;

mod glob;
mod lease;
mod name;
mod time;
mod token;
pub mod wire;

pub use glob::Glob;
pub use lease::{Lease, LeaseError};
pub use name::{LockName, LockNameError, LockNameRef, MAX_NAME_BYTES};
pub use time::Timestamp;
pub use token::{Token, TokenSequence};
