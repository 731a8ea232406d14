//! The blocking driver: sessions on plain threads, with no runtime behind them.
//!
//! One thread keeps each claim, from the look-up to the end of the hold, so heartbeats go out whatever the caller's
//! thread does. The caller waits for the outcome, for its wait limit or for its [`Cancel`], whichever comes first, and
//! lets go of the claim by hanging up: that shuts the socket down here and now, and the thread finds it so.
//!
//! ```no_run
//! use std::time::Duration;
//! use monolock_client::blocking::Client;
//!
//! let client = Client::builder("127.0.0.1:7070").build()?;
//! let lock = client.acquire("nightly-import", Duration::from_secs(10))?;
//! println!("held with token {}", lock.token());
//! lock.release();
//! # Ok::<(), monolock_client::Error>(())
//! ```

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use monolock_core::{Lease, LockName, Timestamp, Token};
use socket2::{Domain, Socket, Type};

use crate::alarm::{Awaited, SocketWait};
use crate::backoff::Backoff;
use crate::cancel::Cancel;
use crate::claim::{Claim, Outcome, Patience};
use crate::claims::Ticket;
use crate::config::{Builder, Handle, OnQueued};
use crate::dial::{Dial, Step};
use crate::error::{AttemptFailure, Error, WithLockError};
use crate::held::{self, Held};
use crate::security::Security;
use crate::session::{LossReason, SessionConfig, Standing};
use crate::signal::Signal;
use crate::transport::{Connection, Transport};

/// How long a thread that looks up or connects goes without asking whether anybody still wants it.
const SLICE: Duration = Duration::from_millis(20);

/// The shortest wait for a socket.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// A client of one server, or of several addresses of one. Cheap to clone; it keeps no connection of its own: every
/// claim on a lock is a connection (`docs/protocol.md`, "one session"), with a thread to keep it.
#[derive(Clone, Debug)]
pub struct Client {
    handle: Handle,
}

impl Client {
    /// Begins a client of the server at `address`, `host:port`. Names are resolved anew at each attempt.
    pub fn builder(address: impl Into<String>) -> Builder<Self> {
        Builder::new(address.into())
    }

    /// This client, with its calls bound to `cancel`: a call that waits returns within 100 ms of its use.
    #[must_use]
    pub fn cancel_on(&self, cancel: &Cancel) -> Self {
        Self { handle: Handle { cancel: cancel.clone(), ..self.handle.clone() } }
    }

    /// This client, with each of its calls waiting at most so long for a lock, all attempts together. A call that does
    /// not make it fails with [`ErrorKind::WaitTimeout`](crate::ErrorKind::WaitTimeout).
    #[must_use]
    pub fn wait_limit(&self, wait: Duration) -> Self {
        Self { handle: Handle { wait_limit: Some(wait), ..self.handle.clone() } }
    }

    /// This client, with `callback` called each time the server puts a call that waits into the queue, before the wait
    /// begins. It runs on the session's own thread and must not block.
    #[must_use]
    pub fn on_queued(&self, callback: impl Fn(&LockName) + Send + Sync + 'static) -> Self {
        Self { handle: Handle { on_queued: Some(OnQueued::new(callback)), ..self.handle.clone() } }
    }

    /// Acquires the lock, waiting for its turn in the queue.
    ///
    /// The name is a [`LockName`] or text; the lease a [`Lease`] or a [`Duration`] of whole milliseconds.
    ///
    /// # Errors
    /// Any kind but `Contended`; see [`ErrorKind`](crate::ErrorKind).
    pub fn acquire(
        &self,
        name: impl TryInto<LockName, Error: Into<Error>>,
        lease: impl TryInto<Lease, Error: Into<Error>>,
    ) -> Result<LockGuard, Error> {
        let request = self.handle.request(name, lease)?;
        self.obtain(&request, Patience::Queue, self.handle.wait_limit)
    }

