//! One client's session, from its first byte to its last: wire frames in, engine calls out.
//!
//! What ends a claim at once is proof that the client let go: the end of its stream, a reset, a broken protocol. Any
//! other failure of the socket proves nothing about a holder, which may still believe in its lock: its claim stands
//! until its lease is out.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use monolock_core::wire::{ClientFrame, MAX_CLIENT_FRAME_BYTES, Phase, ProtocolError, decode_client};
use monolock_core::{Acquire, AcquireError, ReleaseReason, Standing};

use crate::clock::timeout;
use crate::connection::{Call, Connection, Ended};
use crate::limits::{Admission, LimitReached};
use crate::outbox::Farewell;
use crate::shards::Claim;
use crate::shared::Shared;

/// Room for a burst of heartbeats; lives on the stack, so an idle session has no buffer.
const READ_BYTES: usize = 128;

/// How long, at the most, a client that was sent an `ERROR` is listened to. Closing at once would make the kernel send
/// a reset, which destroys the `ERROR` on its way (`docs/protocol.md`, "Errors").
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// How much, at the most, is read and thrown away in that time.
const DRAIN_BYTES: usize = 1 << 20;

const DRAIN_READ_BYTES: usize = 4096;

/// A claim, and what keeps the session counted.
type Admitted = (Claim, Option<Box<Admission>>);

/// Serves a connection until it can be closed.
pub(crate) async fn serve(shared: Arc<Shared>, connection: Arc<Connection>) {
    // What is rare or short lives in boxes of its own, so that the task of an idle session is small.
    let ended = match Box::pin(open(&shared, &connection)).await {
        Ok((claim, _admission)) => attend(&shared, &connection, claim).await,
        Err(ended) => ended,
    };
    if ended == Ended::WithFarewell {
        Box::pin(part(&shared, &connection)).await;
    }
}

/// From the first byte to the claim, within the io-timeout for the TLS handshake and as much again for the first frame.
async fn open(shared: &Shared, connection: &Arc<Connection>) -> Result<Admitted, Ended> {
    tokio::select! {
        // Without TLS there is no handshake, and a stop is told like any other farewell.
        biased;
        secured = timeout(shared.io_timeout, connection.shake_hands()) => match secured {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                shared.witness().note_handshake_failure(connection.peer(), &error);
                // TLS says what is wrong by itself; it has to arrive like any farewell.
                let is_told = error.kind() == io::ErrorKind::InvalidData;
                return Err(if is_told { Ended::WithFarewell } else { Ended::Silently });
            }
            Err(_elapsed) => {
                shared.witness().note_handshake_failure(connection.peer(), &io::ErrorKind::TimedOut.into());
                return Err(Ended::Silently);
            }
        },
        () = shared.stopping.cancelled() => return Err(Ended::Silently),
    }
    let first = tokio::select! {
        // What has come is heeded; where the stop has ended the claims already, this one is told so as well.
        biased;
        first = timeout(shared.io_timeout, first_frame(shared, connection)) => first,
        () = shared.stopping.cancelled() => Ok(Err(Some(Farewell::ShuttingDown))),
    };
    match first {
        Ok(Ok(admitted)) => Ok(admitted),
        Ok(Err(Some(farewell))) => {
            tracing::debug!(peer = %connection.peer(), code = %farewell.code(), %farewell, "refused");
            if farewell.is_clients_fault() {
                shared.witness().metrics.count_protocol_error(farewell.code());
            }
            connection.end(Some(farewell));
            Err(Ended::WithFarewell)
        }
        Ok(Err(None)) => Err(Ended::Silently),
        Err(_elapsed) => {
            tracing::debug!(peer = %connection.peer(), "no ACQUIRE within the io-timeout");
            Err(Ended::Silently)
        }
    }
}

/// Reads until the first frame is there, and makes the claim. What came with it is heeded too. The error is what is
/// still to be said.
async fn first_frame(shared: &Shared, connection: &Arc<Connection>) -> Result<Admitted, Option<Farewell>> {
    let mut buffer = [0; MAX_CLIENT_FRAME_BYTES + READ_BYTES];
    let mut filled = 0;
    loop {
        match connection.try_read(&mut buffer[filled..]) {
            Ok(0) => return Err(None),
            Ok(bytes) => filled += bytes,
            Err(error) if is_passing(&error) => {
                connection.readable().await.map_err(|_| None)?;
                continue;
            }
            Err(_) => return Err(None),
        }
        match decode_client(Phase::First, &buffer[..filled]) {
            Ok(None) => {}
            Ok(Some((ClientFrame::Heartbeat, _))) => unreachable!("a first frame is an ACQUIRE"),
            Ok(Some((ClientFrame::Acquire { lease, name }, taken))) => {
                let admitted = claim(shared, connection, Acquire { name, lease })?;
                heed(shared, connection, admitted.0, &buffer[taken..filled]);
                return Ok(admitted);
            }
            Err(error) => return Err(Some(Farewell::Protocol(error))),
        }
    }
}

/// Makes a claim, if the client may: the lease is looked at first, as its bytes come first, then the name, then how
/// many there are.
fn claim(shared: &Shared, connection: &Arc<Connection>, request: Acquire<'_>) -> Result<Admitted, Farewell> {
    let Acquire { name, lease } = request;
    if !shared.turnstile.allows(lease) {
        return Err(Farewell::LeaseTooLong);
    }
    if !shared.policy.load().allows(&connection.identity(), name) {
        shared.witness().note_denial(connection, name);
        return Err(Farewell::NotAuthorized);
    }
    let admission = shared.turnstile.admit(connection).map_err(|LimitReached| {
        shared.witness().metrics.limit_refusals.inc();
        Farewell::LimitReached
    })?;
    let claim = shared.shards.acquire(request, connection).map_err(|error| match error {
        AcquireError::Closed => Farewell::ShuttingDown,
        AcquireError::Full => Farewell::LimitReached,
    })?;
    Ok((claim, admission))
}

