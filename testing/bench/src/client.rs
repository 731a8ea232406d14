//! The measuring client: blocking sockets, so that nothing but the server is measured.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use monolock_core::wire::{ClientFrame, ServerFrame, decode_server};
use monolock_core::{Lease, LockNameRef};
use rustls::{ClientConnection, StreamOwned};
use socket2::SockRef;

use crate::target::Address;

/// What does not come in so long does not come.
const PATIENCE: Duration = Duration::from_secs(20);

/// A claim on a lock. Dropped, it is released.
pub(crate) struct Claim {
    stream: Box<dyn Stream>,
    /// Just before it was sent, on a connection that was there already.
    pub(crate) sent: Instant,
}

trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

impl Claim {
    /// Connects, with TLS where the server wants it, and asks for the one lock that is measured.
    pub(crate) fn make(server: &Address) -> io::Result<Self> {
        Self::make_with(server, "bench", Lease::MAX)
    }

    /// The same of another lock, with another lease.
    pub(crate) fn make_with(server: &Address, name: &str, lease: Lease) -> io::Result<Self> {
        let socket = TcpStream::connect(server.socket)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        // Closing sends a reset, so that no port of a past round is kept from the next.
        SockRef::from(&socket).set_linger(Some(Duration::ZERO))?;
        let mut stream: Box<dyn Stream> = match &server.tls {
            None => Box::new(socket),
            Some(config) => {
                let name = server.socket.ip().into();
                let connection = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
                Box::new(StreamOwned::new(connection, socket))
            }
        };
        let name = LockNameRef::new(name).map_err(io::Error::other)?;
        let mut frame = Vec::new();
        ClientFrame::Acquire { lease, name }.encode(&mut frame);
        let sent = Instant::now();
        stream.write_all(&frame)?;
        stream.flush()?;
        Ok(Self { stream, sent })
    }

    pub(crate) fn heartbeat(&mut self) -> io::Result<()> {
        let mut frame = Vec::new();
        ClientFrame::Heartbeat.encode(&mut frame);
        self.stream.write_all(&frame)?;
        self.stream.flush()
    }

    pub(crate) fn expect_waiting(&mut self) -> io::Result<()> {
        if self.is_granted()? { Err(unexpected("WAITING", "ACQUIRED")) } else { Ok(()) }
    }

    pub(crate) fn expect_acquired(&mut self) -> io::Result<()> {
        if self.is_granted()? { Ok(()) } else { Err(unexpected("ACQUIRED", "WAITING")) }
    }

    /// Reads on until the lock is there: the end of whoever had it before may be read after this claim, which came by
    /// another connection.
    pub(crate) fn await_acquired(&mut self) -> io::Result<()> {
        while !self.is_granted()? {}
        Ok(())
    }

    /// The next answer: `ACQUIRED`, or else `WAITING`.
    pub(crate) fn is_granted(&mut self) -> io::Result<bool> {
        let mut frame = [0; 9];
        self.stream.read_exact(&mut frame[..1])?;
        match decode_server(&frame[..1]) {
            Ok(Some((ServerFrame::Waiting, _))) => return Ok(false),
            Ok(None) => self.stream.read_exact(&mut frame[1..])?,
            other => return Err(unexpected("WAITING or ACQUIRED", &format!("{other:?}"))),
        }
        match decode_server(&frame) {
            Ok(Some((ServerFrame::Acquired { .. }, _))) => Ok(true),
            other => Err(unexpected("ACQUIRED", &format!("{other:?}"))),
        }
    }
}

fn unexpected(expected: &str, came: &str) -> io::Error {
    io::Error::other(format!("{expected} was expected, and {came} came"))
}