    /// Acquires the lock if it is free.
    ///
    /// # Errors
    /// [`ErrorKind::Contended`](crate::ErrorKind::Contended) where it is not, or another kind.
    pub fn try_acquire(
        &self,
        name: impl TryInto<LockName, Error: Into<Error>>,
        lease: impl TryInto<Lease, Error: Into<Error>>,
    ) -> Result<LockGuard, Error> {
        let request = self.handle.request(name, lease)?;
        self.obtain(&request, Patience::None, self.handle.wait_limit)
    }

    /// Acquires the lock, waiting for its turn at most so long: [`wait_limit`](Self::wait_limit) for one call.
    ///
    /// # Errors
    /// [`ErrorKind::WaitTimeout`](crate::ErrorKind::WaitTimeout) where it took longer, or another kind.
    pub fn acquire_within(
        &self,
        name: impl TryInto<LockName, Error: Into<Error>>,
        lease: impl TryInto<Lease, Error: Into<Error>>,
        wait: Duration,
    ) -> Result<LockGuard, Error> {
        self.wait_limit(wait).acquire(name, lease)
    }

    /// Acquires the lock like [`acquire`](Self::acquire), and tries again where the server cannot be reached or the
    /// place in the queue is lost: after exponential backoff with full jitter, 100 ms doubling to 5 s. After a
    /// shutdown of the server (code 0x01) the first new attempt comes within 100 ms, or 500 ms with TLS. Codes from
    /// 0x10 up are final.
    ///
    /// # Errors
    /// `Denied` and `Invalid` at once, `Cancelled` and `WaitTimeout` as soon as they come; nothing else.
    pub fn acquire_with_retry(
        &self,
        name: impl TryInto<LockName, Error: Into<Error>>,
        lease: impl TryInto<Lease, Error: Into<Error>>,
    ) -> Result<LockGuard, Error> {
        let request = self.handle.request(name, lease)?;
        self.obtain_persistently(&request)
    }

    /// Runs `work` under the lock and releases it, on every path, unwinding included.
    ///
    /// A thread cannot be stopped from outside: work must look whether it is [`Held::is_held`] before each step that
    /// matters, or register with [`Held::on_lost`]. Cancelling through [`cancel_on`](Self::cancel_on) only tells
    /// the work ([`Held::is_cancelled`]): the lock is kept until it has ended.
    ///
    /// # Errors
    /// [`WithLockError::NotAcquired`]: the work never ran. [`WithLockError::Lost`]: the lock was lost before the work had ended.
    /// [`WithLockError::Work`]: the work failed; a loss is joined to its error.
    pub fn with_lock<T, E>(
        &self,
        name: impl TryInto<LockName, Error: Into<Error>>,
        lease: impl TryInto<Lease, Error: Into<Error>>,
        work: impl FnOnce(Held) -> Result<T, E>,
    ) -> Result<T, WithLockError<E>> {
        self.acquire(name, lease).map_err(WithLockError::NotAcquired)?.run(work)
    }

    /// Like [`with_lock`](Self::with_lock), acquiring as in [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    /// As [`with_lock`](Self::with_lock).
    pub fn try_with_lock<T, E>(
        &self,
        name: impl TryInto<LockName, Error: Into<Error>>,
        lease: impl TryInto<Lease, Error: Into<Error>>,
        work: impl FnOnce(Held) -> Result<T, E>,
    ) -> Result<T, WithLockError<E>> {
        self.try_acquire(name, lease).map_err(WithLockError::NotAcquired)?.run(work)
    }

    /// Like [`with_lock`](Self::with_lock), acquiring as in [`acquire_with_retry`](Self::acquire_with_retry). Only the
    /// acquiring is tried again; the work runs at most once.
    ///
    /// # Errors
    /// As [`with_lock`](Self::with_lock).
    pub fn with_lock_retry<T, E>(
        &self,
        name: impl TryInto<LockName, Error: Into<Error>>,
        lease: impl TryInto<Lease, Error: Into<Error>>,
        work: impl FnOnce(Held) -> Result<T, E>,
    ) -> Result<T, WithLockError<E>> {
        self.acquire_with_retry(name, lease).map_err(WithLockError::NotAcquired)?.run(work)
    }

    /// How many claims on this lock are open through this client and its clones, held or waiting. A claim that is made
    /// while there is one queues behind it, as behind a stranger's.
    pub fn claims(&self, name: &LockName) -> usize {
        self.handle.config.claims.count(name)
    }

