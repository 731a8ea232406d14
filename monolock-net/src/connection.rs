//! One client's socket and what is still to be said to it.
//!
//! Whoever causes a frame pushes it here in memory, under its shard's lock, and writes it after: one system call, from
//! the task that is at hand. At most one task writes at a time, and it goes on until nothing is left, so the order on
//! the wire is the order of the pushes. The connection's own task is woken only to finish a write that the socket did
//! not take, or because its session has ended.

use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use rustls::{ServerConfig, ServerConnection};
use tokio::task::coop;

use crate::outbox::{Farewell, Outbox, Reply};
use crate::socket::Socket;
use crate::sync::{AtomicBool, AtomicWaker, Mutex};
use crate::tls;

/// How often one task writes before it leaves the rest to the connection's own. Whoever promotes a client that floods
/// the server with heartbeats would else write its answers for as long as the flood goes on.
const WRITES_PER_TURN: usize = 8;

#[derive(Debug)]
pub(crate) struct Connection {
    socket: Socket,
    peer: SocketAddr,
    state: Mutex<State>,
    /// The connection's own task.
    task: AtomicWaker,
    tls: Option<Box<Tls>>,
}

#[derive(Debug, Default)]
struct State {
    outbox: Outbox,
    /// Encrypted bytes wait for the socket: frames that have left the outbox, or words of TLS itself. Changed under
    /// the machine's lock, which is taken before this one and never after.
    owes_ciphertext: bool,
    writer: Writer,
    ended: Option<Ended>,
}

/// The encryption of a connection: whoever pushes a frame encrypts it as well.
#[derive(Debug)]
struct Tls {
    machine: Mutex<ServerConnection>,
    identity: OnceLock<Arc<str>>,
    /// The machine has decrypted more than was read, or the client's farewell: nothing of it makes the socket
    /// readable. For the connection's task alone.
    has_unread: AtomicBool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Writer {
    #[default]
    Idle,
    /// Somebody is in the middle of a write, and will look at the outbox again after it.
    Busy,
    /// The socket is full, or a turn is over; the connection's task goes on once the socket takes more.
    Blocked,
    /// The socket took its last byte.
    Failed(io::ErrorKind),
}

/// How a session ended that did not end itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// There is nothing to say.
    Silently,
    /// The farewell is in the outbox.
    WithFarewell,
}

/// What the connection's task is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Readable,
    /// The outbox waits for the socket.
    Blocked,
    Failed(io::ErrorKind),
    Ended(Ended),
}

impl Connection {
    pub(crate) fn new(socket: Socket, peer: SocketAddr) -> Self {
        Self { socket, peer, state: Mutex::default(), task: AtomicWaker::new(), tls: None }
    }

    /// A connection that begins with a TLS handshake.
    ///
    /// # Errors
    /// Those of rustls, for a configuration that it cannot use.
    pub(crate) fn with_tls(socket: Socket, peer: SocketAddr, config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        let machine = Mutex::new(ServerConnection::new(config)?);
        let tls = Some(Box::new(Tls { machine, identity: OnceLock::new(), has_unread: AtomicBool::new(false) }));
        Ok(Self { tls, ..Self::new(socket, peer) })
    }

    pub(crate) const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Who the client is by its certificate; empty without mutual TLS.
    pub(crate) fn identity(&self) -> Arc<str> {
        self.tls.as_ref().and_then(|tls| tls.identity.get().cloned()).unwrap_or_default()
    }

    /// The TLS handshake, where there is to be one. For the connection's task alone, before anything else.
    ///
    /// # Errors
    /// What the socket said, or [`io::ErrorKind::InvalidData`] with what TLS said; then the client is still to be told
    /// ([`drain_outbox`](Self::drain_outbox)).
    pub(crate) async fn shake_hands(&self) -> io::Result<()> {
        let Some(tls) = &self.tls else { return Ok(()) };
        while !self.try_shake_hands(tls)? {
            if tls.machine.lock().wants_write() {
                self.socket.writable().await?;
            } else {
                self.socket.readable().await?;
            }
        }
        Ok(())
    }

