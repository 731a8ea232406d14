//! The accept loop: it never ends and never spins.
//!
//! When the machine has no descriptor or memory left for a connection, the loop backs off and tries again; connections that exist are not
//! touched by it.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

use crate::connection::Connection;
use crate::server::Shared;
use crate::session::serve;

/// How many connections the kernel keeps ready for the accept loop: what Linux allows by itself.
pub(crate) const BACKLOG: u32 = 4096;

const FIRST_BACKOFF: Duration = Duration::from_millis(5);
const LONGEST_BACKOFF: Duration = Duration::from_millis(200);

/// Of failures that go on, one a time is told.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// Accepts connections and sets a task upon each.
pub(crate) async fn accept(listener: &TcpListener, shared: &Arc<Shared>) -> Infallible {
    let mut backoff = FIRST_BACKOFF;
    let mut failures = Failures::default();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                backoff = FIRST_BACKOFF;
                admit(shared, stream, peer);
            }
            Err(error) if is_of_one_client(&error) => {
                tracing::debug!(%error, "a client was gone before it was accepted");
            }
            Err(error) => {
                failures.report(&error);
                sleep(backoff).await;
                backoff = (backoff * 2).min(LONGEST_BACKOFF);
            }
        }
    }
}

/// Closes the listener, but accepts what the kernel has ready for it: a stop tells these clients too.
pub(crate) fn close(listener: TcpListener, shared: &Arc<Shared>) {
    // The runtime may not have heard of them yet, so the kernel is asked itself.
    let Ok(listener) = listener.into_std() else { return };
    // It keeps no more of them than it was told.
    for _ in 0..BACKLOG {
        let Ok((stream, peer)) = listener.accept() else { return };
        if let Ok(stream) = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream)) {
            admit(shared, stream, peer);
        }
    }
}

fn admit(shared: &Arc<Shared>, stream: TcpStream, peer: SocketAddr) {
    // A reply of nine bytes must not wait for more. A client that has gone already fails here and at its first read.
    let _ = stream.set_nodelay(true);
    let connection = Arc::new(Connection::new(stream, peer));
    shared.connections.spawn(serve(Arc::clone(shared), connection));
}

/// Tells of failures at a bounded rate.
#[derive(Debug, Default)]
struct Failures {
    untold: u64,
    last_told: Option<Instant>,
}

impl Failures {
    fn report(&mut self, error: &io::Error) {
        self.untold += 1;
        if self.last_told.is_none_or(|told| told.elapsed() >= REPORT_INTERVAL) {
            tracing::warn!(%error, failures = self.untold, "cannot accept connections; trying again");
            *self = Self { untold: 0, last_told: Some(Instant::now()) };
        }
    }
}

/// The failure is that of the connection that would have been accepted; the next may be well.
fn is_of_one_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}
