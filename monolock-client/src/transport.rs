//! What lies between a session and its socket: nothing, or TLS.
//!
//! Both drivers move bytes through here, over a socket that never blocks, so TLS is written once. A frame is stamped by
//! its session before it comes here, and a session looks at its clock when what was decrypted is handed to it:
//! encryption can only make a client give up earlier. Whoever holds the claim hangs up from its own thread, so the lock
//! here is held across no wait and no foreign code.

use std::io::{self, ErrorKind};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::claim::Claim;
use crate::error::AttemptFailure;

/// How many bytes one read takes: several frames, of which there are seldom two.
const READ_BYTES: usize = 512;

/// A socket that does not block.
pub(crate) trait Socket {
    fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize>;
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Ends the connection on the wire here and now, though others may still have the socket.
    fn shut_down(&self);
}

/// A socket, and what its bytes are wrapped in.
#[derive(Debug)]
pub(crate) struct Transport<S> {
    socket: S,
    channel: Mutex<Channel>,
}

/// Whether the server may still say something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Open,
    Ended,
}

impl<S: Socket> Transport<S> {
    pub(crate) fn new(socket: S, channel: Channel) -> Arc<Self> {
        Arc::new(Self { socket, channel: Mutex::new(channel) })
    }

    pub(crate) const fn socket(&self) -> &S {
        &self.socket
    }

    /// Whether the socket has not taken everything yet.
    pub(crate) fn has_unwritten(&self) -> bool {
        !self.lock().unwritten.is_empty()
    }

    /// Goes on with the handshake as far as the socket lets it; says whether it is done. What the server sent to the
    /// session that is to begin is appended to `early`.
    pub(crate) fn shake_hands(&self, early: &mut Vec<u8>) -> Result<bool, AttemptFailure> {
        loop {
            self.send(&[]).map_err(AttemptFailure::Handshake)?;
            if !self.lock().is_handshaking() {
                return Ok(true);
            }
            match self.receive(early) {
                // An end that comes with the last of the handshake is the session's: the server may have said why.
                Ok(flow) if flow == Flow::Open || !self.lock().is_handshaking() => {}
                Ok(_) => {
                    let ended = io::Error::new(ErrorKind::UnexpectedEof, "the server closed the connection");
                    return Err(AttemptFailure::Handshake(ended));
                }
                Err(error) if is_for_later(&error) => return Ok(false),
                Err(error) => return Err(AttemptFailure::Handshake(error)),
            }
        }
    }

    /// Ends the connection: a farewell where TLS has one, as far as the socket takes it, and no wait for an answer.
    pub(crate) fn hang_up(&self) {
        let mut channel = self.lock();
        channel.say_farewell();
        // Where it fails, the connection is already gone.
        let _ = channel.flush(&self.socket);
        self.socket.shut_down();
    }

    /// Takes a frame on, and writes what the socket takes now.
    fn send(&self, frame: &[u8]) -> io::Result<()> {
        let mut channel = self.lock();
        channel.wrap(frame)?;
        channel.flush(&self.socket)
    }

    /// Reads what lies in the socket, once, and appends what of it is for the session.
    fn receive(&self, frames: &mut Vec<u8>) -> io::Result<Flow> {
        let mut bytes = [0; READ_BYTES];
        let read = self.socket.try_read(&mut bytes)?;
        if read == 0 {
            return Ok(Flow::Ended);
        }
        let mut channel = self.lock();
        let unwrapped = channel.unwrap(&bytes[..read], frames);
        if unwrapped.is_err() {
            // TLS says why it goes. The connection ends either way.
            let _ = channel.flush(&self.socket);
        }
        unwrapped
    }

    fn lock(&self) -> MutexGuard<'_, Channel> {
        self.channel.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the bytes of one connection are wrapped in.
#[derive(Debug)]
pub(crate) struct Channel {
    /// What the socket has not taken yet: at most one frame, since there is at most one unanswered, and what TLS adds
    /// to it.
    unwritten: Vec<u8>,
    #[cfg(feature = "tls")]
    tls: Option<Box<rustls::ClientConnection>>,
}

#[cfg(not(feature = "tls"))]
#[expect(clippy::unnecessary_wraps, reason = "with TLS they can fail")]
#[expect(clippy::unused_self, reason = "with TLS it is asked")]
impl Channel {
    pub(crate) const fn plain() -> Self {
        Self { unwritten: Vec::new() }
    }

    const fn is_handshaking(&self) -> bool {
        false
    }

    fn wrap(&mut self, frame: &[u8]) -> io::Result<()> {
        self.unwritten.extend_from_slice(frame);
        Ok(())
    }

    fn unwrap(&self, bytes: &[u8], frames: &mut Vec<u8>) -> io::Result<Flow> {
        frames.extend_from_slice(bytes);
        Ok(Flow::Open)
    }

    const fn say_farewell(&self) {}
}

#[cfg(feature = "tls")]
impl Channel {
    pub(crate) const fn plain() -> Self {
        Self { unwritten: Vec::new(), tls: None }
    }

    pub(crate) fn tls(connection: rustls::ClientConnection) -> Self {
        Self { unwritten: Vec::new(), tls: Some(Box::new(connection)) }
    }

    fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    fn wrap(&mut self, frame: &[u8]) -> io::Result<()> {
        use std::io::Write as _;

        match &mut self.tls {
            None => self.unwritten.extend_from_slice(frame),
            Some(tls) => {
                tls.writer().write_all(frame)?;
                self.take_encrypted();
            }
        }
        Ok(())
    }

