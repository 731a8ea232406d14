//! A client's socket, as a connection needs it: it never makes a thread wait.

use std::io::{self, Read as _};
use std::net::Shutdown;
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// One connection of TCP.
#[derive(Debug)]
pub(crate) struct Socket(TcpStream);

impl Socket {
    pub(crate) const fn new(stream: TcpStream) -> Self {
        Self(stream)
    }

    /// Reads what is there; nothing is the end of the stream.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] where nothing has come, else what the system said.
    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let Self(stream) = self;
        let mut taken = 0;
        let outcome = stream.try_io(Interest::READABLE, || {
            taken = (&*SockRef::from(stream)).read(buffer)?;
            // Less than there was room for: the socket is empty, and saying so now saves the read that would find out.
            if 0 < taken && taken < buffer.len() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        match outcome {
            Err(_) if taken > 0 => Ok(taken),
            outcome => outcome.map(|()| taken),
        }
    }

    /// Writes what the socket takes.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] where it takes nothing, else what the system said.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    /// Waits until a read may find something. One task at a time is called for it.
    pub(crate) fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_read_ready(context)
    }

    /// Waits until the socket may take something. One task at a time is called for it.
    pub(crate) fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_write_ready(context)
    }

    /// Waits until a read may find something, whoever else waits.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        self.0.readable().await
    }

    /// Waits until the socket may take something, whoever else waits.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.0.writable().await
    }

    /// Says that no more will be sent.
    pub(crate) fn shut_sending(&self) -> io::Result<()> {
        SockRef::from(&self.0).shutdown(Shutdown::Write)
    }
}

impl io::Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.try_read(buffer)
    }
}

impl io::Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.try_write(bytes)
    }

    fn write_vectored(&mut self, bytes: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