    fn obtain_persistently(&self, request: &SessionConfig) -> Result<LockGuard, Error> {
        let Handle { cancel, wait_limit, .. } = &self.handle;
        let deadline = wait_limit.map(|wait| self.handle.now().saturating_add(wait));
        let remaining = |now: Timestamp| deadline.map(|deadline| deadline.since(now));
        let mut backoff = Backoff::new(&self.handle.config);
        loop {
            let begun = self.handle.now();
            let error = match self.obtain(request, Patience::Queue, remaining(begun)) {
                Ok(guard) => return Ok(guard),
                Err(error) => error,
            };
            let now = self.handle.now();
            let Some(delay) = backoff.delay(&error, now.since(begun), fastrand::f64) else { return Err(error) };
            // Cut short, it goes on to an attempt that fails at once for the same reason.
            cancel.wait_timeout(remaining(now).map_or(delay, |remaining| delay.min(remaining)));
        }
    }

    /// One attempt.
    fn obtain(&self, request: &SessionConfig, patience: Patience, wait: Option<Duration>) -> Result<LockGuard, Error> {
        let name = &request.name;
        if self.handle.cancel.is_cancelled() {
            return Err(Error::cancelled(name.clone()));
        }
        let ticket = self.handle.config.claims.enter(name);
        let outcome = Signal::new();
        let line = Line::new();
        let keeper = Keeper {
            handle: self.handle.clone(),
            request: request.clone(),
            patience,
            outcome: Arc::clone(&outcome),
            line: Arc::clone(&line),
        };
        // From here on, whichever way this function is left, the keeper finds the line hung up.
        let line = LineEnd(line);
        let spawned = thread::Builder::new().name("monolock-session".to_owned()).spawn(move || keeper.run());
        spawned.map_err(|error| Error::no_thread(name.clone(), error))?;
        let _cancelling = self.handle.cancel.subscribe({
            let (outcome, name) = (Arc::clone(&outcome), name.clone());
            move || {
                outcome.set(Err(Error::cancelled(name)));
            }
        });
        let waited = match wait {
            Some(wait) => outcome.wait_timeout(wait).unwrap_or_else(|| Err(Error::wait_timeout(name.clone(), wait))),
            None => outcome.wait_blocking().expect("a keeper ends with an outcome"),
        };
        Ok(LockGuard { held: waited?, line, _ticket: ticket })
    }
}

impl Builder<Client> {
    /// The client. Nothing is dialled yet.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid): an address that is not `host:port`, or a limit of zero.
    pub fn build(self) -> Result<Client, Error> {
        Ok(Client { handle: Handle::new(self.into_config()?) })
    }
}

/// A lock that is held. Dropping it releases the lock at once.
#[derive(Debug)]
pub struct LockGuard {
    held: Held,
    line: LineEnd,
    _ticket: Ticket,
}

impl LockGuard {
    /// The fencing token; see [`Held::token`].
    pub fn token(&self) -> Token {
        self.held.token()
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        self.held.name()
    }

    /// Whether the lock is still held, by the clock; see [`Held::is_held`].
    pub fn is_held(&self) -> bool {
        self.held.is_held()
    }

    /// Calls `callback` when the lock is lost; see [`Held::on_lost`].
    pub fn on_lost(&self, callback: impl FnOnce(LossReason) + Send + 'static) {
        self.held.on_lost(callback);
    }

    /// Waits until the lock is lost, at most so long; see [`Held::wait_lost`].
    pub fn wait_lost(&self, timeout: Duration) -> Option<LossReason> {
        self.held.wait_lost(timeout)
    }

    /// A view of the hold, to be handed to the work.
    pub fn held(&self) -> Held {
        self.held.clone()
    }

    /// Releases the lock: the connection is shut down when this returns. Nothing is waited for from the server.
    pub fn release(self) {
        drop(self);
    }

