//! The server as a process: the handover through it, its signals, its log.

use std::io::{BufRead as _, BufReader, Read as _, pipe};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use nix::pty::openpty;
use nix::sys::signal::Signal;

use crate::support::{Frame, Process, Server, assert_fails, logged_address, monolock, words};

/// What a stop may take beyond the io-timeout: a second by contract, and the rest for a busy machine.
const STOP_SLACK: Duration = Duration::from_secs(10);

#[test]
fn the_quick_starts_handover() {
    let server = Server::start();
    let (mut a, mut b) = (server.connect(), server.connect());
    a.acquire("nightly-import", 60_000);
    let token = a.expect_acquired();
    b.acquire("nightly-import", 60_000);
    b.expect(Frame::Waiting);

    a.heartbeat();
    a.expect(Frame::Acquired(token));
    b.heartbeat();
    b.expect(Frame::Waiting);

    drop(a);
    assert!(b.expect_acquired() > token);
}

/// A server whose limit of open descriptors was set by the shell.
fn limited(limit: &str) -> Server {
    let mut command = monolock([] as [&str; 0]);
    let program = command.get_program().to_owned();
    command = std::process::Command::new("sh");
    command.args(["-c", &format!("ulimit {limit}; exec \"$0\" \"$@\"")]).arg(program);
    command.args(["--listen", "127.0.0.1:0"]);
    Server::start_with(command)
}

#[test]
fn b41_more_clients_than_descriptors_cost_no_holder_its_lock() {
    let server = limited("-n 64");
    let mut holder = server.hold("jobs");
    let crowd: Vec<_> = (0..200).map(|_| server.connect()).collect();
    server.process.stderr_line("cannot accept connections");
    holder.heartbeat();
    holder.expect_acquired();

    drop(crowd);
    server.hold("another");
}

#[test]
fn the_soft_limit_of_descriptors_is_raised_to_the_hard_one() {
    let server = limited("-Sn 64");
    let mut crowd: Vec<_> = (0..200).map(|_| server.connect()).collect();
    for (number, session) in crowd.iter_mut().enumerate() {
        session.acquire(&format!("jobs/{number}"), 60_000);
        session.expect_acquired();
    }
}

#[test]
fn an_address_that_is_taken_is_named_with_its_flag() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let sentence = format!(
        "cannot listen on {address}: Address already in use (os error 98); choose another address with --listen or MONOLOCK_LISTEN_ADDRESS"
    );
    if cfg!(target_os = "linux") {
        assert_fails(&mut monolock(["--listen", &address.to_string()]), 1, &sentence);
    }
}

#[test]
fn sigterm_tells_holder_and_waiter_and_promotes_nobody() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        // Nobody else listens at this address when this one has ended.
        let mut server = Server::start_with(monolock(words("--listen 127.0.0.3:0")));
        // Connections are accepted in their order: when the waiter has its answer, the silent one is in.
        let mut silent = server.connect();
        let mut holder = server.hold("jobs");
        let mut waiter = server.queue("jobs");

        let begun = Instant::now();
        server.process.signal(signal);
        for session in [&mut holder, &mut waiter, &mut silent] {
            session.expect(Frame::Error(0x01));
            session.expect(Frame::End);
        }
        drop((holder, waiter, silent));
        assert!(server.process.stderr_line("stopping").contains(signal.as_str()));
        assert_eq!(server.process.status(), 0);
        assert!(begun.elapsed() < Duration::from_secs(5) + STOP_SLACK);
        assert!(TcpStream::connect(server.address).is_err(), "the listener is closed");
    }
}

#[test]
fn a_stop_ends_within_the_io_timeout_whatever_clients_do() {
    let mut server = Server::start_with(monolock(words("--listen 127.0.0.1:0 --io-timeout 1s")));
    let mut clogged = server.hold("jobs");
    let deaf = server.queue("jobs");
    clogged.clog();

    let begun = Instant::now();
    server.process.signal(Signal::SIGTERM);
    assert_eq!(server.process.status(), 0);
    assert!(begun.elapsed() < Duration::from_secs(1) + STOP_SLACK, "{:?}", begun.elapsed());
    drop((clogged, deaf));
}

#[test]
fn a_second_signal_ends_the_stop_at_once() {
    for (second, status) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130)] {
        let mut server = Server::start_with(monolock(words("--listen 127.0.0.1:0 --io-timeout 1h")));
        let mut clogged = server.hold("jobs");
        clogged.clog();

        server.process.signal(Signal::SIGTERM);
        server.process.stderr_line("stopping");
        server.process.signal(second);
        assert_eq!(server.process.status(), status);
    }
}

#[test]
fn sighup_without_files_changes_nothing() {
    let server = Server::start();
    let mut holder = server.hold("jobs");
    server.process.signal(Signal::SIGHUP);
    server.process.stderr_line("reloaded");
    holder.heartbeat();
    holder.expect_acquired();
}

#[test]
fn a_log_that_nobody_reads_does_not_stop_the_server() {
    let (reader, writer) = pipe().unwrap();
    let mut command = monolock(words("--listen 127.0.0.1:0 --log-format json"));
    let process = Process::start_with_stderr(&mut command, writer);
    drop(command);
    let mut log = BufReader::new(reader);
    let mut line = String::new();
    log.read_line(&mut line).unwrap();
    let address = logged_address(&line);
    drop(log);

    process.signal(Signal::SIGHUP);
    let server = Server { process, address };
    let mut holder = server.hold("jobs");
    server.process.signal(Signal::SIGHUP);
    holder.heartbeat();
    holder.expect_acquired();
}

#[test]
fn the_log_is_coloured_on_terminals_that_want_it() {
    let first_words = |no_color: &str| {
        let terminal = openpty(None, None).unwrap();
        let mut command = monolock(words("--listen 127.0.0.1:0"));
        let process = Process::start_with_stderr(command.env("NO_COLOR", no_color), terminal.slave);
        let mut bytes = [0; 512];
        let read = std::fs::File::from(terminal.master).read(&mut bytes).unwrap();
        drop(process);
        String::from_utf8_lossy(&bytes[..read]).into_owned()
    };
    assert!(first_words("").contains('\x1b'));
    assert!(!first_words("1").contains('\x1b'));
    let plain = Process::start(&mut monolock(words("--listen 127.0.0.1:0")));
    assert!(!plain.stderr_line("listening").contains('\x1b'));
}

/// The allocator's own thread gives memory back that clients have left, when nobody calls any more.
#[cfg(jemalloc)]
#[test]
fn somebody_gives_memory_back() {
    let server = Server::start();
    let threads = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", server.process.pid)).unwrap();
        // One that ends meanwhile has no name.
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok()).collect::<String>()
    };
    crate::support::until(|| threads().contains("jemalloc_bg_thd"), || format!("the threads are\n{}", threads()));
}
