//! The accept loop: it never ends and never spins.
//!
//! When the machine has no descriptor or memory left for a connection, the loop backs off and tries again; connections
//! that exist are not touched by it. It stops earlier where descriptors are reserved, and goes on when the reserve is
//! whole again.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use crate::connection::Connection;
use crate::repeated::Repeated;
use crate::reserve::Reserve;
use crate::session::serve;
use crate::shared::Shared;
use crate::socket::Socket;

/// How many connections the kernel keeps ready for the accept loop: what Linux allows by itself.
pub(crate) const BACKLOG: u32 = 4096;

const FIRST_BACKOFF: Duration = Duration::from_millis(5);
const LONGEST_BACKOFF: Duration = Duration::from_millis(200);

/// Accepts connections and sets a task upon each.
pub(crate) async fn accept(listener: &TcpListener, reserve: Reserve, shared: &Arc<Shared>) -> Infallible {
    let mut backoff = FIRST_BACKOFF;
    let failures = Repeated::default();
    let metrics = &shared.witness().metrics;
    // Only where the last connection got into the reserve is there a reason to look.
    let mut is_scant = false;
    loop {
        let accepted = if is_scant && reserve.is_next(listener) {
            Err(io::Error::other("all descriptors but the reserve are taken"))
        } else {
            listener.accept().await
        };
        match accepted {
            Ok((stream, peer)) => {
                backoff = FIRST_BACKOFF;
                is_scant = reserve.has(&stream);
                admit(shared, stream, peer);
            }
            Err(error) if is_of_one_client(&error) => {
                tracing::debug!(%error, "a client was gone before it was accepted");
            }
            Err(error) => {
                metrics.accept_errors.inc();
                if let Some(failures) = failures.note() {
                    tracing::warn!(%error, failures, "cannot accept connections; trying again");
                }
                sleep(backoff).await;
                backoff = (backoff * 2).min(LONGEST_BACKOFF);
            }
        }
    }
}

/// Whom the connections belong to that the kernel has ready when the server stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backlog {
    /// They end with the socket, which is this server's alone.
    Own,
    /// They are for the server that has the socket next.
    Successor,
}

/// Closes the listener. What the kernel has ready for it and nobody will serve is accepted, as far as descriptors go: a
/// stop tells these clients too.
pub(crate) fn close(listener: TcpListener, backlog: Backlog, reserve: Reserve, shared: &Arc<Shared>) {
    if backlog == Backlog::Successor {
        return;
    }
    // The runtime may not have heard of them yet, so the kernel is asked itself.
    let Ok(listener) = listener.into_std() else { return };
    // It keeps no more of them than it was told.
    for _ in 0..BACKLOG {
        if reserve.is_next(&listener) {
            return;
        }
        let Ok((stream, peer)) = listener.accept() else { return };
        if let Ok(stream) = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream)) {
            admit(shared, stream, peer);
        }
    }
}

fn admit(shared: &Arc<Shared>, stream: TcpStream, peer: SocketAddr) {
    shared.witness().metrics.connections_accepted.inc();
    // A socket for both families gives IPv4 clients an IPv6 form that nobody knows them by.
    let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
    // A reply of nine bytes must not wait for more. A client that has gone already fails here and at its first read.
    let _ = stream.set_nodelay(true);
    let socket = Socket::new(stream);
    let connection = match &shared.policy.load().tls {
        None => Ok(Connection::new(socket, peer)),
        Some(tls) => Connection::with_tls(socket, peer, Arc::clone(tls)),
    };
    match connection {
        Ok(connection) => {
            shared.connections.spawn(serve(Arc::clone(shared), Arc::new(connection)));
        }
        Err(error) => shared.witness().note_handshake_failure(peer, &io::Error::other(error)),
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
