//! The outbox of the server, and beside it what was promised to it: every frame, in the order of its coming.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use monolock_core::wire::ServerFrame;

#[path = "../../../monolock-net/src/outbox.rs"]
mod shipped;

pub(crate) use shipped::{Farewell, Reply};

shuttle::lazy_static! {
    static ref LATEST: Mutex<Option<Promise>> = Mutex::default();
}

/// What one client is to be told, in bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Promise(Arc<Mutex<Promised>>);

#[derive(Debug, Default)]
struct Promised {
    bytes: Vec<u8>,
    has_farewell: bool,
}

#[derive(Debug)]
pub(crate) struct Outbox {
    shipped: shipped::Outbox,
    promise: Promise,
}

impl Promise {
    /// That of the outbox which was made last.
    pub(crate) fn latest() -> Self {
        let latest = LATEST.lock().unwrap_or_else(PoisonError::into_inner);
        latest.clone().expect("a connection has an outbox")
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.lock().bytes.clone()
    }

    fn add(&self, frame: &ServerFrame<'_>) {
        let mut promised = self.lock();
        if !promised.has_farewell {
            frame.encode(&mut promised.bytes);
            promised.has_farewell = matches!(frame, ServerFrame::Error { .. });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Promised> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Outbox {
    fn default() -> Self {
        let promise = Promise::default();
        *LATEST.lock().unwrap_or_else(PoisonError::into_inner) = Some(promise.clone());
        Self { shipped: shipped::Outbox::default(), promise }
    }
}

impl Outbox {
    pub(crate) fn push(&mut self, reply: Reply) {
        self.promise.add(&match reply {
            Reply::Waiting => ServerFrame::Waiting,
            Reply::Acquired(token) => ServerFrame::Acquired { token },
        });
        self.shipped.push(reply);
    }

    pub(crate) fn bid(&mut self, farewell: Farewell) {
        let reason = farewell.to_string();
        self.promise.add(&ServerFrame::Error { code: farewell.code(), reason: reason.as_bytes() });
        self.shipped.bid(farewell);
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.shipped.is_empty()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        self.shipped.encode()
    }

    pub(crate) fn consume(&mut self, bytes: usize) {
        self.shipped.consume(bytes);
    }
}
