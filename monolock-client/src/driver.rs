//! The async driver: sessions on tokio.
//!
//! Until the server's first answer everything happens in the caller's own future, so dropping that closes the socket
//! and there is nothing else to clean up. From then on one task owns the session, so that heartbeats go out however
//! seldom the caller is polled; whoever holds the claim shuts the socket down itself when it lets go, without waiting
//! for that task to run.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use monolock_core::{Lease, LockName, Token};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::alarm::Alarm;
use crate::backoff::Backoff;
use crate::cancel::Cancel;
use crate::claim::{Claim, Outcome, Patience};
use crate::claims::Ticket;
use crate::config::{Builder, Handle, OnQueued};
use crate::dial::{Dial, Step};
use crate::error::{AttemptFailure, Error, WithLockError};
use crate::held::Held;
use crate::security::Security;
use crate::session::{LossReason, SessionConfig, Standing};
use crate::signal::Signal;
use crate::transport::{Connection, Transport};

/// A client of one server, or of several addresses of one. Cheap to clone; it keeps no connection of its own: every
/// claim on a lock is a connection (`docs/protocol.md`, "one session").
///
/// Its calls need a tokio runtime with I/O and time enabled. Every future is cancel-safe: dropping it closes what it
/// had opened, at once, and leaves no task behind.
#[derive(Clone, Debug)]
pub struct Client {
    handle: Handle,
}

impl Client {
    /// Begins a client of the server at `address`, `host:port`. Names are resolved anew at each attempt.
    pub fn builder(address: impl Into<String>) -> Builder<Self> {
        Builder::new(address.into())
    }

    /// This client, with its calls bound to `cancel`.
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
    /// begins. It runs within the future that acquires, and must not block; what it panics with, that future panics
    /// with.
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
    pub async fn acquire(
        &self,
        name: impl TryInto<LockName, Error: Into<Error>>,
        lease: impl TryInto<Lease, Error: Into<Error>>,
    ) -> Result<LockGuard, Error> {
        let request = self.handle.request(name, lease)?;
        self.bounded(&request, self.obtain(&request, Patience::Queue)).await
    }

    /// Acquires the lock if it is free.
    ///
    /// # Errors
    /// [`ErrorKind::Contended`](crate::ErrorKind::Contended) where it is not, or another kind.
    pub async fn try_acquire(
        &self,
        name: impl TryInto<LockName, Error: Into<Error>>,
        lease: impl TryInto<Lease, Error: Into<Error>>,
    ) -> Result<LockGuard, Error> {
        let request = self.handle.request(name, lease)?;
        self.bounded(&request, self.obtain(&request, Patience::None)).await
    }

    /// Acquires the lock, waiting for its turn at most so long: [`wait_limit`](Self::wait_limit) for one call.
    ///
    /// # Errors
    /// [`ErrorKind::WaitTimeout`](crate::ErrorKind::WaitTimeout) where it took longer, or another kind.
    pub async fn acquire_within(
        &self,
        name: impl TryInto<LockName, Error: Into<Error>>,
        lease: impl TryInto<Lease, Error: Into<Error>>,
        wait: Duration,
    ) -> Result<LockGuard, Error> {
        self.wait_limit(wait).acquire(name, lease).await
    }

    /// Acquires the lock like [`acquire`](Self::acquire), and tries again where the server cannot be reached or the
    /// place in the queue is lost: after exponential backoff with full jitter, 100 ms doubling to 5 s. After a
    /// shutdown of the server (code 0x01) the first new attempt comes within 100 ms, or 500 ms with TLS. Codes from
    /// 0x10 up are final.
    ///
    /// # Errors
    /// `Denied` and `Invalid` at once, `Cancelled` and `WaitTimeout` as soon as they come; nothing else.
    pub async fn acquire_with_retry(
        &self,
        name: impl TryInto<LockName, Error: Into<Error>>,
        lease: impl TryInto<Lease, Error: Into<Error>>,
    ) -> Result<LockGuard, Error> {
        let request = self.handle.request(name, lease)?;
        self.bounded(&request, self.obtain_persistently(&request)).await
    }

    /// Runs `work` under the lock and releases it, on every path, unwinding included.
    ///
    /// When the lock is lost, the work is dropped: it stops at its next `await`. It is polled once more before, so work
    /// that waits for [`Held::lost`] itself can return an error of its own. Work that needs time to wind up after a
    /// loss uses [`acquire`](Self::acquire) and the guard. Cancelling through [`cancel_on`](Self::cancel_on) only
    /// tells the work ([`Held::cancelled`]): the lock is kept until it has ended. Dropping the future drops the
    /// work, then releases.
    ///
    /// # Errors
    /// [`WithLockError::NotAcquired`]: the work never ran. [`WithLockError::Lost`]: the lock was lost before the work had ended.
    /// [`WithLockError::Work`]: the work failed; a loss is joined to its error.
    pub async fn with_lock<T, E, F, W>(
        &self,
        name: impl TryInto<LockName, Error: Into<Error>>,
        lease: impl TryInto<Lease, Error: Into<Error>>,
        work: W,
    ) -> Result<T, WithLockError<E>>
    where
        W: FnOnce(Held) -> F,
        F: Future<Output = Result<T, E>>,
    {
        let guard = self.acquire(name, lease).await.map_err(WithLockError::NotAcquired)?;
        guard.run(work).await
    }

