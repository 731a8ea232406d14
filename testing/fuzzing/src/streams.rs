//! A client's end of a connection and the server's, without a network between them: what is written on one is there
//! on the other when the call returns.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// A client's end.
#[derive(Debug)]
pub(crate) struct ClientEnd(TcpStream);

/// Two ends; the server's is for the runtime that this is called on.
///
/// # Errors
/// Those of the operating system, which has too few descriptors.
pub(crate) fn connect() -> io::Result<(ClientEnd, tokio::net::TcpStream)> {
    let (client, server) = UnixStream::pair()?;
    client.set_nonblocking(true)?;
    server.set_nonblocking(true)?;
    // The server serves TCP, and asks nothing of its streams that these do not give.
    let [client, server] = [client, server].map(|end| TcpStream::from(OwnedFd::from(end)));
    Ok((ClientEnd(client), tokio::net::TcpStream::from_std(server)?))
}

impl ClientEnd {
    /// Sends; what the server does not take any more is lost.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        match self.0.write_all(bytes) {
            Ok(()) => {}
            Err(error) => assert_ne!(error.kind(), ErrorKind::WouldBlock, "the server reads what it is sent"),
        }
    }

    /// Says that nothing follows.
    pub(crate) fn half_close(&self) {
        // Where the server has closed already, there is nobody to be told.
        let _ = self.0.shutdown(Shutdown::Write);
    }

    /// All that the server has said by now, and whether that was all.
    pub(crate) fn hear(&mut self) -> (Vec<u8>, bool) {
        let mut heard = Vec::new();
        let outcome = self.0.read_to_end(&mut heard);
        let goes_on = outcome.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        (heard, !goes_on)
    }
}
