//! The server as a value: bound, run until told to stop, stopped in order.
//!
//! A controlled stop closes the listener, ends every session with `01` and promotes nobody. It takes no longer than the
//! io-timeout, whatever clients do.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::accept::{Backlog, accept, close};
use crate::admin::AdminListen;
use crate::builder::ServerBuilder;
use crate::clock::Clock;
use crate::http::Http;
use crate::metrics::ReloadResult;
use crate::policy::PolicyError;
use crate::repeated::Repeated;
use crate::reserve::Reserve;
use crate::shared::Shared;
use crate::witness::Witness;

/// A bound server.
///
/// It lives on the tokio runtime that it is run on, and takes what it needs there: one task for each connection, one
/// for each shard, and one that accepts.
///
/// ```
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = monolock_net::Server::builder()
///     .listen(([127, 0, 0, 1], 0).into())
///     .io_timeout(Duration::from_secs(2))
///     .bind()?;
/// let address = server.local_addr();
/// let handle = server.handle();
/// let running = tokio::spawn(server.run());
/// // Clients meet at `address` now.
/// # let _ = address;
/// handle.shutdown();
/// running.await??;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    backlog: Backlog,
    local_addr: SocketAddr,
    http: Http,
    shared: Arc<Shared>,
}

/// The server stopped because its audit log could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditFailed;

/// Tells a server to stop, from anywhere.
#[derive(Clone, Debug)]
pub struct ServerHandle {
    shared: Arc<Shared>,
}

/// How much a server has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Locks that somebody claims.
    pub locks: usize,
    /// Holders and waiters.
    pub sessions: usize,
}

impl Server {
    /// A server on 0.0.0.0:7070 with an io-timeout of 5 seconds, unless told otherwise.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::new()
    }

    pub(crate) fn new(
        (listener, backlog): (TcpListener, Backlog),
        local_addr: SocketAddr,
        http: Http,
        shared: Arc<Shared>,
    ) -> Self {
        Self { listener, backlog, local_addr, http, shared }
    }

    /// Where clients meet it; the real port, where port 0 was asked for.
    pub const fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Where the admin API is, if it is served; with the real port.
    pub fn admin_addr(&self) -> Option<&AdminListen> {
        self.http.admin.as_ref().map(|(listen, _)| listen)
    }

    /// Where health and metrics are, if they are served; with the real port.
    pub fn ops_addr(&self) -> Option<SocketAddr> {
        self.http.ops.as_ref().map(|(address, _)| *address)
    }

    /// A handle that tells it to stop.
    pub fn handle(&self) -> ServerHandle {
        ServerHandle { shared: Arc::clone(&self.shared) }
    }

    /// Serves until [`ServerHandle::shutdown`], then stops: closes the listener, tells every session `01` and promotes
    /// nobody by it. Connections that nobody has accepted are told the same, or are left to whoever has the socket next
    /// where the server was given one.
    ///
    /// What is served over HTTP is served from before the first client is accepted until the stop is over.
    ///
    /// Returns when all connections are closed, at the latest after the io-timeout. Dropping the future stops the
    /// server too, but waits for nothing.
    ///
    /// # Errors
    /// [`AuditFailed`]: nobody asked for the stop; the audit log could not be written, and [`AuditFailure::Exit`](crate::AuditFailure::Exit) was
    /// chosen for that.
    pub async fn run(self) -> Result<(), AuditFailed> {
        let Self { listener, backlog, http: Http { admin, ops, reserve }, shared, .. } = self;
        let over = CancellationToken::new();
        let mut http = JoinSet::new();
        let endpoints = admin.map(|(_, endpoint)| endpoint).into_iter().chain(ops.map(|(_, endpoint)| endpoint));
        for endpoint in endpoints {
            http.spawn(endpoint.serve(over.clone()));
        }
        let stopped = Self::serve_locks((listener, backlog), reserve, shared).await;
        over.cancel();
        while http.join_next().await.is_some() {}
        stopped
    }

    async fn serve_locks(
        (listener, backlog): (TcpListener, Backlog),
        reserve: Reserve,
        shared: Arc<Shared>,
    ) -> Result<(), AuditFailed> {
        let stop = StopOnDrop(Arc::clone(&shared));
        let mut tasks = JoinSet::new();
        for shard in 0..shared.shards.count() {
            let shared = Arc::clone(&shared);
            tasks.spawn(async move { shared.shards.expire(shard).await });
        }
        if shared.token_file.is_some() {
            tasks.spawn(keep_tokens(Arc::clone(&shared)));
        }
        // A task of its own is polled by a thread that polls the sockets too; where this future is polled, by the thread
        // of `block_on` perhaps, each connection would have to wake that thread first.
        let mut accepting = JoinSet::new();
        accepting.spawn(accept_until_stopped(listener, reserve, Arc::clone(&shared)));
        match accepting.join_next().await {
            Some(Ok(listener)) => close(listener, backlog, reserve, &shared),
            // It was not aborted, so it has panicked, and this future does the same.
            Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
            None => unreachable!("one task was spawned"),
        }
        drop(stop);
        // Each connection bounds its own parting; this bound is for a runtime that is too busy to let it.
        let (begun, limit) = (Instant::now(), shared.io_timeout.saturating_add(STOP_MARGIN));
        if tokio::time::timeout(limit, shared.connections.wait()).await.is_err() {
            tracing::warn!(left = shared.connections.len(), "stopped with connections still open");
        }
        drop(tasks);
        let stopped = if shared.audit_failed.is_cancelled() { Err(AuditFailed) } else { Ok(()) };
        // What clients have left of the time is the log's, but for one that has failed already.
        let left = if stopped.is_ok() { limit.saturating_sub(begun.elapsed()) } else { Duration::ZERO };
        let finishing = tokio::task::spawn_blocking(move || {
            if let Some(Err(error)) = shared.token_file.as_ref().map(|file| file.lock().finish()) {
                tracing::error!(%error, "the token file could not be written back; the next start skips the tokens that were reserved");
            }
            if let Some(audit) = &shared.witness().audit
                && !audit.finish(left.saturating_add(AUDIT_PATIENCE))
            {
                tracing::error!("the audit log lacks its last lines: its sink did not take them in time");
            }
        });
        // It does not fail but by a bug of its own, which has been reported by then.
        let _ = finishing.await;
        stopped
    }

    /// Serves until `shutdown` is ready, then stops like [`run`](Self::run).
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<(), AuditFailed> {
        let handle = self.handle();
        let mut running = std::pin::pin!(self.run());
        tokio::select! {
            stopped = &mut running => return stopped,
            () = shutdown => handle.shutdown(),
        }
        running.await
    }
}

