//! HTTP for those who run the server: its listeners, and bounds on what its clients may take.
//!
//! Whoever speaks HTTP costs the locks nothing: connections are few, their heads are small and quick or refused, and
//! each lives a bounded time.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
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

/// A stream of which a connection takes nothing for so long is cut.
const STALL_TIME: Duration = Duration::from_secs(30);

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
        /// Goes with the listener, whose it is; that of a passed socket is another's.
        _file: Option<SocketFile>,
    },
}

/// What a connection and a stream that it answers with know of each other. Each request carries it among its
/// extensions.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    /// Whether a response is under way that ends when it likes.
    is_streaming: AtomicBool,
    /// Whether the connection has taken anything of it since that was last asked.
    has_progressed: AtomicBool,
    /// Whether the connection was given up because it took nothing.
    is_cut: AtomicBool,
}

/// Why a connection has had its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outlived {
    Idle,
    Stalled,
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

impl Lane {
    pub(crate) fn note_stream(&self, is_streaming: bool) {
        self.is_streaming.store(is_streaming, Ordering::Relaxed);
    }

    pub(crate) fn note_progress(&self) {
        self.has_progressed.store(true, Ordering::Relaxed);
    }

    /// Whether the connection was given up because it took nothing.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    /// Until the connection has lived long enough, and no stream is under way of which it takes anything.
    async fn outlived(&self) -> Outlived {
        sleep(CONNECTION_TIME).await;
        while self.is_streaming.load(Ordering::Relaxed) {
            if !self.has_progressed.swap(false, Ordering::Relaxed) {
                self.is_cut.store(true, Ordering::Relaxed);
                return Outlived::Stalled;
            }
            sleep(STALL_TIME).await;
        }
        Outlived::Idle
    }
}

impl Listener {
    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // A part of a stream is for now, and the next may be far away. A connection without it is a slower one.
                let _ = stream.set_nodelay(true);
                Box::new(stream)
            }
            #[cfg(unix)]
            Self::Unix { listener, .. } => Box::new(listener.accept().await?.0),
        })
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Serves one connection.
async fn attend(stream: Box<dyn Stream>, router: Router, stop: CancellationToken) {
    let lane = Arc::new(Lane::default());
    let router = TowerToHyperService::new(router);
    let service = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(Arc::clone(&lane));
        router.call(request)
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut serving = pin!(serving);
    let parting_time = tokio::select! {
        _client_gone_or_wrong = serving.as_mut() => return,
        outlived = lane.outlived() => match outlived {
            Outlived::Idle => PARTING_TIME,
            Outlived::Stalled => return,
        },
        () = stop.cancelled() => LAST_PARTING_TIME,
    };
    serving.as_mut().graceful_shutdown();
    // Who does not take the answer by then goes without.
    let _ = timeout(parting_time, serving).await;
}
