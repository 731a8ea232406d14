//! Sees what happens to locks: counts it, and puts it down in the audit log.
//!
//! It stands under the shard's lock, so what it puts down is in the engine's order. It never waits.

use std::io;
use std::net::SocketAddr;
use std::time::SystemTime;

use monolock_core::{Effect, LockName, LockNameRef};

use crate::audit::Audit;
use crate::clock::Clock;
use crate::connection::Connection;
use crate::event::{Event, What};
use crate::metrics::Metrics;
use crate::repeated::Repeated;

#[derive(Debug)]
pub(crate) struct Witness {
    pub(crate) metrics: Metrics,
    pub(crate) audit: Option<Audit>,
    /// Those that failed and were not told of yet.
    handshakes: Repeated,
}

impl Witness {
    pub(crate) fn new(metrics: Metrics, audit: Option<Audit>) -> Self {
        Self { metrics, audit, handshakes: Repeated::default() }
    }

    /// An effect on the session of a connection.
    pub(crate) fn see(&self, wall: SystemTime, effect: &Effect, connection: &Connection) {
        match effect {
            Effect::Queued { .. } | Effect::Confirmed { .. } | Effect::Withdrawn { .. } => {}
            Effect::Granted { name, token, waited, .. } => {
                self.metrics.wait_seconds.observe(waited.as_secs_f64());
                self.record(wall, name, connection, || What::Granted { token: *token, waited: *waited });
            }
            Effect::Released { name, token, held, reason, .. } => {
                self.metrics.hold_seconds.observe(held.as_secs_f64());
                self.metrics.count_release(*reason);
                self.record(wall, name, connection, || What::Released { token: *token, held: *held, reason: *reason });
            }
        }
    }

    /// Puts down what somebody did to a connection's claim, or to its asking for one.
    pub(crate) fn record(
        &self,
        wall: SystemTime,
        lock: &LockName,
        connection: &Connection,
        what: impl FnOnce() -> What,
    ) {
        if let Some(audit) = &self.audit {
            let (identity, remote_addr) = (connection.identity(), connection.peer());
            audit.record(Event { time: wall, lock: lock.clone(), identity, remote_addr, what: what() });
        }
    }

    /// Has written what was put down. Not for under a lock.
    pub(crate) fn report(&self) {
        if let Some(audit) = &self.audit {
            audit.announce();
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
        self.record(Clock::wall(), &name.into(), connection, || What::Denied {});
        self.report();
    }

    /// A TLS handshake came to nothing.
    pub(crate) fn note_handshake_failure(&self, peer: SocketAddr, error: &io::Error) {
        self.metrics.tls_handshake_errors.inc();
        if let Some(failures) = self.handshakes.note() {
            tracing::warn!(%peer, %error, failures, "a TLS handshake failed");
        }
    }
}
