//! Which claims this client has open, so that a program can notice that it is about to queue behind itself.
//!
//! The server knows sessions, not processes: a second claim on a lock that this process holds waits in the queue like
//! any other. The client only counts; it never takes one claim for another.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use monolock_core::LockName;

#[derive(Default)]
pub(crate) struct Claims {
    /// Bounded by the claims that are open.
    open: Mutex<HashMap<LockName, usize>>,
}

impl Claims {
    pub(crate) fn enter(self: &Arc<Self>, name: &LockName) -> Ticket {
        *self.lock().entry(name.clone()).or_default() += 1;
        Ticket { claims: Arc::clone(self), name: name.clone() }
    }

    pub(crate) fn count(&self, name: &LockName) -> usize {
        self.lock().get(name).copied().unwrap_or(0)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LockName, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One open claim: counted until it is dropped.
pub(crate) struct Ticket {
    claims: Arc<Claims>,
    name: LockName,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut open = self.claims.lock();
        if let Some(count) = open.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.name);
            }
        }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ticket").field(&self.name).finish()
    }
}