    /// Like [`with_lock`](Self::with_lock), acquiring as in [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    /// As [`with_lock`](Self::with_lock).
    pub async fn try_with_lock<T, E, F, W>(
        &self,
        name: impl TryInto<LockName, Error: Into<Error>>,
        lease: impl TryInto<Lease, Error: Into<Error>>,
        work: W,
    ) -> Result<T, WithLockError<E>>
    where
        W: FnOnce(Held) -> F,
        F: Future<Output = Result<T, E>>,
    {
        let guard = self.try_acquire(name, lease).await.map_err(WithLockError::NotAcquired)?;
        guard.run(work).await
    }

    /// Like [`with_lock`](Self::with_lock), acquiring as in [`acquire_with_retry`](Self::acquire_with_retry). Only the
    /// acquiring is tried again; the work runs at most once.
    ///
    /// # Errors
    /// As [`with_lock`](Self::with_lock).
    pub async fn with_lock_retry<T, E, F, W>(
        &self,
        name: impl TryInto<LockName, Error: Into<Error>>,
        lease: impl TryInto<Lease, Error: Into<Error>>,
        work: W,
    ) -> Result<T, WithLockError<E>>
    where
        W: FnOnce(Held) -> F,
        F: Future<Output = Result<T, E>>,
    {
        let guard = self.acquire_with_retry(name, lease).await.map_err(WithLockError::NotAcquired)?;
        guard.run(work).await
    }

    /// How many claims on this lock are open through this client and its clones, held or waiting. A claim that is made
    /// while there is one queues behind it, as behind a stranger's.
    pub fn claims(&self, name: &LockName) -> usize {
        self.handle.config.claims.count(name)
    }

    /// Acquiring, within the wait limit and unless cancelled.
    async fn bounded(
        &self,
        request: &SessionConfig,
        acquiring: impl Future<Output = Result<LockGuard, Error>>,
    ) -> Result<LockGuard, Error> {
        let Handle { cancel, wait_limit, .. } = &self.handle;
        let too_long = async {
            match wait_limit {
                Some(wait) => {
                    sleep(*wait).await;
                    *wait
                }
                None => std::future::pending().await,
            }
        };
        if cancel.is_cancelled() {
            return Err(Error::cancelled(request.name.clone()));
        }
        tokio::select! {
            biased;
            acquired = acquiring => acquired,
            () = cancel.cancelled() => Err(Error::cancelled(request.name.clone())),
            wait = too_long => Err(Error::wait_timeout(request.name.clone(), wait)),
        }
    }

    async fn obtain_persistently(&self, request: &SessionConfig) -> Result<LockGuard, Error> {
        let mut backoff = Backoff::new(&self.handle.config);
        loop {
            let begun = self.handle.now();
            let error = match self.obtain(request, Patience::Queue).await {
                Ok(guard) => return Ok(guard),
                Err(error) => error,
            };
            let lasted = self.handle.now().since(begun);
            match backoff.delay(&error, lasted, fastrand::f64) {
                Some(delay) => sleep(delay).await,
                None => return Err(error),
            }
        }
    }

    /// One attempt.
    async fn obtain(&self, request: &SessionConfig, patience: Patience) -> Result<LockGuard, Error> {
        let ticket = self.handle.config.claims.enter(&request.name);
        let outcome = Signal::new();
        let connection = self.open(request, patience, &outcome).await?;
        if connection.standing() == Standing::Queued && patience == Patience::None {
            return Err(Error::contended(request.name.clone()));
        }
        let line = Line::spawn(connection);
        let held = outcome.wait().await?;
        Ok(LockGuard { held, line, _ticket: ticket })
    }