/// Gives the listener back when the server is to stop.
async fn accept_until_stopped(listener: TcpListener, reserve: Reserve, shared: Arc<Shared>) -> TcpListener {
    tokio::select! {
        never = accept(&listener, reserve, &shared) => match never {},
        () = shared.stopping.cancelled() => {}
        () = shared.audit_failed.cancelled() => {}
    }
    listener
}

/// What the stop may take beyond the io-timeout.
const STOP_MARGIN: Duration = Duration::from_millis(500);

/// How often it is looked at whether more tokens are to be reserved.
const TOKEN_CARE_INTERVAL: Duration = Duration::from_secs(1);

/// How long a stop waits for the last lines of the audit log at least.
const AUDIT_PATIENCE: Duration = Duration::from_millis(400);

impl ServerHandle {
    /// Begins the controlled stop; more than once is once.
    pub fn shutdown(&self) {
        self.shared.stopping.cancel();
    }

    /// Goes through all shards and counts. It returns only while none of them is stuck.
    pub fn counts(&self) -> Counts {
        let (locks, sessions) = self.shared.shards.counts();
        Counts { locks, sessions }
    }

    /// Reads certificates, keys, client CA and access-control list anew as one set, and opens the audit log anew. New
    /// connections meet the new set; open sessions live on, with the claims that they made. It waits for the files,
    /// so on a runtime it belongs on a thread for that.
    ///
    /// # Errors
    /// The file that cannot be used. Then the old set stays whole.
    pub fn reload(&self) -> Result<(), PolicyError> {
        let Shared { policy, files, shards, .. } = &*self.shared;
        let Witness { metrics, audit, .. } = shards.witness();
        if let Some(audit) = audit {
            audit.reopen();
        }
        match files.load() {
            Ok(new) => {
                policy.store(Arc::new(new));
                metrics.count_reload(ReloadResult::Success);
                Ok(())
            }
            Err(error) => {
                metrics.count_reload(ReloadResult::Failure);
                Err(error)
            }
        }
    }
}

impl fmt::Display for AuditFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the audit log could not be written")
    }
}

impl std::error::Error for AuditFailed {}

/// Reserves tokens in the token file, where there is one, before they are wanted.
async fn keep_tokens(shared: Arc<Shared>) {
    let failures = Repeated::default();
    loop {
        tokio::time::sleep(TOKEN_CARE_INTERVAL).await;
        let at_work = Arc::clone(&shared);
        let extended = tokio::task::spawn_blocking(move || {
            let mut file = at_work.token_file.as_ref()?.lock();
            let wall = Clock::wall();
            file.is_low(wall).then(|| file.extend(wall))
        });
        match extended.await {
            Ok(Some(Ok(()))) => shared.shards.tick(),
            Ok(Some(Err(error))) => {
                shared.witness().metrics.token_file_errors.inc();
                if let Some(failures) = failures.note() {
                    tracing::error!(%error, failures, "the token file cannot be written; grants stop when the reserved tokens are used up");
                }
            }
            Ok(None) | Err(_) => {}
        }
    }
}

/// Ends all sessions, on whatever path the server is left.
struct StopOnDrop(Arc<Shared>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}
