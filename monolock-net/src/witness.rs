//! Sees what happens to locks: counts it, and puts it down in the audit log and for those who follow the events.
//!
//! It stands under the shard's lock, so what it puts down is in the engine's order. It never waits. What nobody would
//! read is not formed.

use std::io;
use std::net::SocketAddr;
use std::time::SystemTime;

use monolock_core::{Effect, LockName, LockNameRef};

use crate::audit::Audit;
use crate::clock::Clock;
use crate::connection::Connection;
use crate::event::{Event, What};
use crate::events::Events;
use crate::metrics::Metrics;
use crate::repeated::Repeated;
use crate::shards::Numbering;

#[derive(Debug)]
pub(crate) struct Witness {
    pub(crate) metrics: Metrics,
    pub(crate) audit: Option<Audit>,
    pub(crate) events: Events,
    /// Those that failed and were not told of yet.
    handshakes: Repeated,
}

/// Whether somebody is to be woken for what was put down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum News {
    #[default]
    None,
    ForReaders,
}

impl Witness {
    pub(crate) fn new(metrics: Metrics, audit: Option<Audit>, events: Events) -> Self {
        Self { metrics, audit, events, handshakes: Repeated::default() }
    }

    /// An effect on the session of a connection.
    pub(crate) fn see(&self, wall: SystemTime, effect: &Effect, connection: &Connection, numbering: Numbering) -> News {
        let (name, what) = match effect {
            Effect::Confirmed { .. } => return News::None,
            Effect::Queued { name, ahead, .. } => (name, What::Queued { ahead: *ahead }),
            Effect::Withdrawn { name, waited, reason, .. } => {
                (name, What::WaiterGone { waited: *waited, reason: *reason })
            }
            Effect::Granted { name, token, waited, .. } => {
                self.metrics.wait_seconds.observe(waited.as_secs_f64());
                (name, What::Granted { token: *token, waited: *waited })
            }
            Effect::Released { name, token, held, reason, .. } => {
                self.metrics.hold_seconds.observe(held.as_secs_f64());
                self.metrics.count_release(*reason);
                (name, What::Released { token: *token, held: *held, reason: *reason })
            }
        };
        self.put_down(connection, what, |what, (identity, remote_addr)| {
            let session = Some(numbering.of(effect.session()));
            Event { time: wall, lock: name.clone(), session, identity, remote_addr, what }
        })
    }

    /// Puts down what somebody did to a connection's claim, or to its asking for one.
    pub(crate) fn record(&self, wall: SystemTime, lock: LockNameRef<'_>, connection: &Connection, what: What) -> News {
        self.put_down(connection, what, |what, (identity, remote_addr)| {
            let lock = LockName::from(lock);
            Event { time: wall, lock, session: None, identity, remote_addr, what }
        })
    }

    /// Forms an event if there is somebody to read it, and hands it over.
    fn put_down(
        &self,
        connection: &Connection,
        what: What,
        form: impl FnOnce(What, (std::sync::Arc<str>, SocketAddr)) -> Event,
    ) -> News {
        let audit = self.audit.as_ref().filter(|_| what.is_for_audit());
        let is_watched = self.events.is_watched() && what.is_for_readers();
        if audit.is_none() && !is_watched {
            return News::None;
        }
        let event = form(what, (connection.identity(), connection.peer()));
        match audit {
            Some(audit) if is_watched => {
                self.events.record(event.clone());
                audit.record(event);
            }
            Some(audit) => audit.record(event),
            None => self.events.record(event),
        }
        if is_watched { News::ForReaders } else { News::None }
    }

    /// Wakes those who are to do something with what was put down. Not for under a lock.
    pub(crate) fn report(&self, news: News) {
        if let Some(audit) = &self.audit {
            audit.announce();
        }
        if news == News::ForReaders {
            self.events.announce();
        }
    }

    /// All sessions are about to end, and none begins.
    pub(crate) fn note_closing(&self) {
        if let Some(audit) = &self.audit {
            audit.note_closing();
        }
    }

    /// A client was refused a lock by the access-control list.
    pub(crate) fn note_denial(&self, connection: &Connection, name: LockNameRef<'_>) {
        self.metrics.acl_denials.inc();
        let (identity, peer) = (connection.identity(), connection.peer());
        tracing::info!(lock = ?name, ?identity, %peer, "not authorized for lock");
        self.report(self.record(Clock::wall(), name, connection, What::Denied {}));
    }

    /// A TLS handshake came to nothing.
    pub(crate) fn note_handshake_failure(&self, peer: SocketAddr, error: &io::Error) {
        self.metrics.tls_handshake_errors.inc();
        if let Some(failures) = self.handshakes.note() {
            tracing::warn!(%peer, %error, failures, "a TLS handshake failed");
        }
    }
}

impl News {
    pub(crate) const fn and(self, other: Self) -> Self {
        match self {
            Self::None => other,
            Self::ForReaders => Self::ForReaders,
        }
    }
}