    fn run<T, E>(self, work: impl FnOnce(Held) -> Result<T, E>) -> Result<T, WithLockError<E>> {
        let ended = work(self.held());
        let loss = self.held.loss();
        let name = self.name().clone();
        self.release();
        held::join(name, Some(ended), loss)
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.held.release();
        self.line.0.hang_up();
    }
}

/// What ties a caller to the thread that keeps its claim.
#[derive(Debug)]
struct Line {
    state: Mutex<LineState>,
}

#[derive(Debug)]
enum LineState {
    /// Somebody wants the claim, which has no connection.
    Dialling,
    Connected(Arc<Transport<TcpStream>>),
    HungUp,
}

impl Line {
    fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(LineState::Dialling) })
    }

    fn hang_up(&self) {
        let state = std::mem::replace(&mut *self.lock(), LineState::HungUp);
        state.hang_up();
    }

    fn is_hung_up(&self) -> bool {
        matches!(*self.lock(), LineState::HungUp)
    }

    /// Puts the claim's connection where hanging up finds it. Where that has happened, the connection ends here.
    fn connect(&self, transport: &Arc<Transport<TcpStream>>) {
        self.replace(LineState::Connected(Arc::clone(transport)));
    }

    /// Ends the connection; the claim may get another.
    fn disconnect(&self) {
        self.replace(LineState::Dialling);
    }

    fn replace(&self, new: LineState) {
        let mut state = self.lock();
        let unused = if matches!(*state, LineState::HungUp) { new } else { std::mem::replace(&mut *state, new) };
        drop(state);
        unused.hang_up();
    }

    fn lock(&self) -> MutexGuard<'_, LineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LineState {
    fn hang_up(self) {
        if let Self::Connected(transport) = self {
            transport.hang_up();
        }
    }
}

/// One end of the line. Dropping it hangs up.
#[derive(Debug)]
struct LineEnd(Arc<Line>);

impl Drop for LineEnd {
    fn drop(&mut self) {
        self.0.hang_up();
    }
}

/// The thread that keeps one claim.
struct Keeper {
    handle: Handle,
    request: SessionConfig,
    patience: Patience,
    outcome: Arc<Signal<Outcome>>,
    line: Arc<Line>,
}

impl Keeper {
    fn run(self) {
        let mut session = match self.open() {
            Ok(session) => session,
            Err(error) => {
                self.outcome.set(Err(error));
                return;
            }
        };
        if session.standing() == Standing::Queued && self.patience == Patience::None {
            self.outcome.set(Err(Error::contended(self.request.name.clone())));
            return;
        }
        while !session.connection.claim().is_over() && !self.line.is_hung_up() {
            session.step(Duration::MAX);
        }
    }

    /// Connects to the first address whose server takes the claim in, within the connect timeout.
    fn open(&self) -> Result<Driven, Error> {
        let config = &self.handle.config;
        let mut dial = Dial::new(self.handle.now(), config, &self.request.name);
        while !self.line.is_hung_up() {
            match dial.next_step(self.handle.now()) {
                Step::LookUp { address, budget } => {
                    let answer = config.resolver.look_up(&address);
                    let found = self.in_slices(budget, |slice| answer.wait_timeout(slice));
                    dial.found(address, budget, found);
                }
                Step::Connect { address, security, budget } => match self.open_one(address, security, budget) {
                    Ok(session) => return Ok(session),
                    Err(failure) => {
                        self.line.disconnect();
                        dial.failed(address, failure)?;
                    }
                },
                Step::Exhausted(error) => return Err(error),
            }
        }
        // Nobody waits for the outcome any more.
        Err(Error::cancelled(self.request.name.clone()))
    }

    /// Connects to one address and waits for the first answer.
    fn open_one(&self, address: SocketAddr, security: Security, budget: Duration) -> Result<Driven, AttemptFailure> {
        let until = self.handle.now().saturating_add(budget);
        let remaining = || match until.since(self.handle.now()) {
            Duration::ZERO => Err(AttemptFailure::NoTime(budget)),
            remaining => Ok(remaining),
        };
        let transport = Transport::new(self.connect(address, budget)?, security.channel()?);
        self.line.connect(&transport);
        let (wait, mut early) = (SocketWait::new(), Vec::new());
        while !transport.shake_hands(&mut early)? {
            wait_for(&transport, &wait, remaining()?).map_err(AttemptFailure::Handshake)?;
        }
        let claim = Claim::new(&self.handle, self.request.clone(), self.patience, Arc::clone(&self.outcome));
        let mut session = Driven { connection: Connection::new(transport, claim, early), wait };
        while session.standing() == Standing::Asking {
            session.step(remaining()?);
        }
        session.connection.take_refusal().map_or(Ok(session), Err)
    }

