//! What all connections of one server have in common, and how they end.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::limits::Turnstile;
use crate::policy::{Policy, PolicyFiles};
use crate::shards::Shards;
use crate::sync::Mutex;
use crate::token_file::TokenFile;
use crate::witness::Witness;

/// A server, as its connections see it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) shards: Shards,
    pub(crate) io_timeout: Duration,
    pub(crate) turnstile: Arc<Turnstile>,
    pub(crate) policy: ArcSwap<Policy>,
    pub(crate) files: PolicyFiles,
    pub(crate) token_file: Option<Mutex<TokenFile>>,
    /// Cancelled when the audit log cannot be written and the server must not go on without it.
    pub(crate) audit_failed: CancellationToken,
    /// Cancelled when the stop begins.
    pub(crate) stopping: CancellationToken,
    /// The connections' tasks.
    pub(crate) connections: TaskTracker,
}

impl Shared {
    pub(crate) const fn witness(&self) -> &Witness {
        self.shards.witness()
    }

    /// Ends all sessions and tells each; a connection that comes later is told the same.
    pub(crate) fn stop(&self) {
        self.stopping.cancel();
        self.shards.close();
        self.witness().events.end();
        self.connections.close();
    }
}
