//! HTTP for those who run the server: its listeners, and bounds on what its clients may take.
//!
//! Whoever speaks HTTP costs the locks nothing: connections are few, their heads are small and quick or refused, and
//! each lives a bounded time.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
#[cfg(unix)]
use tokio::net::UnixListener;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::admin::AdminListen;
use crate::reserve::Reserve;
#[cfg(unix)]
use crate::unix_socket::SocketFile;

/// How long a client may take for the head of a request; also how long it may keep an idle connection.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// How long the head of a request may be. The longest name takes 765 bytes of it.
const HEAD_BYTES: usize = 16 << 10;

/// How long a connection lives before it is asked to end, whatever its client does: no client keeps a place for ever.
const CONNECTION_TIME: Duration = Duration::from_mins(1);

/// How long a request that is under way then may still take.
const PARTING_TIME: Duration = Duration::from_secs(5);

/// The same at the end of the server.
const LAST_PARTING_TIME: Duration = Duration::from_millis(250);

/// A listener that failed is tried again after so long.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// All that is served over HTTP.
#[derive(Debug)]
pub(crate) struct Http {
    pub(crate) admin: Option<(AdminListen, Endpoint)>,
    pub(crate) ops: Option<(SocketAddr, Endpoint)>,
    /// What clients of the locks leave to it.
    pub(crate) reserve: Reserve,
}

/// Something that is served over HTTP on an address of its own.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) listener: Listener,
    pub(crate) router: Router,
    /// How many connections it may have at a time. One more waits for its turn.
    pub(crate) connections: usize,
}

#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix {
        listener: UnixListener,
        /// Goes with the listener.
        _file: SocketFile,
    },
}

impl Endpoint {
    /// Serves until `stop`, and ends a little after it. Whoever drops the future ends its connections too.
    pub(crate) async fn serve(self, stop: CancellationToken) {
        let Self { listener, router, connections: limit } = self;
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(_) = connections.join_next() => {}
                accepted = listener.accept(), if connections.len() < limit => match accepted {
                    Ok(stream) => {
                        connections.spawn(attend(stream, router.clone(), stop.clone()));
                    }
                    Err(error) => {
                        tracing::debug!(%error, "cannot accept an HTTP connection; trying again");
                        sleep(ACCEPT_BACKOFF).await;
                    }
                },
            }
        }
        drop(listener);
        while connections.join_next().await.is_some() {}
    }
}

impl Listener {
    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Tcp(listener) => Box::new(listener.accept().await?.0),
            #[cfg(unix)]
            Self::Unix { listener, .. } => Box::new(listener.accept().await?.0),
        })
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Serves one connection.
async fn attend(stream: Box<dyn Stream>, router: Router, stop: CancellationToken) {
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut serving = pin!(serving);
    let parting_time = tokio::select! {
        _client_gone_or_wrong = serving.as_mut() => return,
        () = sleep(CONNECTION_TIME) => PARTING_TIME,
        () = stop.cancelled() => LAST_PARTING_TIME,
    };
    serving.as_mut().graceful_shutdown();
    // Who does not take the answer by then goes without.
    let _ = timeout(parting_time, serving).await;
}
