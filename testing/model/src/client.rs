//! A client that speaks the protocol, and looks at the place of every frame that it is told.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use monolock_core::wire::{ClientFrame, ErrorCode, ServerFrame, decode_server};
use monolock_core::{Lease, LockNameRef, Token};

use crate::socket::Far;

/// The one lock that everybody wants.
pub(crate) const JOBS: &str = "jobs";

/// A client, for one thread of the model.
pub(crate) struct Client {
    far: Far,
    peer: SocketAddr,
    /// Received and not yet a whole frame.
    buffer: Vec<u8>,
    heartbeats: usize,
    replies: usize,
    /// The first reply was `WAITING`.
    has_queued: bool,
    token: Option<Token>,
    error: Option<ErrorCode>,
}

/// What a client is told next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Waiting,
    Acquired,
    Error(ErrorCode),
    /// Nothing any more.
    End,
}

impl Client {
    pub(crate) const fn new(far: Far, peer: SocketAddr) -> Self {
        Self { far, peer, buffer: Vec::new(), heartbeats: 0, replies: 0, has_queued: false, token: None, error: None }
    }

    pub(crate) const fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(crate) const fn token(&self) -> Option<Token> {
        self.token
    }

    /// Claims the lock.
    pub(crate) fn acquire(&self, lease: Duration) {
        let lease = Lease::try_from(lease).expect("the lease of a model is one");
        let name = LockNameRef::new(JOBS).expect("a name");
        let mut bytes = Vec::new();
        ClientFrame::Acquire { lease, name }.encode(&mut bytes);
        self.far.send(&bytes);
    }

    pub(crate) fn heartbeat(&mut self) {
        self.heartbeats += 1;
        let mut bytes = Vec::new();
        ClientFrame::Heartbeat.encode(&mut bytes);
        self.far.send(&bytes);
    }

    /// Sends what no client of the protocol sends.
    pub(crate) fn babble(&self) {
        self.far.send(&[0x7f]);
    }

    pub(crate) fn close(&self) {
        self.far.close();
    }

    pub(crate) fn finish(&self) {
        self.far.finish();
    }

    pub(crate) fn fail(&self, kind: io::ErrorKind) {
        self.far.fail(kind);
    }

    /// Waits for the next frame, and looks at its place among the others.
    pub(crate) fn listen(&mut self) -> Told {
        loop {
            if let Some((frame, bytes)) = decode_server(&self.buffer).expect("only frames are sent") {
                assert_eq!(self.error, None, "{frame:?} follows an ERROR");
                let told = match frame {
                    ServerFrame::Waiting => {
                        assert_eq!(self.token, None, "WAITING follows ACQUIRED");
                        self.has_queued |= self.replies == 0;
                        Told::Waiting
                    }
                    ServerFrame::Acquired { token } => {
                        assert!(self.token.is_none_or(|first| first == token), "another token");
                        self.token = Some(token);
                        Told::Acquired
                    }
                    ServerFrame::Error { code, .. } => {
                        self.error = Some(code);
                        Told::Error(code)
                    }
                };
                self.replies += usize::from(!matches!(told, Told::Error(_)));
                assert!(self.replies <= self.owed(), "a reply too many");
                self.buffer.drain(..bytes);
                return told;
            }
            let bytes = self.far.receive();
            if bytes.is_empty() {
                return Told::End;
            }
            self.buffer.extend(bytes);
        }
    }

    /// How many replies there are to be by now: one to the claim, one to each heartbeat, and the promotion.
    const fn owed(&self) -> usize {
        1 + self.heartbeats + (self.has_queued && self.token.is_some()) as usize
    }

    /// Listens until it holds the lock, or there is nothing more to be heard. Says whether it holds it.
    pub(crate) fn wait_for_lock(&mut self) -> bool {
        while self.token.is_none() {
            match self.listen() {
                Told::Waiting | Told::Acquired => {}
                Told::Error(_) | Told::End => return false,
            }
        }
        true
    }

    /// Listens until every claim and heartbeat is answered.
    pub(crate) fn wait_for_replies(&mut self) {
        while self.replies < self.owed() {
            let told = self.listen();
            assert!(matches!(told, Told::Waiting | Told::Acquired), "{told:?} instead of a reply");
        }
    }

    /// Listens until it is told an `ERROR`.
    pub(crate) fn wait_for_error(&mut self) -> ErrorCode {
        loop {
            match self.listen() {
                Told::Waiting | Told::Acquired => {}
                Told::Error(code) => return code,
                Told::End => panic!("the stream ends without an ERROR"),
            }
        }
    }

    /// All that the server's socket has taken.
    pub(crate) fn taken(&self) -> Vec<u8> {
        self.far.taken()
    }

    /// Listens to the end of the stream. Says what the last `ERROR` was.
    pub(crate) fn wait_for_end(&mut self) -> Option<ErrorCode> {
        while self.listen() != Told::End {}
        self.error
    }
}
