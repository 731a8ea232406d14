//! B64 across rotations, by logrotate as Debian has it: rename, then SIGHUP.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::pki::run;
use crate::support::{Frame, Server, Session, assert_complete, audit_events, expect_events, monolock};

const ROTATIONS: usize = 8;

/// Clients that want the same lock, until they are told to stop.
fn contend(address: SocketAddr, stopped: &Arc<AtomicBool>) -> Vec<thread::JoinHandle<()>> {
    let client = |_| {
        let stopped = Arc::clone(stopped);
        thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let mut session = Session::connect(address);
                session.acquire("jobs", 60_000);
                while session.frame() == Frame::Waiting {}
            }
        })
    };
    (0..4).map(client).collect()
}

fn configure(directory: &Path, log: &Path, server: &Server, how: &str) -> PathBuf {
    let file = directory.join("logrotate.conf");
    let text = format!(
        "{} {{\n  rotate {ROTATIONS}\n  {how}\n  nocompress\n  postrotate\n    kill -HUP {}\n  endscript\n}}\n",
        log.display(),
        server.process.pid
    );
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    file
}

/// The events in the file and those it was rotated from, oldest first; each file is whole.
fn all_events(log: &Path) -> Vec<Value> {
    let name =
        |number: usize| if number == 0 { log.to_owned() } else { PathBuf::from(format!("{}.{number}", log.display())) };
    let texts = (0..=ROTATIONS).rev().filter_map(|number| fs::read_to_string(name(number)).ok());
    texts.flat_map(|text| audit_events(&text)).collect()
}

fn rotate_under_load(how: &str) {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("audit.log");
    let mut command = monolock(["--listen", "127.0.0.1:0", "--audit-log"]);
    command.arg(&log);
    let mut server = Server::start_with(command);
    let config = configure(directory.path(), &log, &server, how);

    let stopped = Arc::new(AtomicBool::new(false));
    let clients = contend(server.address, &stopped);
    for _ in 0..ROTATIONS {
        // Also proves that the file was opened anew after the last time.
        expect_events(&log, 100);
        let mut logrotate = Command::new("logrotate");
        // Debian has it where only root looks.
        logrotate.env("PATH", format!("{}:/usr/sbin", std::env::var("PATH").unwrap()));
        logrotate.args(["--force", "--state"]).arg(directory.path().join("state"));
        run(logrotate.arg(&config));
        server.process.stderr_line("reloaded");
    }
    expect_events(&log, 100);
    stopped.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().unwrap();
    }
    server.process.signal(Signal::SIGTERM);
    assert_eq!(server.process.status(), 0);

    let files = fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(files, ROTATIONS + 1 + 2, "logrotate found a file in its place");
    assert_complete(&all_events(&log));
}

#[test]
fn b64_no_event_is_lost_or_torn_by_a_rotation_that_leaves_the_new_file_to_the_server() {
    rotate_under_load("nocreate");
}

#[test]
fn b64_no_event_is_lost_or_torn_by_a_rotation_that_makes_the_new_file() {
    rotate_under_load("create 0640");
}
