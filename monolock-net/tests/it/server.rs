//! Servers to test: in real time on two threads, or in a time that stands still until it is told to pass.
//!
//! Each is stopped at the end of its test, and a task that it leaves behind fails that test.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use monolock_net::{AdminListen, Server, ServerBuilder, ServerHandle, raise_descriptor_limit};
use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::client::{Client, PATIENCE};

const SHARDS: usize = 4;
/// The server has a task for each shard, and this many beside those of its connections.
const ACCEPT_TASKS: usize = 1;

/// An io-timeout that no test outlives in real time.
const LONG_IO_TIMEOUT: Duration = Duration::from_mins(10);

#[derive(Debug)]
pub(crate) struct TestServer {
    address: SocketAddr,
    admin: Option<AdminListen>,
    ops: Option<SocketAddr>,
    handle: ServerHandle,
    runtime: Handle,
    /// Where time passes on demand only.
    time: Option<UnboundedSender<Advance>>,
    thread: Option<JoinHandle<Stopped>>,
}

/// How a server came to its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopped {
    pub(crate) returned: Instant,
    tasks_left: usize,
}

#[derive(Debug)]
struct Advance {
    by: Duration,
    done: mpsc::Sender<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Time {
    Real,
    OnDemand,
}

impl TestServer {
    /// In real time, without an io-timeout worth the name.
    pub(crate) fn start() -> Self {
        Self::start_in(Time::Real, LONG_IO_TIMEOUT, |builder| builder)
    }

    /// In real time, with more settings.
    pub(crate) fn with(set_up: impl FnOnce(ServerBuilder) -> ServerBuilder + Send + 'static) -> Self {
        Self::start_in(Time::Real, LONG_IO_TIMEOUT, set_up)
    }

    /// In real time.
    pub(crate) fn with_io_timeout(io_timeout: Duration) -> Self {
        Self::start_in(Time::Real, io_timeout, |builder| builder)
    }

    /// In a time that passes by [`advance`](Self::advance) alone.
    pub(crate) fn with_time_on_demand(io_timeout: Duration) -> Self {
        Self::with_time_on_demand_and(io_timeout, |builder| builder)
    }

    /// The same with more settings.
    pub(crate) fn with_time_on_demand_and(
        io_timeout: Duration,
        set_up: impl FnOnce(ServerBuilder) -> ServerBuilder + Send + 'static,
    ) -> Self {
        Self::start_in(Time::OnDemand, io_timeout, set_up)
    }

