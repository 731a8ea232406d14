//! The clients against the real server: the five scenarios of "writing a client", and promotions that meet a cancel.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use monolock_client::{Client, ErrorKind, LossReason, Token, blocking};
use monolock_net::{Server, ServerHandle};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::server::{Notes, PATIENCE};

/// Long enough for nothing to happen by itself within a test.
const LONG: Duration = Duration::from_mins(1);

/// Short enough to wait for, long enough for a busy machine to keep it.
const LEASE: Duration = Duration::from_secs(12);

/// A server that is stopped when it is dropped.
pub(crate) struct RealServer {
    address: SocketAddr,
    handle: ServerHandle,
    thread: Option<JoinHandle<()>>,
}

impl RealServer {
    pub(crate) fn start() -> Self {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into())
    }

    /// Starts one whose port is free for another in its place.
    fn start_restartable() -> Self {
        Self::start_at((own_address(), 0).into())
    }

    fn start_at(address: SocketAddr) -> Self {
        let (started, starting) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            Runtime::new().unwrap().block_on(async {
                let server = Server::builder().listen(address).io_timeout(PATIENCE).bind().unwrap();
                started.send((server.local_addr(), server.handle())).unwrap();
                server.run().await.unwrap();
            });
        });
        let (address, handle) = starting.recv().unwrap();
        let thread = Some(thread);
        Self { address, handle, thread }
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Waits until it has seen that nobody claims anything: a client that lets go closes its connection, and waits for
    /// no answer.
    pub(crate) async fn await_free(&self) {
        let begun = Instant::now();
        while self.handle.counts().sessions > 0 {
            assert!(begun.elapsed() < PATIENCE, "the server still has {:?}", self.handle.counts());
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Stops it and starts another in its place, at once.
    fn restart(self) -> Self {
        let address = self.address;
        drop(self);
        Self::start_at(address)
    }
}

impl Drop for RealServer {
    fn drop(&mut self) {
        self.handle.shutdown();
        let stopped = self.thread.take().unwrap().join();
        assert!(stopped.is_ok() || thread::panicking());
    }
}

/// An address that no socket has but those of this process that ask for it, so its ports stay free from one server to
/// the next.
fn own_address() -> Ipv4Addr {
    if !cfg!(target_os = "linux") {
        // Elsewhere this is all there is.
        return Ipv4Addr::LOCALHOST;
    }
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 70, high, low)
}

/// A network between clients and a server, which can go dark: then all sockets stay, and nothing arrives.
struct Network {
    address: SocketAddr,
    is_dark: Arc<AtomicBool>,
    /// How many bytes clients have sent.
    sent: Arc<AtomicUsize>,
}

impl Network {
    fn before(server: &RealServer) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (address, server) = (listener.local_addr().unwrap(), server.address);
        let (is_dark, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        thread::spawn({
            let (is_dark, sent) = (Arc::clone(&is_dark), Arc::clone(&sent));
            move || {
                while let Ok((near, _)) = listener.accept() {
                    let far = TcpStream::connect(server).unwrap();
                    let nobody_counts = Arc::new(AtomicUsize::new(0));
                    carry(near.try_clone().unwrap(), far.try_clone().unwrap(), Arc::clone(&is_dark), Arc::clone(&sent));
                    carry(far, near, Arc::clone(&is_dark), nobody_counts);
                }
            }
        });
        Self { address, is_dark, sent }
    }

    fn address(&self) -> String {
        self.address.to_string()
    }

    fn go_dark(&self) {
        self.is_dark.store(true, Ordering::SeqCst);
    }

    fn sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }
}

/// Carries what comes from one end to the other until the end; in the dark, not even that arrives.
fn carry(mut from: TcpStream, mut to: TcpStream, is_dark: Arc<AtomicBool>, count: Arc<AtomicUsize>) {
    to.set_nodelay(true).unwrap();
    thread::spawn(move || {
        let mut bytes = [0; 1024];
        loop {
            let read = from.read(&mut bytes).unwrap_or(0);
            if is_dark.load(Ordering::SeqCst) {
                // Both sockets stay open, for as long as the other direction or a test has them.
                thread::park_timeout(LONG);
                return;
            }
            if read == 0 || to.write_all(&bytes[..read]).is_err() {
                let _ = to.shutdown(std::net::Shutdown::Both);
                return;
            }
            count.fetch_add(read, Ordering::SeqCst);
        }
    });
}

fn client(address: impl Into<String>) -> Client {
    Client::builder(address).connect_timeout(LONG).build().unwrap()
}

#[tokio::test]
async fn two_clients_and_a_push() {
    let server = RealServer::start();
    let (queued, mut is_queued) = mpsc::unbounded_channel();
    let holder = client(server.address()).acquire("jobs", LONG).await.unwrap();
    let waiting = tokio::spawn({
        let client = client(server.address()).on_queued(move |_| queued.send(()).unwrap());
        async move { client.acquire("jobs", LONG).await }
    });
    is_queued.recv().await.unwrap();
    assert!(!waiting.is_finished());
    let first = holder.token();
    holder.release().await;
    // Far below the lease, and below the first heartbeat: nothing but the push can tell it.
    let promoted = timeout(LONG / 6, waiting).await.unwrap().unwrap().unwrap();
    assert!(promoted.token() > first);
}

#[test]
fn two_blocking_clients_and_a_push() {
    let server = RealServer::start();
    let (queued, is_queued) = std::sync::mpsc::channel();
    let client = blocking::Client::builder(server.address()).connect_timeout(LONG).build().unwrap();
    let holder = client.acquire("jobs", LONG).unwrap();
    let waiting = thread::spawn({
        let client = client.on_queued(move |_| queued.send(()).unwrap());
        move || client.acquire_within("jobs", LONG, LONG / 6).unwrap().token()
    });
    is_queued.recv().unwrap();
    let first = holder.token();
    holder.release();
    assert!(waiting.join().unwrap() > first);
}

