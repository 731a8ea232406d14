//! A claim as the generator makes it: frames over a socket and nothing else.

use std::io;
use std::sync::LazyLock;
use std::time::Duration;

use monolock_core::wire::{ClientFrame, ServerFrame, decode_server};
use monolock_core::{Lease, LockNameRef};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::args::Close;
use super::dial::Dialler;
use super::failures::FailureKind;

static HEARTBEAT: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut frame = Vec::new();
    ClientFrame::Heartbeat.encode(&mut frame);
    frame
});

/// A connection to the server.
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.write_all(bytes).await,
            Self::Tls(stream) => {
                stream.write_all(bytes).await?;
                stream.flush().await
            }
        }
    }

    async fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(bytes).await,
            Self::Tls(stream) => stream.read(bytes).await,
        }
    }

    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }
}

/// What the server says of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Waiting,
    Acquired,
}

/// A claim on a lock. Dropped, it is released.
pub(crate) struct Claim {
    stream: Stream,
    unread: Vec<u8>,
}

impl Claim {
    /// Connects and claims, and gives the first answer. Each of the two has `patience`.
    pub(crate) async fn place(
        dialler: &Dialler,
        name: LockNameRef<'_>,
        lease: Lease,
        patience: Duration,
    ) -> Result<(Self, Answer), FailureKind> {
        let stream = timeout(patience, dialler.connect()).await.map_err(|_elapsed| FailureKind::TimedOut)??;
        let mut claim = Self { stream, unread: Vec::new() };
        let mut frame = Vec::with_capacity(40);
        ClientFrame::Acquire { lease, name }.encode(&mut frame);
        let answer = timeout(patience, claim.ask(&frame)).await.map_err(|_elapsed| FailureKind::TimedOut)??;
        Ok((claim, answer))
    }

    /// Sends a heartbeat and waits for its answer.
    pub(crate) async fn heartbeat(&mut self, patience: Duration) -> Result<(), FailureKind> {
        let answer = timeout(patience, self.ask(&HEARTBEAT)).await;
        answer.map_err(|_elapsed| FailureKind::TimedOut)?.map(|_| ())
    }

    async fn ask(&mut self, frame: &[u8]) -> Result<Answer, FailureKind> {
        self.stream.write(frame).await.map_err(|_| FailureKind::Closed)?;
        self.answer().await
    }

    /// Waits for the grant.
    pub(crate) async fn granted(&mut self) -> Result<(), FailureKind> {
        while self.answer().await? == Answer::Waiting {}
        Ok(())
    }

    /// Lets go. Over TLS an orderly end is said before.
    pub(crate) async fn close(self, how: Close) {
        if let (Close::Orderly, Stream::Tls(mut stream)) = (how, self.stream) {
            // It is closed either way.
            let _ = stream.shutdown().await;
        }
    }

    /// Whether nothing has come since the last answer, neither bytes nor an end.
    pub(crate) fn is_quiet(&self) -> bool {
        let mut byte = [0];
        self.unread.is_empty()
            && matches!(self.stream.tcp().try_read(&mut byte), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// The next frame. Dropped before it is ready, it has lost nothing.
    async fn answer(&mut self) -> Result<Answer, FailureKind> {
        loop {
            match decode_server(&self.unread) {
                Ok(Some((ServerFrame::Waiting, bytes))) => {
                    self.unread.drain(..bytes);
                    return Ok(Answer::Waiting);
                }
                Ok(Some((ServerFrame::Acquired { .. }, bytes))) => {
                    self.unread.drain(..bytes);
                    return Ok(Answer::Acquired);
                }
                Ok(Some((ServerFrame::Error { code, .. }, _))) => return Err(FailureKind::Error(code)),
                Ok(None) => {}
                Err(_) => return Err(FailureKind::Unintelligible),
            }
            let mut bytes = [0; 64];
            match self.stream.read(&mut bytes).await {
                Ok(0) | Err(_) => return Err(FailureKind::Closed),
                Ok(read) => self.unread.extend_from_slice(&bytes[..read]),
            }
        }
    }
}