    fn start_in(
        time: Time,
        io_timeout: Duration,
        set_up: impl FnOnce(ServerBuilder) -> ServerBuilder + Send + 'static,
    ) -> Self {
        let (started, starting) = mpsc::channel();
        let (advance, advances) = unbounded_channel();
        let thread = thread::spawn(move || {
            let runtime = match time {
                Time::Real => Builder::new_multi_thread().worker_threads(2).enable_all().build(),
                Time::OnDemand => Builder::new_current_thread().enable_all().start_paused(true).build(),
            };
            runtime.unwrap().block_on(async {
                let builder = Server::builder()
                    .listen(own_address())
                    .io_timeout(io_timeout)
                    .shards(NonZeroUsize::new(SHARDS).unwrap());
                let server = set_up(builder).bind().unwrap();
                let addresses = (server.local_addr(), server.admin_addr().cloned(), server.ops_addr());
                started.send((addresses, server.handle(), Handle::current())).unwrap();
                match time {
                    Time::Real => server.run().await.unwrap(),
                    Time::OnDemand => run_on_demand(server, advances).await,
                }
                let returned = Instant::now();
                eventually_async(|| Handle::current().metrics().num_alive_tasks() == 0).await;
                Stopped { returned, tasks_left: Handle::current().metrics().num_alive_tasks() }
            })
        });
        let ((address, admin, ops), handle, runtime) = starting.recv().unwrap();
        let time = (time == Time::OnDemand).then_some(advance);
        Self { address, admin, ops, handle, runtime, time, thread: Some(thread) }
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where its admin API is, which is served by TCP.
    #[track_caller]
    pub(crate) fn admin(&self) -> SocketAddr {
        match self.admin {
            Some(AdminListen::Tcp(address)) => address,
            None | Some(AdminListen::Unix(_)) => panic!("no admin API is served by TCP"),
        }
    }

    #[track_caller]
    pub(crate) fn ops(&self) -> SocketAddr {
        self.ops.expect("health and metrics are served")
    }

    pub(crate) const fn handle(&self) -> &ServerHandle {
        &self.handle
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// A client that has sent its `ACQUIRE`.
    pub(crate) fn claim(&self, name: impl AsRef<[u8]>, lease_ms: u32) -> Client {
        let mut client = self.connect();
        client.acquire(name, lease_ms);
        client
    }

    /// A client that was granted the lock at once, and its token.
    #[track_caller]
    pub(crate) fn holder(&self, name: impl AsRef<[u8]>, lease_ms: u32) -> (Client, u64) {
        let mut client = self.claim(name, lease_ms);
        let token = client.acquired();
        (client, token)
    }

    /// A client that stands in the queue.
    #[track_caller]
    pub(crate) fn waiter(&self, name: impl AsRef<[u8]>, lease_ms: u32) -> Client {
        let mut client = self.claim(name, lease_ms);
        client.waiting();
        client
    }

    /// Lets time pass, and the server do what is due.
    pub(crate) fn advance(&self, by: Duration) {
        let (done, wait) = mpsc::channel();
        self.time.as_ref().expect("time passes on demand").send(Advance { by, done }).unwrap();
        wait.recv().unwrap();
    }

    /// How many connections the server has a task for.
    pub(crate) fn connections(&self) -> usize {
        self.runtime.metrics().num_alive_tasks().saturating_sub(SHARDS + ACCEPT_TASKS)
    }

    /// Until the server has a task for so many connections.
    #[track_caller]
    pub(crate) fn await_connections(&self, expected: usize) {
        await_number(expected, || self.connections(), "connections");
    }

    /// Until the server, which has been told to stop and accepts no more, has a task for so many connections: each of
    /// them is told, and listened to.
    #[track_caller]
    pub(crate) fn await_partings(&self, expected: usize) {
        let partings = || self.runtime.metrics().num_alive_tasks().saturating_sub(SHARDS);
        await_number(expected, partings, "connections that are parted from");
    }

    /// Until no task of the server is left, after its stop.
    #[track_caller]
    pub(crate) fn await_tasks_gone(&self) {
        await_number(0, || self.runtime.metrics().num_alive_tasks(), "tasks");
    }

    /// Stops it, and waits for its end.
    pub(crate) fn stop(mut self) -> Stopped {
        self.join().expect("it is joined once")
    }

    fn join(&mut self) -> Option<Stopped> {
        self.handle.shutdown();
        self.time = None;
        self.thread.take().map(|thread| thread.join().unwrap())
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(Stopped { tasks_left, .. }) = self.join()
            && !thread::panicking()
        {
            assert_eq!(tasks_left, 0, "the server left tasks behind");
        }
    }
}

/// Waits for what must come to be true, for so long as [`PATIENCE`] lasts.
pub(crate) fn eventually(mut is_true: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_true() && begin.elapsed() < PATIENCE {
        thread::yield_now();
    }
}

/// Waits until there are so many, and judges what it saw last.
#[track_caller]
fn await_number(expected: usize, present: impl Fn() -> usize, of_what: &str) {
    let mut seen = 0;
    eventually(|| {
        seen = present();
        seen == expected
    });
    assert_eq!(seen, expected, "{of_what} after {PATIENCE:?}");
}

async fn eventually_async(is_true: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_true() && begin.elapsed() < PATIENCE {
        tokio::task::yield_now().await;
    }
}

async fn run_on_demand(server: Server, mut advances: UnboundedReceiver<Advance>) {
    // A paused clock runs on by itself when all tasks sleep, whatever is under way in the sockets, but not beside a
    // blocking task.
    let (release, stillness) = mpsc::channel::<()>();
    let hold = tokio::task::spawn_blocking(move || stillness.recv());
    let mut running = pin!(server.run());
    let returned = loop {
        tokio::select! {
            biased;
            stopped = &mut running => break stopped.is_ok(),
            advance = advances.recv() => match advance {
                Some(Advance { by, done }) => {
                    // What has begun begins before the time passes.
                    settle().await;
                    tokio::time::advance(by).await;
                    settle().await;
                    done.send(()).unwrap();
                }
                None => break false,
            },
        }
    };
    drop(release);
    let _disconnected = hold.await.unwrap();
    if !returned {
        running.await.unwrap();
    }
}

/// Lets every task do what it can do by now.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

/// An address that no other server of this process listens on: so no test meets another's, and none runs out of ports.
pub(crate) fn own_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    // Only Linux has all of 127.0.0.0/8 at hand.
    let host = if cfg!(target_os = "linux") {
        let [high, low] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        Ipv4Addr::new(127, 77, high, low)
    } else {
        Ipv4Addr::LOCALHOST
    };
    (host, 0).into()
}

/// The right to have thousands of sockets open, which one test at a time has. Both ends of each live in this process.
pub(crate) fn crowd(clients: usize) -> MutexGuard<'static, ()> {
    static CROWD: Mutex<()> = Mutex::new(());
    let guard = CROWD.lock().unwrap_or_else(PoisonError::into_inner);
    let limit = raise_descriptor_limit().unwrap().unwrap_or(u64::MAX);
    let wanted = 2 * clients as u64 + 1000;
    assert!(
        limit >= wanted,
        "{clients} clients need {wanted} open descriptors, and the hard limit is {limit}: raise it with `ulimit -Hn`"
    );
    guard
}

/// A seed, and how to have it again.
pub(crate) fn dice() -> fastrand::Rng {
    let seed = std::env::var("MONOLOCK_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    let test = thread::current().name().unwrap_or_default().to_owned();
    eprintln!("MONOLOCK_SEED={seed} cargo test -p monolock-net --test it {test}");
    fastrand::Rng::with_seed(seed)
}
