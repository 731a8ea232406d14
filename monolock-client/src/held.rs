//! What the holder sees of its lock, and how it learns of the loss.
//!
//! A hold is believed in until an absolute instant, which the session moves on with every confirmation. Looking
//! compares that instant with the clock, so the answer is right even where no task or thread of the driver has run for
//! hours; and a look that finds it past ends the hold for good, whatever the driver reads afterwards.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use monolock_core::{LockName, Timestamp, Token};

use crate::cancel::Cancel;
use crate::clock::Clock;
use crate::error::{Error, WithLockError};
use crate::session::{LossReason, Session};
use crate::signal::Signal;

/// A lock that was granted, seen from the work that it guards.
///
/// Clones see the same hold, from any task or thread. It does not keep the lock: dropping the guard releases it.
#[derive(Clone)]
pub struct Held(Arc<Hold>);

struct Hold {
    name: LockName,
    token: Token,
    clock: Arc<dyn Clock>,
    cancel: Cancel,
    /// The instant from which the hold must not be believed in, in nanoseconds of `clock`; [`OVER`] once it has ended.
    believed_until: AtomicU64,
    /// When `max_hold` ends it, whatever is confirmed.
    limit: Option<Timestamp>,
    lost: Arc<Signal<LossReason>>,
}

/// Every instant is past this one.
const OVER: u64 = 0;

impl Held {
    /// The fencing token: larger than that of any earlier grant. Hand it to whatever the lock guards, which must refuse
    /// a token below the largest it saw.
    pub fn token(&self) -> Token {
        self.0.token
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        &self.0.name
    }

    /// Whether the lock is still held, by the clock: false from the give-up instant on, although nothing has run since
    /// and whatever lies unread in the socket. Once false, it stays false. After the release it is false too.
    pub fn is_held(&self) -> bool {
        let until = self.0.believed_until.load(Ordering::Acquire);
        if until == OVER {
            return false;
        }
        if self.0.clock.now().as_nanos() < until {
            return true;
        }
        // Whoever reads "no" must never read "yes" again: if a confirmation was faster, the question is asked anew.
        match self.0.believed_until.compare_exchange(until, OVER, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                let at_its_limit = self.0.limit.is_some_and(|limit| limit.as_nanos() <= until);
                self.0.lost.set(if at_its_limit { LossReason::MaxHold } else { LossReason::Timeout });
                false
            }
            Err(_) => self.is_held(),
        }
    }

    /// Waits until the lock is lost, and says how.
    ///
    /// May be called before, during and after the loss, from any number of tasks and threads; each learns of it once. A
    /// lock that is released was not lost: then this stays pending.
    pub fn lost(&self) -> impl Future<Output = LossReason> + Send + Unpin + use<> {
        self.0.lost.wait()
    }

    /// Waits on this thread until the lock is lost, at most so long, and says how. `None`: not lost so far, or
    /// released.
    pub fn wait_lost(&self, timeout: Duration) -> Option<LossReason> {
        self.0.lost.wait_timeout(timeout)
    }

    /// Calls `callback` when the lock is lost; at once and on this thread, if it has been. Otherwise it runs on the
    /// thread that notices the loss and must not block. A release drops it uncalled.
    pub fn on_lost(&self, callback: impl FnOnce(LossReason) + Send + 'static) {
        self.0.lost.call(Box::new(callback));
    }

    /// How the lock was lost, if it was: by the clock, like [`is_held`](Self::is_held).
    pub fn loss(&self) -> Option<LossReason> {
        self.is_held();
        self.0.lost.value()
    }

    /// Whether the caller asked the work to stop, with the [`Cancel`] that the client was bound to. The lock is held on
    /// until the work has ended.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancel.is_cancelled()
    }

    /// Waits until the caller asks the work to stop.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + Unpin + use<> {
        self.0.cancel.cancelled()
    }

    pub(crate) fn new(token: Token, clock: Arc<dyn Clock>, cancel: Cancel, session: &Session) -> Self {
        let believed_until = session.gives_up_at().map_or(OVER, Timestamp::as_nanos);
        let (name, limit) = (session.config().name.clone(), session.hold_ends_at());
        let believed_until = AtomicU64::new(believed_until);
        Self(Arc::new(Hold { name, token, clock, cancel, believed_until, limit, lost: Signal::new() }))
    }

    /// Moves the instant on. Says no where the hold has ended.
    pub(crate) fn believe_until(&self, instant: Timestamp) -> bool {
        let known = self.0.believed_until.load(Ordering::Acquire);
        let instant = instant.as_nanos();
        // The driver alone moves it on, so what else can have come between is the end.
        known != OVER
            && self.0.believed_until.compare_exchange(known, instant, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The hold is lost. First it is over, then it is told.
    pub(crate) fn end(&self, reason: LossReason) {
        self.0.believed_until.store(OVER, Ordering::Release);
        self.0.lost.set(reason);
    }

    /// The hold is over and was not lost.
    pub(crate) fn release(&self) {
        self.0.believed_until.store(OVER, Ordering::Release);
        self.0.lost.close();
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("name", &self.0.name)
            .field("token", &self.0.token)
            .field("is_held", &self.is_held())
            .finish()
    }
}

/// What a piece of guarded work came to: its own error stands, and a loss is joined to it.
pub(crate) fn join<T, E>(
    name: LockName,
    ended: Option<Result<T, E>>,
    loss: Option<LossReason>,
) -> Result<T, WithLockError<E>> {
    match (ended, loss) {
        (Some(Err(error)), loss) => Err(WithLockError::Work { error, loss }),
        (Some(Ok(value)), None) => Ok(value),
        (Some(Ok(_)), Some(reason)) => Err(WithLockError::Lost(Error::lost(name, reason))),
        // Work is dropped at a loss only.
        (None, reason) => Err(WithLockError::Lost(Error::lost(name, reason.unwrap_or(LossReason::Timeout)))),
    }
}
