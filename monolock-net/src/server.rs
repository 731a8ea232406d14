//! The server as a value: bound, run until told to stop, stopped in order.
//!
//! A controlled stop closes the listener, ends every session with `01` and promotes nobody. It takes no longer than the io-timeout, whatever
//! clients do.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::accept::{BACKLOG, accept, close};
use crate::clock::Clock;
use crate::shards::Shards;

/// More shards than cores, so that two cores seldom want the same one.
const SHARDS_PER_CORE: usize = 4;

/// A bound server.
///
/// It lives on the tokio runtime that it is run on, and takes what it needs there: one task for each connection and one for each shard.
///
/// ```
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
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
/// running.await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    local_addr: SocketAddr,
    shared: Arc<Shared>,
}

/// What all connections of one server have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) shards: Shards,
    pub(crate) io_timeout: Duration,
    /// Cancelled when the stop begins.
    pub(crate) stopping: CancellationToken,
    /// The connections' tasks.
    pub(crate) connections: TaskTracker,
}

/// The settings of a [`Server`], all of them with defaults.
#[derive(Clone, Debug)]
pub struct ServerBuilder {
    listen: SocketAddr,
    io_timeout: Duration,
    shards: Option<NonZeroUsize>,
}

/// Tells a server to stop, from anywhere.
#[derive(Clone, Debug)]
pub struct ServerHandle {
    stopping: CancellationToken,
}

impl Server {
    /// A server on 0.0.0.0:7070 with an io-timeout of 5 seconds, unless told otherwise.
    pub fn builder() -> ServerBuilder {
        ServerBuilder { listen: ([0, 0, 0, 0], 7070).into(), io_timeout: Duration::from_secs(5), shards: None }
    }

    /// Where clients meet it; the real port, where port 0 was asked for.
    pub const fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// A handle that tells it to stop.
    pub fn handle(&self) -> ServerHandle {
        ServerHandle { stopping: self.shared.stopping.clone() }
    }

    /// Serves until [`ServerHandle::shutdown`], then stops: closes the listener, tells every session `01` and promotes nobody by it.
    ///
    /// Returns when all connections are closed, at the latest after the io-timeout. Dropping the future stops the server too, but waits for
    /// nothing.
    pub async fn run(self) {
        let Self { listener, shared, .. } = self;
        let stop = StopOnDrop(Arc::clone(&shared));
        let mut expiry = JoinSet::new();
        for shard in 0..shared.shards.count() {
            let shared = Arc::clone(&shared);
            expiry.spawn(async move { shared.shards.expire(shard).await });
        }
        tokio::select! {
            never = accept(&listener, &shared) => match never {},
            () = shared.stopping.cancelled() => {}
        }
        close(listener, &shared);
        drop(stop);
        // Each connection bounds its own parting; this bound is for a runtime that is too busy to let it.
        let parting = shared.connections.wait();
        if tokio::time::timeout(shared.io_timeout.saturating_add(STOP_MARGIN), parting).await.is_err() {
            tracing::warn!(left = shared.connections.len(), "stopped with connections still open");
        }
    }

    /// Serves until `shutdown` is ready, then stops like [`run`](Self::run).
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) {
        let handle = self.handle();
        let mut running = std::pin::pin!(self.run());
        tokio::select! {
            () = &mut running => return,
            () = shutdown => handle.shutdown(),
        }
        running.await;
    }
}

/// What the stop may take beyond the io-timeout.
const STOP_MARGIN: Duration = Duration::from_millis(500);

impl ServerBuilder {
    /// Where to listen. Port 0 takes any free port.
    #[must_use]
    pub const fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// How long a client may take for its first frame, and its socket for a write that it does not take; also the bound of a controlled stop.
    #[must_use]
    pub const fn io_timeout(mut self, io_timeout: Duration) -> Self {
        self.io_timeout = io_timeout;
        self
    }

    /// Over how many engines the names are spread; four for each core by default.
    #[must_use]
    pub const fn shards(mut self, shards: NonZeroUsize) -> Self {
        self.shards = Some(shards);
        self
    }

    /// Opens the listening socket. To be called on a tokio runtime.
    ///
    /// # Errors
    /// Those of the operating system: the address is in use, is not this machine's, or may not be taken. An io-timeout of zero is
    /// [`io::ErrorKind::InvalidInput`].
    pub fn bind(self) -> io::Result<Server> {
        let Self { listen, io_timeout, shards } = self;
        if io_timeout.is_zero() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the io-timeout must be positive"));
        }
        let listener = bind(listen)?;
        let local_addr = listener.local_addr()?;
        let shared = Shared {
            shards: Shards::new(shards.unwrap_or_else(default_shards), Clock::start()),
            io_timeout,
            stopping: CancellationToken::new(),
            connections: TaskTracker::new(),
        };
        Ok(Server { listener, local_addr, shared: Arc::new(shared) })
    }
}

impl ServerHandle {
    /// Begins the controlled stop; more than once is once.
    pub fn shutdown(&self) {
        self.stopping.cancel();
    }
}

/// Ends all sessions, on whatever path the server is left.
struct StopOnDrop(Arc<Shared>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stopping.cancel();
        self.0.shards.close();
        self.0.connections.close();
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A server that is started again finds its port still named by closed connections.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn default_shards() -> NonZeroUsize {
    let cores = available_parallelism().map_or(1, NonZeroUsize::get);
    NonZeroUsize::MIN.saturating_add(cores * SHARDS_PER_CORE - 1)
}
