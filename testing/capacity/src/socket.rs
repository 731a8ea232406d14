//! A stream in memory with room for a claim and its replies, none of which is taken from the heap later.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use monolock_core::wire::MAX_CLIENT_FRAME_BYTES;
use parking_lot::Mutex;

/// The server's end.
#[derive(Debug)]
pub(crate) struct Socket(Arc<Stream>);

/// The client's end.
#[derive(Debug)]
pub(crate) struct Far(Arc<Stream>);

#[derive(Debug)]
struct Stream(Mutex<State>);

#[derive(Debug)]
struct State {
    to_server: [u8; MAX_CLIENT_FRAME_BYTES],
    /// How many of these bytes the client has sent, and how many of them the server has read.
    sent: usize,
    read: usize,
    /// How many bytes the server has sent: nobody reads them.
    taken: usize,
    /// The client sends no more.
    is_finished: bool,
    reader: Option<Waker>,
}

/// A new connection.
pub(crate) fn pair() -> (Socket, Far) {
    let state =
        State { to_server: [0; MAX_CLIENT_FRAME_BYTES], sent: 0, read: 0, taken: 0, is_finished: false, reader: None };
    let stream = Arc::new(Stream(Mutex::new(state)));
    (Socket(Arc::clone(&stream)), Far(stream))
}

impl Socket {
    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let Self(stream) = self;
        let mut state = stream.0.lock();
        let State { to_server, sent, read, is_finished, .. } = &mut *state;
        let unread = &to_server[*read..*sent];
        if unread.is_empty() && !*is_finished {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let bytes = unread.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&unread[..bytes]);
        *read += bytes;
        Ok(bytes)
    }

    #[expect(clippy::unnecessary_wraps, reason = "a socket in the world may fail")]
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.0.lock().taken += bytes.len();
        Ok(bytes.len())
    }

    pub(crate) fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.0.lock();
        if state.read < state.sent || state.is_finished {
            return Poll::Ready(Ok(()));
        }
        state.reader = Some(context.waker().clone());
        Poll::Pending
    }

    #[expect(clippy::unused_self, reason = "there is always room")]
    pub(crate) fn poll_write_ready(&self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    pub(crate) async fn readable(&self) -> io::Result<()> {
        std::future::poll_fn(|context| self.poll_read_ready(context)).await
    }

    pub(crate) async fn writable(&self) -> io::Result<()> {
        std::future::poll_fn(|context| self.poll_write_ready(context)).await
    }

    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "a socket in the world may fail")]
    pub(crate) fn shut_sending(&self) -> io::Result<()> {
        Ok(())
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

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Far {
    /// Sends a frame, before the server looks.
    pub(crate) fn send(&self, frame: &[u8]) {
        let mut state = self.0.0.lock();
        state.to_server[..frame.len()].copy_from_slice(frame);
        state.sent = frame.len();
    }

    /// How many bytes the server has sent.
    pub(crate) fn received(&self) -> usize {
        self.0.0.lock().taken
    }

    /// Is gone.
    pub(crate) fn close(&self) {
        let mut state = self.0.0.lock();
        state.is_finished = true;
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}
