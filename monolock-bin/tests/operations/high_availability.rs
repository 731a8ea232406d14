//! What docs/high-availability.md has people install: files that keepalived and `HAProxy` take, a check that asks the
//! right machine, and a balancer that keeps to one server at a time.
//!
//! An address that moves between two servers is the part `failover` of `cargo xtask test`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;

use crate::support::{Ended, Frame, Process, Server, Session, logged_address, monolock, outcome, until, words};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/high-availability").join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(file(name)).unwrap()
}

/// A program that Debian may have where only root looks.
fn tool(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(name);
    command.env("PATH", format!("{}:/usr/sbin", std::env::var("PATH").unwrap()));
    command
}

#[test]
fn keepalived_takes_its_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let check = |text: &str| {
        let config = directory.path().join("keepalived.conf");
        fs::write(&config, text).unwrap();
        // One that others may execute is refused.
        fs::set_permissions(&config, fs::Permissions::from_mode(0o644)).unwrap();
        outcome(tool("keepalived").args(["--config-test", "--use-file"]).arg(config))
    };
    // Its scripts are looked for, and are not installed here; nor is everybody who runs the tests root.
    let user = outcome(Command::new("id").arg("-un")).stdout;
    let installed = text("keepalived.conf")
        .replace("/usr/lib/monolock/check-monolock", "/bin/true")
        .replace("/usr/bin/systemctl", "/bin/true")
        .replace("script_user root", &format!("script_user {}", user.trim_end()));
    let ended = check(&installed);
    assert_eq!(ended.status, 0, "{ended:?}");
    // A word that it does not know is one that this test sees.
    assert_ne!(check(&installed.replace("nopreempt", "nopreemption")).status, 0);
}

#[test]
fn the_check_asks_the_server_where_the_address_is_and_nobody_elsewhere() {
    // An address of its own, where nobody else listens when this one has ended.
    let mut server = Server::start_with(monolock(words("--listen 127.0.0.3:0 --ops-listen 127.0.0.3:0")));
    let ops = logged_address(&server.process.stderr_line("serving the ops endpoints")).to_string();
    let check = |address: &str| {
        let mut command = tool(file("check-monolock"));
        let programs = Path::new(env!("CARGO_BIN_EXE_monolock")).parent().unwrap();
        command.env("PATH", format!("{}:{}:/usr/sbin", programs.display(), std::env::var("PATH").unwrap()));
        command.env("MONOLOCK_VIRTUAL_ADDRESS", address).env("MONOLOCK_OPS_ADDRESS", &ops);
        outcome(&mut command).status
    };
    // An address of this machine, and one of none: it is for documentation alone.
    assert_eq!((check("127.0.0.1"), check("192.0.2.10")), (0, 0));
    server.process.signal(Signal::SIGKILL);
    server.process.status();
    assert_eq!((check("127.0.0.1"), check("192.0.2.10")), (1, 0));
}

#[test]
fn the_server_takes_the_settings_of_the_drop_in_and_its_grace_is_as_long_as_the_longest_lease() {
    let text = text("monolock-active.conf");
    let settings = text.lines().filter_map(|line| line.strip_prefix("Environment=")?.split_once('='));
    let settings: BTreeMap<&str, &str> = settings.collect();
    assert_eq!(settings["MONOLOCK_MAX_LEASE"], settings["MONOLOCK_START_GRACE"]);
    let mut command = monolock([""; 0]);
    command.envs(&settings);
    command.env("MONOLOCK_LISTEN_ADDRESS", "127.0.0.1:0").env("MONOLOCK_OPS_LISTEN_ADDRESS", "127.0.0.1:0");
    let server = Server::start_with(command);
    // The unit's own token file is taken away.
    assert_eq!(settings["MONOLOCK_TOKEN_FILE"], "");
    let mut waiter = server.connect();
    waiter.acquire("jobs", 10_000);
    waiter.expect(Frame::Waiting);
    let mut refused = server.connect();
    refused.acquire("jobs", 10_001);
    refused.expect(Frame::Error(0x19));
}

#[test]
fn haproxy_takes_its_configuration() {
    let Ended { status, stderr, .. } = outcome(tool("haproxy").args(["-c", "-f"]).arg(file("haproxy.cfg")));
    assert_eq!((status, stderr.contains("WARNING")), (0, false), "{stderr}");
}

/// Whoever claims a lock through the balancer gets a server, once there is one that it has found.
fn claim(balancer: SocketAddr, lock: &str) -> (Session, Frame) {
    let claimed = std::cell::RefCell::new(None);
    let try_claim = || {
        let Some(mut session) = Session::try_connect(balancer) else { return false };
        session.acquire(lock, 60_000);
        let frame = session.frame();
        if frame != Frame::End {
            claimed.replace(Some((session, frame)));
        }
        frame != Frame::End
    };
    until(try_claim, || "no server is behind the balancer".to_owned());
    claimed.into_inner().unwrap()
}

#[test]
fn haproxy_moves_everybody_to_the_second_server_and_nobody_back() {
    // Addresses of this test alone, on which the ports of the manual are free.
    let process = std::process::id();
    let network = format!("127.{}.{}.", 64 + process % 64, process / 64 % 256);
    let start = |machine: &str| {
        let (listen, ops) = (format!("{network}{machine}:7070"), format!("{network}{machine}:7072"));
        Server::start_with(monolock(["--listen", &listen, "--ops-listen", &ops]))
    };
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("haproxy.cfg");
    let balancer = format!("{network}10:7070");
    let adapted = text("haproxy.cfg").replace("bind :7070", &format!("bind {balancer}")).replace("192.0.2.", &network);
    // A server that is merely slow is not taken for one that stands still.
    let adapted = adapted.replace("defaults\n", "defaults\n    timeout check 5s\n");
    fs::write(&config, adapted).unwrap();

    let first = start("11");
    let haproxy = Process::start(tool("haproxy").args(["-db", "-f"]).arg(&config));
    let balancer = balancer.parse().unwrap();
    let (mut holder, granted) = claim(balancer, "jobs");
    assert!(matches!(granted, Frame::Acquired(_)));

    // It stands still, with its connections open: a holder that is not told believes on.
    first.process.signal(Signal::SIGSTOP);
    holder.expect(Frame::End);
    let second = start("12");
    let (mut holder, granted) = claim(balancer, "jobs");
    assert!(matches!(granted, Frame::Acquired(_)));

    // The first one is well again, and everybody stays with the second.
    first.process.signal(Signal::SIGCONT);
    haproxy.stderr_line("Server locks/a is UP");
    let (mut waiter, waits) = claim(balancer, "jobs");
    assert_eq!(waits, Frame::Waiting);
    drop(second);
    holder.expect(Frame::End);
    waiter.expect(Frame::End);
    // Until that one is gone in its turn.
    assert!(matches!(claim(balancer, "jobs").1, Frame::Acquired(_)));
}
