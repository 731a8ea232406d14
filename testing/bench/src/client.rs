//! The measuring client: blocking sockets and one thread, so that nothing but the server is measured.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use monolock_core::wire::{ClientFrame, ServerFrame, decode_server};
use monolock_core::{Lease, LockNameRef};
use rustls::{ClientConnection, StreamOwned};
use socket2::SockRef;

use crate::target::Target;

/// A claim on the one lock that is measured. Dropped, it is released.
pub(crate) struct Claim(Box<dyn Stream>);

trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

impl Claim {
    /// Connects, with TLS where the server wants it, and asks for the lock.
    pub(crate) fn make(server: &Target) -> io::Result<Self> {
        let socket = TcpStream::connect(server.address)?;
        socket.set_nodelay(true)?;
        // Closing sends a reset, so that no port of a past round is kept from the next.
        SockRef::from(&socket).set_linger(Some(Duration::ZERO))?;
        let mut stream: Box<dyn Stream> = match &server.tls {
            None => Box::new(socket),
            Some(config) => {
                let name = server.address.ip().into();
                let connection = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
                Box::new(StreamOwned::new(connection, socket))
            }
        };
        let name = LockNameRef::new("bench").expect("the name is valid");
        let mut frame = Vec::new();
        ClientFrame::Acquire { lease: Lease::MAX, name }.encode(&mut frame);
        stream.write_all(&frame)?;
        stream.flush()?;
        Ok(Self(stream))
    }

    pub(crate) fn heartbeat(&mut self) -> io::Result<()> {
        let mut frame = Vec::new();
        ClientFrame::Heartbeat.encode(&mut frame);
        self.0.write_all(&frame)?;
        self.0.flush()
    }

    pub(crate) fn expect_waiting(&mut self) -> io::Result<()> {
        match decode_server(&self.read::<1>()?) {
            Ok(Some((ServerFrame::Waiting, _))) => Ok(()),
            other => Err(io::Error::other(format!("WAITING was expected, and {other:?} came"))),
        }
    }

    pub(crate) fn expect_acquired(&mut self) -> io::Result<()> {
        match decode_server(&self.read::<9>()?) {
            Ok(Some((ServerFrame::Acquired { .. }, _))) => Ok(()),
            other => Err(io::Error::other(format!("ACQUIRED was expected, and {other:?} came"))),
        }
    }

    fn read<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut frame = [0; N];
        self.0.read_exact(&mut frame)?;
        Ok(frame)
    }
}
