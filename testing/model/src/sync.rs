//! What tasks and threads share, each use of it a step that the scheduler chooses.
//!
//! Wakers, notifications and their like are the real ones, each call one step: what goes on inside of them is their
//! authors' proof.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

pub(crate) use shuttle::future::yield_now;
pub(crate) use shuttle::sync::atomic::AtomicBool;
pub(crate) use shuttle::sync::mpsc;
use tokio::sync::futures::Notified;

/// A lock, with the manners of `parking_lot`.
#[derive(Default)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

/// `None` only while a [`Condvar`] waits.
pub(crate) struct MutexGuard<'a, T>(Option<shuttle::sync::MutexGuard<'a, T>>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex(..)")
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("the guard is there while nobody waits")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("the guard is there while nobody waits")
    }
}

/// A condition, with the manners of `parking_lot`. No wait is over by time, so that a wake-up that is lost is seen.
#[derive(Debug, Default)]
pub(crate) struct Condvar(shuttle::sync::Condvar);

impl Condvar {
    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().expect("nobody else waits with it");
        guard.0 = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _patience: Duration) {
        self.wait(guard);
    }
}

/// A place where the scheduler may go on with another task.
#[derive(Debug, Default)]
struct Step(AtomicBool);

impl Step {
    fn take(&self) {
        self.0.load(Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
pub(crate) struct AtomicWaker {
    waker: atomic_waker::AtomicWaker,
    step: Step,
}

impl AtomicWaker {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn register(&self, waker: &Waker) {
        self.step.take();
        self.waker.register(waker);
    }

    pub(crate) fn wake(&self) {
        self.step.take();
        self.waker.wake();
    }
}

#[derive(Debug, Default)]
pub(crate) struct Notify {
    notify: tokio::sync::Notify,
    step: Step,
}

impl Notify {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn notify_one(&self) {
        self.step.take();
        self.notify.notify_one();
    }

    pub(crate) fn notify_waiters(&self) {
        self.step.take();
        self.notify.notify_waiters();
    }

    pub(crate) fn notified(&self) -> Notified<'_> {
        self.step.take();
        self.notify.notified()
    }
}

/// Starts a thread of the model that nobody waits for.
pub(crate) fn start_thread(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    shuttle::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
}
