//! What tasks and threads of the server share and wait for each other with.
//!
//! Whatever interleaving could matter to goes through here, through [`socket`](crate::socket) and through
//! [`clock`](crate::clock): a program that gives these modules another inside sees and steers every step that one task
//! can notice of another.

use std::io;

pub(crate) use std::sync::atomic::AtomicBool;
pub(crate) use std::sync::mpsc;

pub(crate) use atomic_waker::AtomicWaker;
pub(crate) use parking_lot::{Condvar, Mutex};
pub(crate) use tokio::sync::Notify;

/// Starts a thread that nobody waits for.
///
/// # Errors
/// The system has no thread left.
pub(crate) fn start_thread(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
}
