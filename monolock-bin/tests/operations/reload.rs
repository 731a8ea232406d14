//! SIGHUP: the files are one set, taken over whole or not at all, and open sessions live on.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tempfile::TempDir;

use crate::pki::{Authority, Pair, Wanted, serial};
use crate::support::{Frame, Process, Server, Watched, logged_address, monolock, until};
use crate::tls::served_serial;
use crate::tls_client::TlsClient;

const EVERYTHING: &str = r#"{"rules": [{"identity": "*", "locks": ["*"]}]}"#;
const NOTHING: &str = r#"{"rules": []}"#;

/// The files of a server, in places that stay while their contents change.
struct Files {
    directory: TempDir,
    certificate: PathBuf,
    key: PathBuf,
    client_ca: PathBuf,
    acl: PathBuf,
}

impl Files {
    fn new(pair: &Pair, authority: &Authority) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = |name| directory.path().join(name);
        let (certificate, key) = (file("served.pem"), file("served.key"));
        let files = Self { certificate, key, client_ca: file("clients.pem"), acl: file("acl.json"), directory };
        files.put(pair);
        fs::copy(&authority.own.certificate, &files.client_ca).unwrap();
        fs::write(&files.acl, EVERYTHING).unwrap();
        files
    }

    fn put(&self, pair: &Pair) {
        fs::copy(&pair.certificate, &self.certificate).unwrap();
        fs::copy(&pair.key, &self.key).unwrap();
    }

    fn command(&self) -> Command {
        let mut command = monolock([] as [&str; 0]);
        command.arg("--tls-cert").arg(&self.certificate).arg("--tls-key").arg(&self.key);
        command.arg("--tls-client-ca").arg(&self.client_ca).arg("--acl-file").arg(&self.acl);
        command.arg("--audit-log").arg(self.audit_log());
        command
    }

    fn audit_log(&self) -> PathBuf {
        self.directory.path().join("audit.log")
    }
}

const SUCCESSES: &str = "monolock_reloads_total{result=\"success\"}";
const FAILURES: &str = "monolock_reloads_total{result=\"failure\"}";

#[track_caller]
fn expect_reloaded(watched: &Watched) {
    let before = watched.metric(SUCCESSES);
    watched.server.process.signal(Signal::SIGHUP);
    watched.expect_metric(SUCCESSES, |count| count > before);
}

/// Hangs up, and waits for the one line about it, which names the file.
#[track_caller]
fn expect_not_reloaded(watched: &Watched, file: &Path, what: &str) {
    let before = watched.metric(FAILURES);
    watched.server.process.stderr_lines_so_far();
    watched.server.process.signal(Signal::SIGHUP);
    let line = watched.server.process.stderr_line("reload");
    assert!(line.contains("not reloaded") && line.contains("ERROR"), "{what}: {line}");
    assert!(line.contains(&*file.to_string_lossy()), "{what}: {line}");
    watched.expect_metric(FAILURES, |count| (count - before - 1.0).abs() < 0.5);
    let more = watched.server.process.stderr_lines_so_far();
    assert!(!more.iter().any(|line| line.contains("reload")), "{what}: {more:?}");
}

