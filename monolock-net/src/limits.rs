//! Limits that an operator may turn on; without one nothing is counted.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;

use monolock_core::Lease;

use crate::connection::Connection;
use crate::sync::Mutex;

/// What a client may take, each without a limit by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// How many sessions there may be at a time. One more is refused with `03`, limit reached.
    pub max_sessions: Option<NonZeroUsize>,
    /// How many sessions one client may have: by its identity, else by its IP address. One more is refused with `03`,
    /// limit reached.
    pub max_sessions_per_client: Option<NonZeroUsize>,
    /// The longest lease. A longer one is refused with `19`, lease too long.
    pub max_lease: Option<Lease>,
}

/// Counts sessions against the limits.
#[derive(Debug)]
pub(crate) struct Turnstile {
    limits: Limits,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    /// Only clients that have a session.
    by_client: HashMap<Client, usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Client {
    Identity(Arc<str>),
    Address(IpAddr),
}

/// A session that was let in, until it is dropped.
#[derive(Debug)]
pub(crate) struct Admission {
    turnstile: Arc<Turnstile>,
    client: Client,
}

/// A limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitReached;

impl Turnstile {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, counts: Mutex::default() })
    }

    /// Whether a lease is within the limit.
    pub(crate) fn allows(&self, lease: Lease) -> bool {
        self.limits.max_lease.is_none_or(|longest| lease <= longest)
    }

    /// Lets a session in; nothing is counted where nothing is limited.
    pub(crate) fn admit(self: &Arc<Self>, connection: &Connection) -> Result<Option<Box<Admission>>, LimitReached> {
        let Limits { max_sessions, max_sessions_per_client, .. } = self.limits;
        if max_sessions.is_none() && max_sessions_per_client.is_none() {
            return Ok(None);
        }
        let client = Client::of(connection);
        let mut counts = self.counts.lock();
        let own = counts.by_client.get(&client).copied().unwrap_or(0);
        let is_over = |limit: Option<NonZeroUsize>, count| limit.is_some_and(|limit| count >= limit.get());
        if is_over(max_sessions, counts.all) || is_over(max_sessions_per_client, own) {
            return Err(LimitReached);
        }
        counts.all += 1;
        counts.by_client.insert(client.clone(), own + 1);
        drop(counts);
        Ok(Some(Box::new(Admission { turnstile: Arc::clone(self), client })))
    }
}

impl Client {
    fn of(connection: &Connection) -> Self {
        let identity = connection.identity();
        if identity.is_empty() {
            Self::Address(connection.peer().ip().to_canonical())
        } else {
            Self::Identity(identity)
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut counts = self.turnstile.counts.lock();
        counts.all -= 1;
        if let Some(own) = counts.by_client.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                counts.by_client.remove(&self.client);
            }
        }
    }
}