#[tokio::test]
async fn b07_a_hold_over_many_heartbeats() {
    let server = RealServer::start();
    let client = client(server.address());
    let guard = client.acquire("jobs", LEASE).await.unwrap();
    // Five heartbeats long. Without them the server would have let go after four.
    assert_eq!(timeout(LEASE * 5 / 4, guard.lost()).await.ok(), None);
    let other = client.try_acquire("jobs", LEASE).await.unwrap_err();
    assert_eq!(other.kind(), ErrorKind::Contended);
    assert!(guard.is_held());
}

#[tokio::test]
async fn b01_the_network_stops_under_a_holder() {
    let server = RealServer::start();
    let network = Network::before(&server);
    let notes = Notes::default();
    let (queued, mut is_queued) = mpsc::unbounded_channel();
    let guard = client(network.address()).acquire("jobs", LEASE).await.unwrap();
    guard.held().on_lost({
        let notes = notes.clone();
        move |reason| notes.note(format!("lost by {}", reason.as_str()))
    });
    let waiting = tokio::spawn({
        let (notes, server) = (notes.clone(), server.address());
        async move {
            let client = client(server).on_queued(move |_| queued.send(()).unwrap());
            let granted = client.acquire("jobs", LONG).await.unwrap();
            notes.note("granted to the next");
            granted.token()
        }
    });
    is_queued.recv().await.unwrap();
    network.go_dark();
    let next = timeout(PATIENCE, waiting).await.unwrap().unwrap();
    assert_eq!(notes.all(), ["lost by timeout", "granted to the next"]);
    assert_eq!(guard.held().loss(), Some(LossReason::Timeout));
    assert!(next > guard.token() && !guard.is_held());
}

#[tokio::test]
async fn the_server_is_restarted_under_a_waiter() {
    let server = RealServer::start_restartable();
    let (queued, mut is_queued) = mpsc::unbounded_channel();
    let holder = client(server.address()).acquire("jobs", LONG).await.unwrap();
    let waiting = tokio::spawn({
        let client = client(server.address()).on_queued(move |_| queued.send(()).unwrap());
        async move { client.acquire_with_retry("jobs", LONG).await }
    });
    is_queued.recv().await.unwrap();
    let restarting = tokio::task::spawn_blocking(move || server.restart());
    let loss = timeout(PATIENCE, holder.lost()).await.unwrap();
    assert_eq!(loss.server_code(), Some(monolock_client::ErrorCode::SERVER_SHUTTING_DOWN));
    let granted = timeout(PATIENCE, waiting).await.unwrap().unwrap().unwrap();
    assert!(granted.token() > holder.token(), "{} then {}", holder.token(), granted.token());
    let _restarted = restarting.await.unwrap();
}

#[tokio::test]
async fn a_name_of_300_bytes() {
    let server = RealServer::start();
    let name = "x".repeat(300);

    let mut raw = TcpStream::connect(server.address()).unwrap();
    raw.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut acquire = vec![0x01, 1, 0, 0, 0x07, 0xd0, 0x01, 0x2c];
    acquire.extend_from_slice(name.as_bytes());
    raw.write_all(&acquire).unwrap();
    let mut answer = Vec::new();
    raw.read_to_end(&mut answer).unwrap();
    assert_eq!(answer[..2], [0x13, 0x15]);
    assert_eq!(answer.len(), 3 + usize::from(answer[2]));

    let network = Network::before(&server);
    let error = client(network.address()).acquire(name.as_str(), LONG).await.unwrap_err();
    assert_eq!((error.kind(), error.server_code()), (ErrorKind::Invalid, None));
    assert_eq!(network.sent(), 0);
}

/// A holder goes, and in the same moment the waiter behind it does: granted and released, or never granted, and the
/// next is promoted.
#[test]
fn b18_a_waiter_leaves_in_the_very_moment_of_its_promotion() {
    const ROUNDS: u32 = 5000;

    let server = RealServer::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (queued, mut is_queued) = mpsc::unbounded_channel();
    let client = client(server.address()).on_queued(move |_| queued.send(()).unwrap());
    let (mut left_granted, mut left_waiting) = (0, 0);
    // How long the leaving waiter stays after the release has begun, in turns of its runtime. Twice as long after each
    // round in which it left waiting, half as long after each in which it left granted: so the rounds close in on the
    // moment of the promotion, however fast the machine, and stay around it.
    let mut turns = 0_u32;
    runtime.block_on(async {
        let mut last: Option<Token> = None;
        let mut holder = client.acquire("jobs", LONG).await.unwrap();
        for _ in 0..ROUNDS {
            let wait = || {
                let client = client.clone();
                tokio::spawn(async move { client.acquire("jobs", LONG).await })
            };
            let leaving = wait();
            is_queued.recv().await.unwrap();
            let next = wait();
            is_queued.recv().await.unwrap();
            assert!(last.is_none_or(|last| holder.token() > last));
            last = Some(holder.token());
            let releasing = tokio::spawn(holder.release());
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            leaving.abort();
            match leaving.await {
                Ok(granted) => {
                    drop(granted.unwrap());
                    left_granted += 1;
                    turns /= 2;
                }
                Err(aborted) => {
                    assert!(aborted.is_cancelled());
                    left_waiting += 1;
                    turns = turns.saturating_mul(2).max(1);
                }
            }
            holder = timeout(PATIENCE, next).await.expect("the next is promoted").unwrap().unwrap();
            releasing.await.unwrap();
        }
    });
    // Both orders were really met.
    assert!(left_granted > 0 && left_waiting > 0, "{left_granted} granted, {left_waiting} waiting");
}
