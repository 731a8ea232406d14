//! A connection in memory: the server's socket and the client's end of it.
//!
//! The server's end keeps the contract of tokio's socket: no call waits, a write takes what there is room for, the last
//! task that asked for readiness is woken when there is some. The client's end is for a thread of the model, and
//! waits.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::sync::{Condvar, Mutex, MutexGuard};

/// The server's end.
#[derive(Debug)]
pub(crate) struct Socket(Arc<Line>);

/// The client's end.
#[derive(Clone, Debug)]
pub(crate) struct Far(Arc<Line>);

#[derive(Debug)]
struct Line {
    state: Mutex<State>,
    /// Something has changed for the client.
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Sent by the client and not read.
    to_server: VecDeque<u8>,
    /// The client sends no more.
    is_finished: bool,
    /// What reads and writes fail with.
    failure: Option<io::ErrorKind>,
    /// All that the server's socket has taken.
    taken: Vec<u8>,
    /// How many of these bytes the client has read.
    read: usize,
    /// How many bytes may lie unread.
    room: usize,
    /// How many bytes one write takes at the most.
    bite: usize,
    /// The server sends no more, in order or because it has closed.
    is_shut: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// A new connection that takes `bite` bytes at a time, and `room` bytes that are not read.
pub(crate) fn pair(room: usize, bite: usize) -> (Socket, Far) {
    let state = State {
        to_server: VecDeque::new(),
        is_finished: false,
        failure: None,
        taken: Vec::new(),
        read: 0,
        room,
        bite,
        is_shut: false,
        reader: None,
        writer: None,
    };
    let line = Arc::new(Line { state: Mutex::new(state), changed: Condvar::default() });
    (Socket(Arc::clone(&line)), Far(line))
}

impl State {
    fn check(&self) -> io::Result<()> {
        self.failure.map_or(Ok(()), |kind| Err(kind.into()))
    }

    fn is_readable(&self) -> bool {
        !self.to_server.is_empty() || self.is_finished || self.failure.is_some()
    }

    fn free(&self) -> usize {
        self.room - (self.taken.len() - self.read)
    }

    fn is_writable(&self) -> bool {
        self.free() > 0 || self.failure.is_some()
    }

    /// Wakes whoever waits for what is there now.
    fn wake(&mut self) {
        let reader = if self.is_readable() { self.reader.take() } else { None };
        let writer = if self.is_writable() { self.writer.take() } else { None };
        reader.into_iter().chain(writer).for_each(Waker::wake);
    }
}

impl Socket {
    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.0.state.lock();
        // What came before a failure can still be read.
        if state.to_server.is_empty() {
            state.check()?;
            return if state.is_finished { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
        }
        let bytes = state.to_server.len().min(buffer.len());
        for (place, byte) in buffer.iter_mut().zip(state.to_server.drain(..bytes)) {
            *place = byte;
        }
        Ok(bytes)
    }

    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.0.state.lock();
        assert!(!state.is_shut, "bytes are written after the end of the stream");
        state.check()?;
        let taken = bytes.len().min(state.bite).min(state.free());
        if taken == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.taken.extend_from_slice(&bytes[..taken]);
        drop(state);
        self.0.changed.notify_all();
        Ok(taken)
    }

    pub(crate) fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.state.lock();
        if state.is_readable() {
            return Poll::Ready(Ok(()));
        }
        state.reader = Some(context.waker().clone());
        Poll::Pending
    }

    pub(crate) fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.state.lock();
        if state.is_writable() {
            return Poll::Ready(Ok(()));
        }
        state.writer = Some(context.waker().clone());
        Poll::Pending
    }

    pub(crate) async fn readable(&self) -> io::Result<()> {
        std::future::poll_fn(|context| self.poll_read_ready(context)).await
    }

    pub(crate) async fn writable(&self) -> io::Result<()> {
        std::future::poll_fn(|context| self.poll_write_ready(context)).await
    }

    #[expect(clippy::unnecessary_wraps, reason = "a socket in the world may fail")]
    pub(crate) fn shut_sending(&self) -> io::Result<()> {
        self.0.state.lock().is_shut = true;
        self.0.changed.notify_all();
        Ok(())
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.0.state.lock().is_shut = true;
        self.0.changed.notify_all();
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
    /// Sends bytes. There is always room for them.
    pub(crate) fn send(&self, bytes: &[u8]) {
        self.change(|state| state.to_server.extend(bytes));
    }

    /// Sends no more, and still reads.
    pub(crate) fn finish(&self) {
        self.change(|state| state.is_finished = true);
    }

    /// Is gone: the end of its stream can be read, and writing fails.
    pub(crate) fn close(&self) {
        self.change(|state| {
            state.is_finished = true;
            // What still comes is thrown away by the kernel; that writing has failed is said later than that.
            state.room = usize::MAX;
        });
    }

    /// Lets reads and writes fail.
    pub(crate) fn fail(&self, kind: io::ErrorKind) {
        self.change(|state| state.failure = Some(kind));
    }

    /// Reads what there is, and waits where there is nothing; nothing is the end.
    pub(crate) fn receive(&self) -> Vec<u8> {
        let mut state = self.0.state.lock();
        while state.taken.len() == state.read && !state.is_shut && state.failure.is_none() {
            self.0.changed.wait(&mut state);
        }
        let bytes = state.taken[state.read..].to_vec();
        state.read = state.taken.len();
        state.wake();
        bytes
    }

    /// All that the server's socket has taken.
    pub(crate) fn taken(&self) -> Vec<u8> {
        self.0.state.lock().taken.clone()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state: MutexGuard<'_, State> = self.0.state.lock();
        change(&mut state);
        state.wake();
    }
}
