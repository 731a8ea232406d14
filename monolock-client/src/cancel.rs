//! Cancelling from outside: one switch for any number of calls, of both drivers.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::signal::{Signal, Subscription};

/// A switch that ends the acquiring of locks and asks guarded work to stop.
///
/// Bind it with [`Client::cancel_on`](crate::blocking::Client::cancel_on). While a lock is still being acquired,
/// cancelling makes the call return [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled). Once work runs under the
/// lock, cancelling only tells it ([`Held::is_cancelled`](crate::Held::is_cancelled)): heartbeats go on, and the lock
/// is released when the work has ended.
///
/// Clones are the same switch.
///
/// ```
/// let cancel = monolock_client::Cancel::new();
/// cancel.clone().cancel();
/// assert!(cancel.is_cancelled());
/// ```
#[derive(Clone)]
pub struct Cancel(Arc<Signal<()>>);

impl Cancel {
    /// A switch that nobody has used.
    pub fn new() -> Self {
        Self(Signal::new())
    }

    /// Uses it. Twice is harmless.
    pub fn cancel(&self) {
        self.0.set(());
    }

    /// Whether it was used.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_set()
    }

    /// Waits until it is used.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + Unpin + use<> {
        self.0.wait()
    }

    /// Waits on this thread until it is used, at most so long; says whether it was.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.0.wait_timeout(timeout).is_some()
    }

    pub(crate) fn subscribe(&self, callback: impl FnOnce() + Send + 'static) -> Subscription<()> {
        self.0.subscribe(Box::new(|()| callback()))
    }
}

impl Default for Cancel {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cancel").field(&self.is_cancelled()).finish()
    }
}