    /// Goes on with the handshake as far as the socket allows; says whether it is over.
    fn try_shake_hands(&self, tls: &Tls) -> io::Result<bool> {
        let mut machine = tls.machine.lock();
        loop {
            while machine.wants_write() {
                match machine.write_tls(&mut &self.socket) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                    written => written?,
                };
            }
            if !machine.is_handshaking() {
                let certificate = machine.peer_certificates().and_then(<[_]>::first);
                let _first_and_only = tls.identity.set(certificate.map(tls::identity).unwrap_or_default());
                return Ok(true);
            }
            match self.receive(&mut machine) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => {
                    // What TLS has to say about it.
                    self.state.lock().owes_ciphertext = machine.wants_write();
                    return Err(error);
                }
            }
        }
    }

    /// Reads from the socket once and decrypts what came.
    fn receive(&self, machine: &mut ServerConnection) -> io::Result<usize> {
        let bytes = machine.read_tls(&mut &self.socket)?;
        machine.process_new_packets().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(bytes)
    }

    /// Adds a reply, in memory. [`flush`](Self::flush) sends it.
    pub(crate) fn push(&self, reply: Reply) {
        self.state.lock().outbox.push(reply);
    }

    /// Notes that the session is over, with a last frame or without. [`flush`](Self::flush) calls the task.
    pub(crate) fn end(&self, farewell: Option<Farewell>) {
        let mut state = self.state.lock();
        state.ended = Some(if let Some(farewell) = farewell {
            state.outbox.bid(farewell);
            Ended::WithFarewell
        } else {
            Ended::Silently
        });
    }

    /// Sends what the socket takes, and calls the connection's task for what is left to do. Never waits.
    pub(crate) fn flush(&self) {
        let is_wanted = {
            let mut state = self.state.lock();
            if state.writer == Writer::Idle && state.owes() {
                state.writer = Writer::Busy;
                drop(state);
                self.write()
            } else {
                state.ended.is_some()
            }
        };
        if is_wanted {
            self.task.wake();
        }
    }

    /// Reads what is there; nothing is the end of the stream.
    ///
    /// # Errors
    /// What the socket said, or [`io::ErrorKind::InvalidData`] with what TLS said.
    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &self.tls else { return self.try_read_raw(buffer) };
        let mut machine = tls.machine.lock();
        let outcome = loop {
            match machine.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // A killed process says no farewell in TLS; the end of its stream is the end all the same.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break Ok(0),
                outcome => break outcome,
            }
            if let Err(error) = self.receive(&mut machine) {
                break Err(error);
            }
        };
        // There are no new packets; this is how rustls is asked.
        let is_left = |left: rustls::IoState| left.plaintext_bytes_to_read() > 0 || left.peer_has_closed();
        let has_unread = matches!(outcome, Ok(1..)) && machine.process_new_packets().is_ok_and(is_left);
        tls.has_unread.store(has_unread, Ordering::Relaxed);
        if machine.wants_write() {
            self.state.lock().owes_ciphertext = true;
            drop(machine);
            self.flush();
        }
        outcome
    }

    /// Reads what is there without a look at what it means.
    pub(crate) fn try_read_raw(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.try_read(buffer)
    }

    /// Waits until the connection's task is wanted. For that task alone.
    pub(crate) async fn call(&self) -> Call {
        std::future::poll_fn(|context| {
            self.task.register(context.waker());
            let State { ended, writer, .. } = *self.state.lock();
            match (ended, writer) {
                (Some(ended), _) => Poll::Ready(Call::Ended(ended)),
                (None, Writer::Blocked) => Poll::Ready(Call::Blocked),
                (None, Writer::Failed(kind)) => Poll::Ready(Call::Failed(kind)),
                (None, Writer::Idle | Writer::Busy) if self.has_unread() => {
                    // Like a read of the socket, so that a client with much to say leaves others their turn.
                    std::task::ready!(coop::poll_proceed(context)).made_progress();
                    Poll::Ready(Call::Readable)
                }
                (None, Writer::Idle | Writer::Busy) => self.socket.poll_read_ready(context).map(|ready| match ready {
                    Ok(()) => Call::Readable,
                    // The runtime is gone, and what a read would say is for ever that nothing has come.
                    Err(error) => Call::Failed(error.kind()),
                }),
            }
        })
        .await
    }

    fn has_unread(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_unread.load(Ordering::Relaxed))
    }

    /// Waits until the session is ended by somebody else, whatever the socket says. For the connection's task alone.
    pub(crate) async fn ended(&self) -> Ended {
        std::future::poll_fn(|context| {
            self.task.register(context.waker());
            self.state.lock().ended.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Writes what the socket did not take, until it is taken, another task writes, or the session has ended. For the
    /// connection's task alone.
    ///
    /// # Errors
    /// What the socket said.
    pub(crate) async fn unblock(&self) -> io::Result<()> {
        std::future::poll_fn(|context| self.poll_unblock(context)).await
    }

    fn poll_unblock(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.task.register(context.waker());
        loop {
            let mut state = self.state.lock();
            match (state.ended, state.writer) {
                (None, Writer::Blocked) => std::task::ready!(self.socket.poll_write_ready(context))?,
                (None, Writer::Failed(kind)) => return Poll::Ready(Err(kind.into())),
                (Some(_), _) | (None, Writer::Idle | Writer::Busy) => return Poll::Ready(Ok(())),
            }
            state.writer = Writer::Busy;
            drop(state);
            self.write();
        }
    }

    /// Writes until the outbox of a session that has ended is empty. For the connection's task alone.
    ///
    /// # Errors
    /// What the socket said.
    pub(crate) async fn drain_outbox(&self) -> io::Result<()> {
        std::future::poll_fn(|context| self.poll_drain_outbox(context)).await
    }

    fn poll_drain_outbox(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.task.register(context.waker());
        loop {
            let mut state = self.state.lock();
            if !state.owes() {
                return Poll::Ready(Ok(()));
            }
            match state.writer {
                Writer::Failed(kind) => return Poll::Ready(Err(kind.into())),
                // The session has ended, so the other writer calls this task when it is done.
                Writer::Busy => return Poll::Pending,
                Writer::Blocked => std::task::ready!(self.socket.poll_write_ready(context))?,
                Writer::Idle => {}
            }
            state.writer = Writer::Busy;
            drop(state);
            self.write();
        }
    }

    /// Adds the last word of TLS, in memory, where there is TLS.
    pub(crate) fn close_tls(&self) {
        if let Some(tls) = &self.tls {
            let mut machine = tls.machine.lock();
            machine.send_close_notify();
            self.state.lock().owes_ciphertext = true;
        }
    }

    /// Says that no more will be sent.
    pub(crate) fn shut_sending(&self) -> io::Result<()> {
        self.socket.shut_sending()
    }

    /// Waits for bytes, whatever else is going on.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        self.socket.readable().await
    }

    /// Writes until the outbox is empty, the socket takes no more, or its turn is over. The caller has made itself the
    /// writer.
    ///
    /// Says whether the connection's task is wanted after it. A session that ends during the write counts: its task
    /// waits for this writer.
    fn write(&self) -> bool {
        for _ in 0..WRITES_PER_TURN {
            let bytes = {
                let mut state = self.state.lock();
                if !state.owes() {
                    state.writer = Writer::Idle;
                    return state.ended.is_some();
                }
                state.outbox.encode()
            };
            let failure = match self.send(&bytes) {
                Ok(()) => continue,
                Err(error) => error.kind(),
            };
            if failure == io::ErrorKind::Interrupted {
                continue;
            }
            let is_full = failure == io::ErrorKind::WouldBlock;
            let writer = if is_full { Writer::Blocked } else { Writer::Failed(failure) };
            self.state.lock().writer = writer;
            return true;
        }
        self.state.lock().writer = Writer::Blocked;
        true
    }

    /// One write. With TLS, new bytes are encrypted only when the last ones are out, so that no more than one batch is
    /// kept.
    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &self.tls else {
            let taken = self.socket.try_write(bytes)?;
            self.state.lock().outbox.consume(taken);
            return Ok(());
        };
        let mut machine = tls.machine.lock();
        let taken = if machine.wants_write() { 0 } else { machine.writer().write(bytes)? };
        let written = machine.write_tls(&mut &self.socket);
        let mut state = self.state.lock();
        state.outbox.consume(taken);
        state.owes_ciphertext = machine.wants_write();
        written.map(drop)
    }
}