/// From the claim to the session's end.
async fn attend(shared: &Shared, connection: &Connection, claim: Claim) -> Ended {
    loop {
        let failure = match connection.call().await {
            Call::Ended(ended) => return ended,
            Call::Readable => {
                let mut buffer = [0; READ_BYTES];
                match connection.try_read(&mut buffer) {
                    Ok(0) => io::ErrorKind::UnexpectedEof,
                    Ok(bytes) => {
                        heed(shared, connection, claim, &buffer[..bytes]);
                        continue;
                    }
                    Err(error) if is_passing(&error) => continue,
                    Err(error) => error.kind(),
                }
            }
            Call::Blocked => match Box::pin(timeout(shared.io_timeout, connection.unblock())).await {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error.kind(),
                Err(_elapsed) => return leave(shared, claim, ReleaseReason::IoTimeout),
            },
            Call::Failed(failure) => failure,
        };
        if is_proof(failure) {
            return leave(shared, claim, ReleaseReason::Graceful);
        }
        if failure == io::ErrorKind::InvalidData {
            let _ended = leave(shared, claim, ReleaseReason::ProtocolError);
            return Ended::WithFarewell;
        }
        tracing::debug!(peer = %connection.peer(), %failure, "the connection failed; a holder keeps its claim for its lease");
        return match shared.shards.withdraw(claim, ReleaseReason::IoTimeout) {
            Ok(Standing::Waiting) => Ended::Silently,
            Ok(Standing::Holding(_)) | Err(_) => Box::pin(connection.ended()).await,
        };
    }
}

/// Ends the claim, unless somebody else has.
fn leave(shared: &Shared, claim: Claim, why: ReleaseReason) -> Ended {
    let _ended_already = shared.shards.release(claim, why);
    Ended::Silently
}

/// Takes in the frames that came after the first.
fn heed(shared: &Shared, connection: &Connection, claim: Claim, bytes: &[u8]) {
    let mut heartbeats = 0;
    let broken = loop {
        match decode_client(Phase::Later, &bytes[heartbeats..]) {
            Ok(None) => break None,
            Ok(Some((ClientFrame::Acquire { .. }, _))) => unreachable!("a later frame is a HEARTBEAT"),
            Ok(Some((ClientFrame::Heartbeat, taken))) => heartbeats += taken,
            Err(error) => break Some(error),
        }
    };
    if heartbeats > 0 {
        // A session that has ended has its connection told so.
        let _ = shared.shards.heartbeats(claim, heartbeats);
    }
    if let Some(error) = broken {
        break_off(shared, connection, claim, error);
    }
}

/// Ends the claim of a client that broke the protocol, and tells it.
fn break_off(shared: &Shared, connection: &Connection, claim: Claim, error: ProtocolError) {
    tracing::debug!(peer = %connection.peer(), code = %error.code(), %error, "protocol error");
    shared.witness().metrics.count_protocol_error(error.code());
    if shared.shards.release(claim, ReleaseReason::ProtocolError).is_ok() {
        connection.end(Some(Farewell::Protocol(error)));
    }
}

/// Delivers the `ERROR`: sends it, says that nothing follows, and listens a short time to what nobody wants to hear.
async fn part(shared: &Shared, connection: &Connection) {
    let farewell = async {
        connection.drain_outbox().await?;
        connection.close_tls();
        connection.drain_outbox().await?;
        connection.shut_sending()?;
        let drain = async {
            let mut heard = 0;
            while heard < DRAIN_BYTES {
                connection.readable().await?;
                let mut buffer = [0; DRAIN_READ_BYTES];
                match connection.try_read_raw(&mut buffer) {
                    Ok(0) => break,
                    Ok(bytes) => heard += bytes,
                    Err(error) if is_passing(&error) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        };
        timeout(DRAIN_TIME, drain).await.unwrap_or(Ok(()))
    };
    // A client that does not take its `ERROR` has lost nothing but the words.
    let _: Result<io::Result<()>, _> = timeout(shared.io_timeout, farewell).await;
}

/// Nothing came, and nothing is wrong.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Whether the client itself let go: its end closed, or its kernel said that nobody is there. An abort is none: it is
/// this machine that gave up, on Windows also after retransmissions that nobody answered.
const fn is_proof(failure: io::ErrorKind) -> bool {
    matches!(
        failure,
        io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::NotConnected
    )
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::is_proof;

    #[test]
    fn only_what_the_client_or_its_kernel_did_proves_that_it_let_go() {
        use ErrorKind::{
            BrokenPipe, ConnectionAborted, ConnectionReset, HostUnreachable, NetworkDown, NetworkUnreachable,
            NotConnected, Other, OutOfMemory, PermissionDenied, TimedOut, UnexpectedEof,
        };
        assert!([UnexpectedEof, ConnectionReset, BrokenPipe, NotConnected].into_iter().all(is_proof));
        let mute = [
            TimedOut,
            HostUnreachable,
            NetworkUnreachable,
            NetworkDown,
            ConnectionAborted,
            PermissionDenied,
            OutOfMemory,
            Other,
        ];
        assert!(!mute.into_iter().any(is_proof));
    }
}
