//! What a process has: after a thousand cancelled rounds in every stage (B50), what it had before.
//!
//! Counts of threads and sockets belong to a whole process, so each of these tests runs in one of its own: this binary
//! again, told to run that test alone, and to be that process by a variable.

#![cfg(target_os = "linux")]

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use monolock_client::{Builder, Cancel, Client, blocking};
use rustls::ClientConfig;

use crate::certificates::Authority;
use crate::server::{BlackHole, PATIENCE, Server, WAITING, acquired};

const ROUNDS: usize = 1000;
const LONG: Duration = Duration::from_mins(1);

/// Set in a process that is to run the body of one test.
const BODY: &str = "MONOLOCK_TEST_BODY";

#[test]
fn b50_a_thousand_dropped_futures_leave_nothing_behind() {
    in_a_process_of_its_own("leaks::b50_a_thousand_dropped_futures_leave_nothing_behind", async_rounds);
}

#[test]
fn b50_a_thousand_cancelled_calls_leave_no_thread_or_socket_behind() {
    in_a_process_of_its_own("leaks::b50_a_thousand_cancelled_calls_leave_no_thread_or_socket_behind", blocking_rounds);
}

#[test]
fn b04_the_timer_of_a_session_runs_on_through_suspend() {
    in_a_process_of_its_own("leaks::b04_the_timer_of_a_session_runs_on_through_suspend", timer_of_a_session);
}

/// Runs `body`, which is that of the test `name`, where nothing else runs.
fn in_a_process_of_its_own(name: &str, body: fn()) {
    if std::env::var_os(BODY).is_some() {
        return body();
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(BODY, "1")
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && report.contains("1 passed"),
        "{report}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Where a round is cut off.
#[derive(Clone, Copy, Debug)]
enum Stage {
    LookUp,
    Connecting,
    /// A server that says nothing where TLS begins.
    Handshake,
    Mute,
    Queued,
    HeldOverTls,
    Held,
}

const STAGES: [Stage; 7] =
    [Stage::LookUp, Stage::Connecting, Stage::Handshake, Stage::Mute, Stage::Queued, Stage::HeldOverTls, Stage::Held];

impl Stage {
    const fn is_over_tls(self) -> bool {
        matches!(self, Self::Handshake | Self::HeldOverTls)
    }

    /// When a round is cut off: later and later, so that some are on their way to the stage, and others in it.
    fn moment(self, round: usize) -> Duration {
        // A handshake takes its time.
        let step = Duration::from_micros(if self.is_over_tls() { 80 } else { 20 });
        step * u32::try_from(round).unwrap()
    }
}

/// A server for each stage, each with a thread that lives to the end of the process.
struct Stages {
    addresses: Vec<(Stage, String)>,
    tls: Arc<ClientConfig>,
}

impl Stages {
    fn open() -> Self {
        let authority = Authority::new();
        let black_hole = Box::leak(Box::new(BlackHole::open()));
        let serve = |server: Server, reply: Vec<u8>| {
            let address = server.address();
            server.play(move |server| {
                loop {
                    let mut peer = server.accept();
                    if !reply.is_empty() {
                        peer.sends(&reply);
                    }
                    // One connection at a time: a client that went is waited for before the next one comes.
                    peer.drains();
                }
            });
            address
        };
        let addresses = STAGES.map(|stage| match stage {
            Stage::LookUp => "a-name-that-is-nowhere.invalid:7070".to_owned(),
            Stage::Connecting => black_hole.address(),
            Stage::Handshake | Stage::Mute => serve(Server::bind(), Vec::new()),
            Stage::Queued => serve(Server::bind(), WAITING.to_vec()),
            Stage::HeldOverTls => serve(Server::bind_tls(authority.server("127.0.0.1")), acquired(41)),
            Stage::Held => serve(Server::bind(), acquired(41)),
        });
        Self { addresses: STAGES.into_iter().zip(addresses).collect(), tls: Arc::new(authority.client()) }
    }

    fn builder<C>(&self, stage: Stage, begin: Builder<C>) -> Builder<C> {
        if stage.is_over_tls() { begin.tls(Arc::clone(&self.tls)) } else { begin }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Census {
    threads: usize,
    descriptors: usize,
}

fn census() -> Census {
    let count = |path| fs::read_dir(path).unwrap().count();
    Census { threads: count("/proc/self/task"), descriptors: count("/proc/self/fd") }
}

/// Waits for what ends by itself in a moment.
#[track_caller]
fn comes_back_to(baseline: &Census) {
    let begun = Instant::now();
    while census() != *baseline {
        assert!(begun.elapsed() < PATIENCE, "{:?} instead of {baseline:?}", census());
        thread::sleep(Duration::from_millis(10));
    }
}

fn async_rounds() {
    let stages = Stages::open();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let baseline = census();
        for (stage, address) in &stages.addresses {
            let client = stages.builder(*stage, Client::builder(address)).build().unwrap();
            for round in 0..ROUNDS / STAGES.len() {
                let dropped = tokio::time::timeout(stage.moment(round), async {
                    let _guard = client.acquire("jobs", LONG).await;
                    std::future::pending::<()>().await;
                });
                dropped.await.unwrap_err();
            }
            comes_back_to(&baseline);
            let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
            assert_eq!(tasks, 0, "{stage:?}");
        }
    });
}

fn blocking_rounds() {
    let stages = Stages::open();
    let baseline = census();
    for (stage, address) in &stages.addresses {
        let client = stages.builder(*stage, blocking::Client::builder(address)).build().unwrap();
        for round in 0..ROUNDS / STAGES.len() {
            let cancel = Cancel::new();
            let bound = client.cancel_on(&cancel);
            let acquiring = thread::spawn(move || drop(bound.acquire("jobs", LONG)));
            thread::sleep(stage.moment(round));
            cancel.cancel();
            acquiring.join().unwrap();
        }
        comes_back_to(&baseline);
    }
}

fn timer_of_a_session() {
    /// `CLOCK_BOOTTIME`, as the kernel writes it.
    const BOOT_CLOCK: &str = "clockid: 7";
    let timers = || {
        let infos = fs::read_dir("/proc/self/fdinfo").unwrap().filter_map(Result::ok);
        infos.filter_map(|info| fs::read_to_string(info.path()).ok()).filter(|info| info.contains(BOOT_CLOCK)).count()
    };
    let (_, address) = Stages::open().addresses.pop().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let before = timers();
        let client = Client::builder(&address).connect_timeout(LONG).build().unwrap();
        let guard = client.acquire("jobs", LONG).await.unwrap();
        assert_eq!(timers(), before + 1);
        guard.release().await;
        assert_eq!(timers(), before);
    });
    let before = timers();
    let client = blocking::Client::builder(&address).connect_timeout(LONG).build().unwrap();
    let guard = client.acquire("jobs", LONG).unwrap();
    assert_eq!(timers(), before + 1);
    drop(guard);
}
