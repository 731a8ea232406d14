//! The units of systemd, as systemd's own tools see them, and activation by its own tool.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::support::{Ended, Process, Server, Session, http_get, logged_address, monolock, outcome};

const UNITS: [&str; 2] = ["monolock.service", "monolock.socket"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("deploy/systemd")
}

/// The units, of a program that is there.
fn installed() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for unit in UNITS {
        let text = fs::read_to_string(folder().join(unit)).unwrap();
        let text = text.replace("/usr/bin/monolock", env!("CARGO_BIN_EXE_monolock"));
        fs::write(directory.path().join(unit), text).unwrap();
    }
    directory
}

#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    let directory = installed();
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--recursive-errors=yes", "--man=no"]).args(UNITS);
    // With the colon: and wherever else units are, since these depend on some of systemd's.
    verify.env("SYSTEMD_UNIT_PATH", format!("{}:", directory.path().display()));
    assert_eq!(outcome(&mut verify), Ended { status: 0, stdout: String::new(), stderr: String::new() });
}

#[test]
fn the_service_is_exposed_to_little() {
    let mut rate = Command::new("systemd-analyze");
    rate.args(["security", "--offline=true", "--threshold=15", "--no-pager"]).arg(folder().join("monolock.service"));
    let Ended { status, stdout, stderr } = outcome(&mut rate);
    assert_eq!(status, 0, "{stdout}{stderr}");
    // An analysis of nothing would find nothing.
    assert!(stdout.contains("Overall exposure level for monolock.service: 1."), "{stdout}");
}

/// An address of which nobody else takes the port: the loopback has many.
fn own_address(port: u16) -> SocketAddr {
    let [.., high, low] = std::process::id().to_be_bytes();
    ([127, 70, high, low.max(1)], port).into()
}

#[test]
fn systemds_own_tool_passes_the_three_sockets_and_the_first_client_starts_the_server() {
    // All three at a time, so that no two are the same.
    let taken = [0; 3].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let ports = taken.map(|listener| listener.local_addr().unwrap().port());
    let [locks, admin, ops] = ports.map(own_address);
    let mut activate = Command::new("systemd-socket-activate");
    for address in [locks, admin, ops] {
        activate.arg(format!("--listen={address}"));
    }
    activate.arg("--fdname=monolock:admin:ops").arg(env!("CARGO_BIN_EXE_monolock"));
    activate.args(["serve", "--log-format", "json"]);
    let process = Process::start(&mut activate);
    process.stderr_line(&format!("Listening on {ops}"));

    let mut first = Session::connect(locks);
    first.acquire("jobs", 60_000);
    first.expect_acquired();
    assert_eq!(logged_address(&process.stderr_line("listening")), locks);
    assert_eq!(http_get(ops, "/readyz"), "ok");
    let listed = outcome(monolock(["locks", "--admin", &admin.to_string()]).env("NO_COLOR", "1"));
    assert!(listed.stdout.contains("jobs"), "{listed:?}");
    let mut server = Server { process, address: locks };
    server.process.signal(Signal::SIGTERM);
    drop(first);
    assert_eq!(server.process.status(), 0);
}