    /// Connects to the first address whose server takes the claim in, within the connect timeout.
    async fn open(
        &self,
        request: &SessionConfig,
        patience: Patience,
        outcome: &Arc<Signal<Outcome>>,
    ) -> Result<Driven, Error> {
        let config = &self.handle.config;
        let mut dial = Dial::new(self.handle.now(), config, &request.name);
        loop {
            match dial.next_step(self.handle.now()) {
                Step::LookUp { address, budget } => {
                    let found = timeout(budget, config.resolver.look_up(&address).wait()).await;
                    dial.found(address, budget, found.ok());
                }
                Step::Connect { address, security, budget } => {
                    let opening = async {
                        let (transport, early) = connect(address, security).await?;
                        let claim = Claim::new(&self.handle, request.clone(), patience, Arc::clone(outcome));
                        Driven::new(Connection::new(transport, claim, early)).asked().await
                    };
                    let failure = match timeout(budget, opening).await {
                        Ok(Ok(connection)) => return Ok(connection),
                        Ok(Err(failure)) => failure,
                        Err(_) => AttemptFailure::NoTime(budget),
                    };
                    dial.failed(address, failure)?;
                }
                Step::Exhausted(error) => return Err(error),
            }
        }
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
    line: Line,
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

    /// Waits until the lock is lost, and says how; see [`Held::lost`]. The future does not borrow the guard.
    pub fn lost(&self) -> impl Future<Output = LossReason> + Send + Unpin + use<> {
        self.held.lost()
    }

    /// A view of the hold, to be handed to the work.
    pub fn held(&self) -> Held {
        self.held.clone()
    }

    /// Releases the lock, and returns when the connection is closed on this side. Nothing is waited for from the
    /// server.
    pub async fn release(mut self) {
        self.held.release();
        if let Some(task) = self.line.hang_up() {
            // It was aborted, or it had ended: there is nothing to learn from it.
            let _ = task.await;
        }
    }

    async fn run<T, E, F, W>(self, work: W) -> Result<T, WithLockError<E>>
    where
        W: FnOnce(Held) -> F,
        F: Future<Output = Result<T, E>>,
    {
        let ended = {
            let mut lost = self.held.lost();
            let mut work = pin!(work(self.held()));
            poll_fn(|context| match work.as_mut().poll(context) {
                Poll::Ready(result) => Poll::Ready(Some(result)),
                Poll::Pending if pin!(&mut lost).poll(context).is_pending() => Poll::Pending,
                // The loss may have come after the work had looked for it.
                Poll::Pending => Poll::Ready(match work.as_mut().poll(context) {
                    Poll::Ready(result) => Some(result),
                    Poll::Pending => None,
                }),
            })
            .await
        };
        let loss = self.held.loss();
        let name = self.name().clone();
        self.release().await;
        crate::held::join(name, ended, loss)
    }
}

impl Drop for LockGuard {
    /// The hold is over first; then the line hangs up, as every line does.
    fn drop(&mut self) {
        self.held.release();
    }
}

/// The caller's end of a session that a task keeps.
#[derive(Debug)]
struct Line {
    transport: Arc<Transport<TcpStream>>,
    task: Option<JoinHandle<()>>,
}

impl Line {
    fn spawn(mut session: Driven) -> Self {
        let transport = Arc::clone(session.connection.transport());
        let task = tokio::spawn(async move {
            while !session.connection.claim().is_over() {
                session.step().await;
            }
        });
        Self { transport, task: Some(task) }
    }

    /// Hangs up, the first time; the task that kept the session is on its way out.
    fn hang_up(&mut self) -> Option<JoinHandle<()>> {
        let task = self.task.take()?;
        self.transport.hang_up();
        task.abort();
        Some(task)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.hang_up();
    }
}

/// Connects and shakes hands; also returns what the server has said by then.
async fn connect(
    address: SocketAddr,
    security: Security,
) -> Result<(Arc<Transport<TcpStream>>, Vec<u8>), AttemptFailure> {
    let stream = TcpStream::connect(address).await.map_err(AttemptFailure::Connect)?;
    stream.set_nodelay(true).map_err(AttemptFailure::Connect)?;
    let transport = Transport::new(stream, security.channel()?);
    let mut early = Vec::new();
    while !transport.shake_hands(&mut early)? {
        ready(&transport).await.map_err(AttemptFailure::Handshake)?;
    }
    Ok((transport, early))
}

/// Waits until the socket has something, or takes what is to be written; says whether it has something.
async fn ready(transport: &Transport<TcpStream>) -> io::Result<bool> {
    let interest = if transport.has_unwritten() { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
    Ok(transport.socket().ready(interest).await?.is_readable())
}

/// A session with the timer that wakes its task.
struct Driven {
    connection: Connection<TcpStream>,
    alarm: Alarm,
}

impl Driven {
    fn new(connection: Connection<TcpStream>) -> Self {
        Self { connection, alarm: Alarm::new() }
    }

    fn standing(&self) -> Standing {
        self.connection.claim().standing()
    }

    /// Waits for the first answer.
    async fn asked(mut self) -> Result<Self, AttemptFailure> {
        while self.standing() == Standing::Asking {
            self.step().await;
        }
        self.connection.take_refusal().map_or(Ok(self), Err)
    }

    /// Writes what is to be written, then waits for the next thing to happen and takes it in. Cancel-safe: nothing is
    /// taken from the socket before the session has it.
    async fn step(&mut self) {
        self.connection.send();
        let claim = self.connection.claim();
        if claim.is_over() {
            return;
        }
        tokio::select! {
            ready = ready(self.connection.transport()) => match ready {
                Ok(true) => self.connection.receive(),
                Ok(false) => {}
                Err(error) => self.connection.failed(&error),
            },
            () = self.alarm.after(claim.until_due()) => self.connection.receive(),
        }
    }
}