    fn unwrap(&mut self, mut bytes: &[u8], frames: &mut Vec<u8>) -> io::Result<Flow> {
        let Some(tls) = &mut self.tls else {
            frames.extend_from_slice(bytes);
            return Ok(Flow::Open);
        };
        let mut flow = Flow::Open;
        let mut broken = None;
        while !bytes.is_empty() && flow == Flow::Open && broken.is_none() {
            tls.read_tls(&mut bytes)?;
            match tls.process_new_packets() {
                Ok(state) if state.peer_has_closed() => flow = Flow::Ended,
                Ok(_) => {}
                Err(error) => broken = Some(io::Error::new(ErrorKind::InvalidData, error)),
            }
            // What came before the end, or before what is broken, is genuine.
            read_decrypted(tls, frames);
        }
        self.take_encrypted();
        broken.map_or(Ok(flow), Err)
    }

    fn say_farewell(&mut self) {
        if let Some(tls) = self.tls.as_mut().filter(|tls| !tls.is_handshaking()) {
            tls.send_close_notify();
            self.take_encrypted();
        }
    }

    fn take_encrypted(&mut self) {
        let Some(tls) = &mut self.tls else { return };
        while tls.wants_write() {
            tls.write_tls(&mut self.unwritten).expect("writing into memory does not fail");
        }
    }
}

#[cfg(feature = "tls")]
fn read_decrypted(tls: &mut rustls::ClientConnection, frames: &mut Vec<u8>) {
    use std::io::Read as _;

    // It ends with `WouldBlock`, or with the end of the stream, which the state has told already.
    let _ = tls.reader().read_to_end(frames);
}

impl Channel {
    fn flush(&mut self, socket: &impl Socket) -> io::Result<()> {
        while !self.unwritten.is_empty() {
            match socket.try_write(&self.unwritten) {
                Ok(written) => drop(self.unwritten.drain(..written)),
                Err(error) if is_for_later(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Socket for TcpStream {
    fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        io::Read::read(&mut &*self, bytes)
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        io::Write::write(&mut &*self, bytes)
    }

    fn shut_down(&self) {
        // Where it fails, the connection is already gone.
        let _ = self.shutdown(Shutdown::Both);
    }
}

#[cfg(feature = "tokio")]
impl Socket for tokio::net::TcpStream {
    fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        Self::try_read(self, bytes)
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        Self::try_write(self, bytes)
    }

    fn shut_down(&self) {
        // Where it fails, the connection is already gone.
        let _ = socket2::SockRef::from(self).shutdown(Shutdown::Both);
    }
}

/// A transport and the session on it. Dropping it hangs up.
#[derive(Debug)]
pub(crate) struct Connection<S: Socket> {
    transport: Arc<Transport<S>>,
    claim: Claim,
    /// What one input reads or one output writes; kept for its memory.
    bytes: Vec<u8>,
    /// How TLS failed, where it did.
    broken: Option<io::Error>,
}

impl<S: Socket> Connection<S> {
    /// Begins a session on a transport that is ready for it, with what the server has said already.
    pub(crate) fn new(transport: Arc<Transport<S>>, claim: Claim, early: Vec<u8>) -> Self {
        let mut connection = Self { transport, claim, bytes: early, broken: None };
        connection.hand_over();
        connection
    }

    pub(crate) const fn transport(&self) -> &Arc<Transport<S>> {
        &self.transport
    }

    pub(crate) const fn claim(&self) -> &Claim {
        &self.claim
    }

    /// Writes what is to be written.
    pub(crate) fn send(&mut self) {
        self.bytes.clear();
        self.claim.transmit(&mut self.bytes);
        if let Err(error) = self.transport.send(&self.bytes) {
            // The server's last word may lie in the socket and say more than the system's error.
            self.receive();
            self.claim.disconnected(Some(&error));
        }
    }

    /// Takes in what lies in the socket, or that time has passed where there is nothing.
    pub(crate) fn receive(&mut self) {
        self.bytes.clear();
        let received = self.transport.receive(&mut self.bytes);
        self.hand_over();
        match received {
            // TLS may have come by without a frame in it: that is no reason to forget the time.
            Ok(Flow::Open) => self.claim.tick(),
            Ok(Flow::Ended) => self.claim.disconnected(None),
            Err(error) if is_for_later(&error) => self.claim.tick(),
            Err(error) => {
                self.claim.disconnected(Some(&error));
                self.broken = Some(error).filter(is_tls_error);
            }
        }
    }

    /// Waiting for the socket failed.
    pub(crate) fn failed(&mut self, error: &io::Error) {
        self.receive();
        self.claim.disconnected(Some(error));
    }

    /// Why the session ended before its claim was taken in, where it did.
    pub(crate) fn take_refusal(&mut self) -> Option<AttemptFailure> {
        let reason = self.claim.take_refusal()?;
        Some(self.broken.take().map_or(AttemptFailure::Refused(reason), AttemptFailure::Handshake))
    }

    fn hand_over(&mut self) {
        if !self.bytes.is_empty() {
            self.claim.receive(&self.bytes);
        }
    }
}

impl<S: Socket> Drop for Connection<S> {
    fn drop(&mut self) {
        self.transport.hang_up();
    }
}

/// No socket fails like this. With TLS 1.3 a server refuses a client's certificate after the client has done its part
/// of the handshake.
fn is_tls_error(error: &io::Error) -> bool {
    error.kind() == ErrorKind::InvalidData
}

/// Nothing is wrong: the socket has nothing, or takes nothing, for now. (`TimedOut` is the end: the system gave the
/// peer up.)
pub(crate) fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