impl State {
    const fn owes(&self) -> bool {
        self.owes_ciphertext || !self.outbox.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read as _};
    use std::pin::{Pin, pin};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Poll, Wake, Waker};
    use std::thread;
    use std::time::Duration;

    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::{Instant, timeout};

    use super::{Call, Connection, Writer};
    use crate::outbox::{Farewell, Reply};
    use crate::socket::Socket;

    /// Far longer than anything here takes, far shorter than a hang.
    const AT_ONCE: Duration = Duration::from_mins(1);

    /// A connection and the client's end of it.
    async fn connection() -> (Arc<Connection>, std::net::TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let (client, accepted) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        let (stream, peer) = accepted.unwrap();
        let client = client.unwrap().into_std().unwrap();
        client.set_nonblocking(false).unwrap();
        (Arc::new(Connection::new(Socket::new(stream), peer)), client)
    }

    /// Reads all there is, on a thread of its own, and counts it.
    fn read_to_end(mut client: std::net::TcpStream) -> thread::JoinHandle<usize> {
        thread::spawn(move || {
            let mut said = Vec::new();
            client.read_to_end(&mut said).unwrap();
            said.len()
        })
    }

    /// Whether a task was called.
    #[derive(Debug, Default)]
    struct Calls(AtomicBool);

    impl Wake for Calls {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[tokio::test]
    async fn a_session_that_ends_while_another_task_writes_has_its_task_called_after_it() {
        const REPLIES: usize = 20_000;
        for _ in 0..100 {
            let (connection, client) = connection().await;
            let reader = read_to_end(client);
            (0..REPLIES).for_each(|_| connection.push(Reply::Waiting));
            let writer = Arc::clone(&connection);
            let flusher = thread::spawn(move || writer.flush());
            while connection.state.lock().writer == Writer::Idle && !flusher.is_finished() {
                thread::yield_now();
            }
            connection.end(Some(Farewell::ShuttingDown));
            // A timeout asks once more when it is up, so it is the watch that tells a call from a timeout.
            let before = Instant::now();
            timeout(AT_ONCE, connection.drain_outbox()).await.unwrap().unwrap();
            assert!(before.elapsed() < AT_ONCE, "nobody called the task");
            flusher.join().unwrap();
            drop(connection);
            assert_eq!(reader.join().unwrap(), REPLIES + 3 + "server shutting down".len());
        }
    }

    #[tokio::test]
    async fn a_task_that_was_blocked_does_not_wait_for_a_write_that_another_task_has_begun() {
        let (connection, _client) = connection().await;
        connection.push(Reply::Waiting);
        connection.state.lock().writer = Writer::Busy;
        assert!(matches!(poll_once(pin!(connection.unblock())), Poll::Ready(Ok(()))));
    }

    #[tokio::test]
    async fn a_task_that_is_blocked_heeds_the_end_of_its_session() {
        let (connection, _client) = connection().await;
        while connection.state.lock().writer != Writer::Blocked {
            (0..1000).for_each(|_| connection.push(Reply::Waiting));
            connection.flush();
        }
        let mut blocked = pin!(connection.unblock());
        assert!(poll_once(blocked.as_mut()).is_pending());
        connection.end(Some(Farewell::ShuttingDown));
        connection.flush();
        assert!(matches!(poll_once(blocked.as_mut()), Poll::Ready(Ok(()))));
    }

    #[tokio::test]
    async fn the_task_is_called_for_what_another_writer_has_to_leave() {
        let (connection, _client) = connection().await;
        // A fresh connection is taken to be readable until a read says otherwise.
        assert_eq!(connection.try_read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let calls = Arc::new(Calls::default());
        let waker = Waker::from(Arc::clone(&calls));
        let mut called = pin!(connection.call());
        assert!(called.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        (0..20_000).for_each(|_| connection.push(Reply::Waiting));
        connection.flush();
        assert!(calls.0.load(Ordering::Relaxed), "a turn that is over");
        assert!(matches!(poll_once(called), Poll::Ready(Call::Blocked)));
    }

    #[tokio::test]
    async fn the_task_is_called_for_what_the_socket_does_not_take() {
        let (connection, _client) = connection().await;
        connection.socket.writable().await.unwrap();
        while connection.socket.try_write(&[0; 4096]).is_ok() {}
        // A fresh connection is taken to be readable until a read says otherwise.
        assert_eq!(connection.try_read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let calls = Arc::new(Calls::default());
        let waker = Waker::from(Arc::clone(&calls));
        let mut called = pin!(connection.call());
        assert!(called.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        connection.push(Reply::Waiting);
        connection.flush();
        assert!(calls.0.load(Ordering::Relaxed));
        assert!(matches!(poll_once(called), Poll::Ready(Call::Blocked)));
    }

    #[tokio::test]
    async fn a_writer_leaves_what_is_beyond_its_turn_to_the_connections_task() {
        const REPLIES: usize = 20_000;
        let (connection, client) = connection().await;
        (0..REPLIES).for_each(|_| connection.push(Reply::Waiting));
        connection.flush();
        assert!(
            !connection.state.lock().outbox.is_empty(),
            "a socket that would take all of it was given a turn's worth"
        );
        assert_eq!(connection.call().await, Call::Blocked);
        connection.unblock().await.unwrap();
        drop(connection);
        assert_eq!(read_to_end(client).join().unwrap(), REPLIES);
    }

    #[test]
    fn a_connection_whose_runtime_is_gone_has_failed() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (connection, _client) = runtime.block_on(connection());
        drop(runtime);
        assert!(matches!(poll_once(pin!(connection.call())), Poll::Ready(Call::Failed(_))));
    }
}
