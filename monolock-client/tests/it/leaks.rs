//! What a process has: after a thousand cancelled rounds in every stage (B50), what it had before.
//!
//! Counts of threads and sockets belong to a whole process, so each of these tests runs in one of its own: this binary again, told to run that
//! test alone, and to be that process by a variable.

#![cfg(target_os = "linux")]

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use monolock_client::{Cancel, Client, blocking};

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
    Mute,
    Queued,
    Held,
}

const STAGES: [Stage; 5] = [Stage::LookUp, Stage::Connecting, Stage::Mute, Stage::Queued, Stage::Held];

/// A server for each stage, each with a thread that lives to the end of the process, and the addresses.
fn stages() -> Vec<(Stage, String)> {
    let black_hole = Box::leak(Box::new(BlackHole::open()));
    let serve = |reply: Vec<u8>| {
        let server = Server::bind();
        let address = server.address();
        server.play(move |server| {
            loop {
                let mut peer = server.accept();
                peer.sends(&reply);
                // One connection at a time: a client that went is waited for before the next one comes.
                peer.drains();
            }
        });
        address
    };
    let addresses = STAGES.map(|stage| match stage {
        Stage::LookUp => "a-name-that-is-nowhere.invalid:7070".to_owned(),
        Stage::Connecting => black_hole.address(),
        Stage::Mute => serve(Vec::new()),
        Stage::Queued => serve(WAITING.to_vec()),
        Stage::Held => serve(acquired(41)),
    });
    STAGES.into_iter().zip(addresses).collect()
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
    let stages = stages();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let baseline = census();
        for (stage, address) in stages {
            let client = Client::builder(address).build().unwrap();
            for round in 0..ROUNDS / STAGES.len() {
                let a_moment = Duration::from_micros(u64::try_from(round).unwrap() * 20);
                let dropped = tokio::time::timeout(a_moment, async {
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
    let stages = stages();
    let baseline = census();
    for (_, address) in stages {
        let client = blocking::Client::builder(address).build().unwrap();
        for round in 0..ROUNDS / STAGES.len() {
            let a_moment = Duration::from_micros(u64::try_from(round).unwrap() * 20);
            let cancel = Cancel::new();
            let bound = client.cancel_on(&cancel);
            let acquiring = thread::spawn(move || drop(bound.acquire("jobs", LONG)));
            thread::sleep(a_moment);
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
    let (_, address) = stages().pop().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let before = timers();
        let guard = Client::builder(&address).build().unwrap().acquire("jobs", LONG).await.unwrap();
        assert_eq!(timers(), before + 1);
        guard.release().await;
        assert_eq!(timers(), before);
    });
    let before = timers();
    let guard = blocking::Client::builder(&address).build().unwrap().acquire("jobs", LONG).unwrap();
    assert_eq!(timers(), before + 1);
    drop(guard);
}