    fn connect(&self, address: SocketAddr, budget: Duration) -> Result<TcpStream, AttemptFailure> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).map_err(AttemptFailure::Connect)?;
        let connected = begin_to_connect(&socket, address)
            .and_then(|()| self.in_slices(budget, |slice| poll_connected(&socket, slice)).transpose())
            .map_err(AttemptFailure::Connect)?;
        if connected.is_none() {
            return Err(AttemptFailure::NoTime(budget));
        }
        socket.set_tcp_nodelay(true).map_err(AttemptFailure::Connect)?;
        Ok(socket.into())
    }

    /// Waits for `answer` for as long as the budget and the caller's interest last.
    fn in_slices<T>(&self, budget: Duration, mut answer: impl FnMut(Duration) -> Option<T>) -> Option<T> {
        let until = self.handle.now().saturating_add(budget);
        loop {
            let remaining = until.since(self.handle.now());
            let found = answer(remaining.min(SLICE));
            if found.is_some() || remaining.is_zero() || self.line.is_hung_up() {
                return found;
            }
        }
    }
}

impl Drop for Keeper {
    /// However the thread ends, the connection ends with it, and nobody is left waiting.
    fn drop(&mut self) {
        self.line.hang_up();
        self.outcome.close();
    }
}

fn begin_to_connect(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    match socket.connect(&address.into()) {
        Err(error) if is_under_way(&error) => Ok(()),
        done => done,
    }
}

fn is_under_way(error: &io::Error) -> bool {
    #[cfg(unix)]
    if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) {
        return true;
    }
    error.kind() == io::ErrorKind::WouldBlock
}

/// Waits at most one slice for the connection to stand or fail.
fn poll_connected(socket: &Socket, slice: Duration) -> Option<io::Result<()>> {
    wait_writable(socket, slice);
    match socket.take_error() {
        Ok(None) if socket.peer_addr().is_ok() => Some(Ok(())),
        Ok(None) => None,
        Ok(Some(error)) | Err(error) => Some(Err(error)),
    }
}

#[cfg(unix)]
fn wait_writable(socket: &Socket, slice: Duration) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let timeout = Timespec { tv_sec: 0, tv_nsec: slice.subsec_nanos().into() };
    // Whatever it says, the socket is asked next.
    let _ = poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&timeout));
}

#[cfg(not(unix))]
fn wait_writable(_socket: &Socket, slice: Duration) {
    thread::sleep(slice.min(Duration::from_millis(2)));
}

/// Waits at most so long until the socket has something, or takes what is to be written.
fn wait_for(transport: &Transport<TcpStream>, wait: &SocketWait, at_most: Duration) -> io::Result<()> {
    let awaited = if transport.has_unwritten() { Awaited::ReadableOrWritable } else { Awaited::Readable };
    wait.wait(transport.socket(), awaited, at_most)
}

/// A session with the timer that wakes its thread.
struct Driven {
    connection: Connection<TcpStream>,
    wait: SocketWait,
}

impl Driven {
    fn standing(&self) -> Standing {
        self.connection.claim().standing()
    }

    /// Writes what is to be written, then waits at most so long for the next thing to happen and takes it in.
    fn step(&mut self, at_most: Duration) {
        self.connection.send();
        let claim = self.connection.claim();
        if claim.is_over() {
            return;
        }
        let timeout = claim.until_due().clamp(SHORTEST_WAIT, at_most.max(SHORTEST_WAIT));
        match wait_for(self.connection.transport(), &self.wait, timeout) {
            Ok(()) => self.connection.receive(),
            Err(error) => self.connection.failed(&error),
        }
    }
}
