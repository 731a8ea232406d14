//! What tasks and threads of the server share and wait for each other with.
//!
//! Whatever interleaving could matter to goes through here, through [`socket`](crate::socket), through
//! [`clock`](crate::clock) and through the audit log's [`sink`](crate::audit_sink). `testing/model` gives these four
//! another inside and compiles the rest of the session's path a second time, as it stands: `connection`, `outbox`,
//! `shards`, `session`, `shared`, `limits`, `administration`, `witness` and `audit`. There a scheduler chooses every
//! step that one task can notice of another, so these modules take locks, atomics and wakers from here and nowhere
//! else.
//!
//! Not modelled are weak memory orderings (the two atomics and the token sequence must be right by themselves), the
//! inside of the libraries, the TLS machine, the accept loop and HTTP; `testing/model/src/lib.rs` has the list.

use std::io;

pub(crate) use std::sync::atomic::AtomicBool;
pub(crate) use std::sync::mpsc;

pub(crate) use atomic_waker::AtomicWaker;
pub(crate) use parking_lot::{Condvar, Mutex};
pub(crate) use tokio::sync::Notify;
pub(crate) use tokio::task::yield_now;

/// Starts a thread that nobody waits for.
///
/// # Errors
/// The system has no thread left.
pub(crate) fn start_thread(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
}
