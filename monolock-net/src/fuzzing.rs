//! Doors for the fuzz targets: the machinery behind the sockets, reached without a listener.
//!
//! Compiled with the feature `fuzzing` alone, which no ordinary build has, and no part of the interface. There is no
//! check in here: what is right is said by `testing/fuzzing`, which sees no more of this crate than these doors.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, Uri, header};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use monolock_core::Token;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admin::{self, Config};
use crate::clock::Clock;
use crate::connection::Connection;
use crate::events::{Events, KEPT_EVENTS};
use crate::guard::{Guard, Hosts};
use crate::limits::{Limits, Turnstile};
use crate::metrics::Metrics;
use crate::policy::PolicyFiles;
use crate::shards::Shards;
use crate::shared::Shared;
use crate::socket::Socket;
use crate::witness::Witness;
use crate::{session, token_file, uri};

/// A server without listeners: sessions are served on streams that are brought along, requests answered in memory.
///
/// Its time is that of the runtime that it is made on.
#[derive(Debug)]
pub struct Hall {
    shared: Arc<Shared>,
    admin: Router,
}

impl Hall {
    /// An empty one, of one shard, so that nothing depends on how a name is hashed.
    ///
    /// # Panics
    /// Never: without files there is nothing to load.
    pub fn new(io_timeout: Duration) -> Self {
        let files = PolicyFiles { tls: None, acl: None };
        let (metrics, clock) = (Metrics::new(), Clock::start());
        let events = Events::new(KEPT_EVENTS, clock, metrics.clone());
        let witness = Witness::new(metrics, None, events);
        let shared = Arc::new(Shared {
            shards: Shards::new(NonZeroUsize::MIN, clock, Duration::ZERO, Arc::default(), witness),
            io_timeout,
            turnstile: Turnstile::new(Limits::default()),
            policy: ArcSwap::from_pointee(files.load().expect("there is nothing to load")),
            files,
            token_file: None,
            audit_failed: CancellationToken::new(),
            stopping: CancellationToken::new(),
            connections: TaskTracker::new(),
        });
        let config = Config {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            ops_listen: None,
            tls: false,
            mtls: false,
            acl_file: None,
            audit_log: None,
            io_timeout,
        };
        let admin = admin::router(Arc::clone(&shared), config, Guard { hosts: Hosts::Any, token: None }, 2);
        Self { shared, admin }
    }

    /// Serves a client's session until it is over.
    pub fn serve(&self, stream: TcpStream, peer: SocketAddr) -> impl Future<Output = ()> + Send + use<> {
        session::serve(Arc::clone(&self.shared), Arc::new(Connection::new(Socket::new(stream), peer)))
    }

    /// Ends sessions that are out of time, each in its time, for ever.
    pub fn expire(&self) -> impl Future<Output = ()> + Send + use<> {
        let shared = Arc::clone(&self.shared);
        async move { shared.shards.expire(0).await }
    }

    /// The controlled stop, as far as sessions see it.
    pub fn close(&self) {
        self.shared.stop();
    }

    /// How many locks are claimed, and by how many sessions.
    pub fn counts(&self) -> (usize, usize) {
        self.shared.shards.counts()
    }

    /// What the admin API answers: the status and the body, or no body where that is a stream without an end. `None`
    /// where this is no request of HTTP.
    ///
    /// # Panics
    /// Where an answer breaks off, which one in memory cannot.
    pub async fn ask(&self, method: &str, target: &str) -> Option<(u16, Vec<u8>)> {
        let request = Request::builder().method(method).uri(target).body(Body::empty()).ok()?;
        let answer = match TowerToHyperService::new(self.admin.clone()).call(request).await {
            Ok(answer) => answer,
            Err(never) => match never {},
        };
        let status = answer.status().as_u16();
        if answer.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream") {
            return Some((status, Vec::new()));
        }
        let body = axum::body::to_bytes(answer.into_body(), usize::MAX).await;
        Some((status, body.expect("the answer is in memory").to_vec()))
    }
}

/// The path and the query of a target, as they come; `None` where it is none.
pub fn parse_target(target: &str) -> Option<(String, String)> {
    let uri = target.parse::<Uri>().ok()?;
    Some((uri.path().to_owned(), uri.query().unwrap_or_default().to_owned()))
}

/// A segment of a target's path, decoded. The first is number 0.
///
/// # Errors
/// The sentence for whoever sent it.
///
/// # Panics
/// Where the target is none.
pub fn segment(target: &str, number: usize) -> Result<String, String> {
    let uri = target.parse().expect("it is a target");
    uri::segment(&uri, number).map_err(|error| error.to_string())
}

/// The known parameters of a target's query, decoded.
///
/// # Errors
/// The sentence for whoever sent it.
///
/// # Panics
/// Where the target is none.
pub fn parameters<const N: usize>(target: &str, known: [&str; N]) -> Result<[Option<String>; N], String> {
    let uri = target.parse().expect("it is a target");
    uri::parameters(&uri, known).map_err(|error| error.to_string())
}

/// The mark that stands in the text of a token file.
pub fn token_mark(text: &str) -> Option<Token> {
    token_file::parse(text)
}

/// The text of a token file with this mark.
pub fn token_text(mark: u64) -> String {
    token_file::render(mark)
}