#[test]
fn b61_a_set_that_is_wrong_in_one_file_leaves_the_old_one_whole() {
    let (authority, another) = (Authority::new(), Authority::new());
    let old = authority.issue("old", Wanted::SERVER);
    let new = authority.issue("new", Wanted::SERVER);
    let (client, stranger) = (authority.client("spiffe://client"), another.client("spiffe://client"));
    let files = Files::new(&old, &authority);
    let watched = Watched::start_with(files.command());
    let address = watched.server.address;
    let mut holder = TlsClient::hold(address, &authority, Some(&client), "held");

    let half = |file: &Path| {
        let text = fs::read(file).unwrap();
        fs::write(file, &text[..text.len() / 2]).unwrap();
    };
    // What is wrong, in which file; the rest of the set is new and good.
    let breakages: &[(&str, &Path, &dyn Fn())] = &[
        ("a key that does not fit", &files.key, &|| {
            fs::copy(&old.key, &files.key).unwrap();
        }),
        ("half a certificate", &files.certificate, &|| half(&files.certificate)),
        ("half a key", &files.key, &|| half(&files.key)),
        ("no certificate", &files.certificate, &|| fs::write(&files.certificate, "").unwrap()),
        ("a file that is gone", &files.certificate, &|| fs::remove_file(&files.certificate).unwrap()),
        ("half a CA", &files.client_ca, &|| half(&files.client_ca)),
        ("a CA that cannot be read", &files.client_ca, &|| {
            fs::remove_file(&files.client_ca).unwrap();
            fs::create_dir(&files.client_ca).unwrap();
        }),
        ("a list that is wrong", &files.acl, &|| fs::write(&files.acl, r#"{"rules": [{}]}"#).unwrap()),
        ("a list that is gone", &files.acl, &|| fs::remove_file(&files.acl).unwrap()),
    ];
    for (what, file, do_break) in breakages {
        files.put(&new);
        fs::copy(&another.own.certificate, &files.client_ca).unwrap();
        fs::write(&files.acl, NOTHING).unwrap();
        do_break();
        let rotated = files.directory.path().join("audit.1");
        fs::rename(files.audit_log(), rotated).unwrap();

        expect_not_reloaded(&watched, file, what);
        assert_eq!(served_serial(address), serial(&old.certificate), "{what}");
        TlsClient::hold(address, &authority, Some(&client), what);
        let complaint = TlsClient::connect(address, &authority, Some(&stranger)).complaint();
        assert!(complaint.contains("alert"), "{what}: {complaint}");
        holder.heartbeat();
        holder.expect_acquired();
        // The audit log is no part of the set.
        until(|| files.audit_log().exists(), || format!("{what}: the audit log was not opened anew"));
        if files.client_ca.is_dir() {
            fs::remove_dir(&files.client_ca).unwrap();
        }
    }
    assert!(watched.metric(SUCCESSES).abs() < 0.5);
}

#[test]
fn b61_a_set_that_is_good_is_served_and_open_sessions_live_on() {
    let (authority, another) = (Authority::new(), Authority::new());
    let (old, new) = (authority.issue("old", Wanted::SERVER), another.issue("new", Wanted::SERVER));
    let (client, of_another) = (authority.client("spiffe://old"), another.client("spiffe://new"));
    let files = Files::new(&old, &authority);
    let watched = Watched::start_with(files.command());
    let address = watched.server.address;
    let mut holder = TlsClient::hold(address, &authority, Some(&client), "jobs");
    let mut waiter = TlsClient::connect(address, &authority, Some(&client));
    waiter.acquire("jobs");
    waiter.expect(Frame::Waiting);

    files.put(&new);
    fs::copy(&another.own.certificate, &files.client_ca).unwrap();
    expect_reloaded(&watched);
    assert_eq!(served_serial(address), serial(&new.certificate));
    TlsClient::hold(address, &another, Some(&of_another), "another");
    // It is the old CA that is no longer asked, so the client is told; that it trusts the new server is another matter.
    let complaint = TlsClient::connect(address, &another, Some(&client)).complaint();
    assert!(complaint.contains("alert"), "{complaint}");

    holder.heartbeat();
    holder.expect_acquired();
    waiter.heartbeat();
    waiter.expect(Frame::Waiting);
    holder.kill();
    waiter.expect_acquired();
}

#[test]
fn a_claim_that_was_taken_in_stands_until_it_ends_and_new_ones_meet_the_new_list() {
    let authority = Authority::new();
    let client = authority.client("spiffe://client");
    let files = Files::new(&authority.server(), &authority);
    let watched = Watched::start_with(files.command());
    let address = watched.server.address;
    let mut holder = TlsClient::hold(address, &authority, Some(&client), "jobs");
    let mut waiter = TlsClient::connect(address, &authority, Some(&client));
    waiter.acquire("jobs");
    waiter.expect(Frame::Waiting);
    // Connected under the old list, and without a claim yet.
    let mut late = TlsClient::connect(address, &authority, Some(&client));
    watched.expect_metric("monolock_connections_active", |count| count > 2.5);

    fs::write(&files.acl, NOTHING).unwrap();
    expect_reloaded(&watched);
    for client in [&mut late, &mut TlsClient::connect(address, &authority, Some(&client))] {
        client.acquire("jobs");
        client.expect(Frame::Error(0x18));
        client.expect(Frame::End);
    }
    holder.heartbeat();
    holder.expect_acquired();
    waiter.heartbeat();
    waiter.expect(Frame::Waiting);
    holder.kill();
    waiter.expect_acquired();

    fs::write(&files.acl, EVERYTHING).unwrap();
    expect_reloaded(&watched);
    TlsClient::hold(address, &authority, Some(&client), "another");
}

/// Whether a process has a handler for SIGHUP.
fn hears_hang_ups(process: &Process) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid)).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[test]
fn b61_a_hang_up_during_the_start_is_heeded_after_it_and_a_file_that_hangs_holds_nobody_up() {
    let authority = Authority::new();
    let client = authority.client("spiffe://client");
    let pair = authority.server();
    let files = Files::new(&pair, &authority);
    // The key comes through a pipe, so it is the test that says how long the reading takes.
    fs::remove_file(&files.key).unwrap();
    mkfifo(&files.key, Mode::S_IRWXU).unwrap();
    let give_key =
        || File::options().write(true).open(&files.key).unwrap().write_all(&fs::read(&pair.key).unwrap()).unwrap();

    let mut command = files.command();
    let process = Process::start(command.args(["--listen", "127.0.0.1:0", "--log-format", "json"]));
    until(|| hears_hang_ups(&process), || "it does not hear signals".to_owned());
    process.signal(Signal::SIGHUP);
    give_key();
    let address = logged_address(&process.stderr_line("listening"));
    let server = Server { process, address };
    // The set is being read anew, and the key is not there yet.
    let mut holder = TlsClient::hold(server.address, &authority, Some(&client), "jobs");
    give_key();
    server.process.stderr_line("reloaded");
    holder.heartbeat();
    holder.expect_acquired();
}

