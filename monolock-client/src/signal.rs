//! A value that is set once and seen by many: tasks poll for it, threads wait for it, callbacks take it.
//!
//! Nobody misses it: whoever comes after it was set finds it at once. What waits is bounded by who waits: a future or a
//! subscription takes its entry along when it is dropped, and nothing is called under the lock.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub(crate) struct Signal<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    value: Value<T>,
    watchers: Vec<(u64, Watcher<T>)>,
    next_key: u64,
}

enum Value<T> {
    Open,
    Set(T),
    /// It will never be set.
    Closed,
}

enum Watcher<T> {
    Task(Waker),
    Callback(Callback<T>),
}

type Callback<T> = Box<dyn FnOnce(T) + Send>;

impl<T: Clone> Signal<T> {
    pub(crate) fn new() -> Arc<Self> {
        let state = State { value: Value::Open, watchers: Vec::new(), next_key: 0 };
        Arc::new(Self { state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Sets the value, the first time; says whether this was it.
    pub(crate) fn set(&self, value: T) -> bool {
        let mut state = self.lock();
        if !matches!(state.value, Value::Open) {
            return false;
        }
        state.value = Value::Set(value.clone());
        let watchers = std::mem::take(&mut state.watchers);
        drop(state);
        self.changed.notify_all();
        // Callbacks are foreign and may take long or panic: nobody else waits for them.
        let mut callbacks = Vec::new();
        for (_, watcher) in watchers {
            match watcher {
                Watcher::Task(waker) => waker.wake(),
                Watcher::Callback(callback) => callbacks.push(callback),
            }
        }
        for callback in callbacks {
            callback(value.clone());
        }
        true
    }

    /// Says that the value will never be set, unless it has been. Threads that wait go on; futures stay pending.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        if matches!(state.value, Value::Open) {
            state.value = Value::Closed;
        }
        let watchers = std::mem::take(&mut state.watchers);
        drop(state);
        self.changed.notify_all();
        drop(watchers);
    }

    pub(crate) fn value(&self) -> Option<T> {
        self.lock().value.set().cloned()
    }

    pub(crate) fn is_set(&self) -> bool {
        self.lock().value.set().is_some()
    }

    /// Waits for the value on this thread, at most so long. `None`: too long, or it will never be set.
    pub(crate) fn wait_timeout(&self, timeout: Duration) -> Option<T> {
        let state = self.lock();
        let waited = self.changed.wait_timeout_while(state, timeout, |state| matches!(state.value, Value::Open));
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.value.set().cloned()
    }

    /// Waits for the value on this thread. `None`: it will never be set.
    pub(crate) fn wait_blocking(&self) -> Option<T> {
        let waited = self.changed.wait_while(self.lock(), |state| matches!(state.value, Value::Open));
        waited.unwrap_or_else(PoisonError::into_inner).value.set().cloned()
    }

    /// A future of the value.
    pub(crate) fn wait(self: &Arc<Self>) -> Wait<T> {
        Wait { signal: Arc::clone(self), key: None }
    }

    /// Calls `callback` with the value: when it is set, or here and now if it has been. Says its key where it is still
    /// to come.
    pub(crate) fn call(&self, callback: Callback<T>) -> Option<u64> {
        let mut state = self.lock();
        let value = match &state.value {
            Value::Open => {
                let key = state.take_key();
                state.watchers.push((key, Watcher::Callback(callback)));
                return Some(key);
            }
            Value::Set(value) => value.clone(),
            Value::Closed => return None,
        };
        drop(state);
        callback(value);
        None
    }

    /// Like [`call`](Self::call), but forgets the callback when the subscription is dropped.
    pub(crate) fn subscribe(self: &Arc<Self>, callback: Callback<T>) -> Subscription<T> {
        Subscription { key: self.call(callback), signal: Arc::clone(self) }
    }

    fn forget(&self, key: u64) {
        let mut state = self.lock();
        let Some(at) = state.watchers.iter().position(|(other, _)| *other == key) else { return };
        let watcher = state.watchers.swap_remove(at);
        drop(state);
        drop(watcher);
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Nothing foreign runs under the lock except `Clone`, so the state is whole even after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> State<T> {
    fn take_key(&mut self) -> u64 {
        self.next_key += 1;
        self.next_key
    }
}

impl<T> Value<T> {
    const fn set(&self) -> Option<&T> {
        match self {
            Self::Set(value) => Some(value),
            Self::Open | Self::Closed => None,
        }
    }
}

/// See [`Signal::wait`].
pub(crate) struct Wait<T: Clone> {
    signal: Arc<Signal<T>>,
    key: Option<u64>,
}

impl<T: Clone> Future for Wait<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let signal = Arc::clone(&self.signal);
        let mut state = signal.lock();
        if let Some(value) = state.value.set() {
            return Poll::Ready(value.clone());
        }
        if matches!(state.value, Value::Closed) {
            return Poll::Pending;
        }
        let key = *self.key.get_or_insert_with(|| state.take_key());
        let watcher = Watcher::Task(context.waker().clone());
        let known = state.watchers.iter_mut().find(|(other, _)| *other == key);
        let replaced = if let Some((_, known)) = known {
            Some(std::mem::replace(known, watcher))
        } else {
            state.watchers.push((key, watcher));
            None
        };
        drop(state);
        drop(replaced);
        Poll::Pending
    }
}

impl<T: Clone> Drop for Wait<T> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.signal.forget(key);
        }
    }
}

/// See [`Signal::subscribe`].
pub(crate) struct Subscription<T: Clone> {
    signal: Arc<Signal<T>>,
    key: Option<u64>,
}

impl<T: Clone> Drop for Subscription<T> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.signal.forget(key);
        }
    }
}