#[test]
fn b61_a_storm_of_hang_ups_under_load_costs_nobody_anything() {
    const HANG_UPS: usize = 300;
    let authority = Authority::new();
    let client = authority.client("spiffe://client");
    let pairs = [authority.issue("old", Wanted::SERVER), authority.issue("new", Wanted::SERVER)];
    let files = Files::new(&pairs[0], &authority);
    let watched = Watched::start_with(files.command());
    let address = watched.server.address;
    let mut holder = TlsClient::hold(address, &authority, Some(&client), "held");

    let (is_over, pid) = (AtomicBool::new(false), watched.server.process.pid);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..HANG_UPS {
                // A certificate and its key change one after the other: now and then they are read in between.
                fs::copy(&pairs[number / 3 % 2].certificate, &files.certificate).unwrap();
                kill(pid, Signal::SIGHUP).unwrap();
                fs::copy(&pairs[number / 3 % 2].key, &files.key).unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        for number in (0..).take_while(|_| !is_over.load(Ordering::Relaxed)) {
            TlsClient::hold(address, &authority, Some(&client), &format!("jobs/{number}"));
            holder.heartbeat();
            holder.expect_acquired();
        }
    });
    files.put(&pairs[1]);
    // One that came in the storm may be at work yet.
    until(
        || {
            expect_reloaded(&watched);
            served_serial(address) == serial(&pairs[1].certificate)
        },
        || "the last set is not served".to_owned(),
    );
    holder.heartbeat();
    holder.expect_acquired();
}
