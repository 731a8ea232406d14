//! Access control and limits, by identities of real certificates.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::pki::{Authority, Pair};
use crate::support::{Frame, PATIENCE, Watched, assert_complete, expect_events, monolock, outline};
use crate::tls::flags;
use crate::tls_client::TlsClient;

/// The command line of a server with mutual TLS.
pub(crate) fn mutual_tls(authority: &Authority, server: &Pair) -> Command {
    let mut command = monolock([] as [&str; 0]);
    command.args(flags(server)).arg("--tls-client-ca").arg(&authority.own.certificate);
    command
}

#[track_caller]
fn expect_denied(watched: &Watched, authority: &Authority, own: &Pair, lock: &str) {
    let mut client = TlsClient::connect(watched.server.address, authority, Some(own));
    client.acquire(lock);
    client.expect(Frame::Error(0x18));
    client.expect(Frame::End);
}

fn with_acl(authority: &Authority, acl: &Path, text: &str) -> Command {
    fs::write(acl, text).unwrap();
    let mut command = mutual_tls(authority, &authority.server());
    command.arg("--acl-file").arg(acl);
    command
}

#[test]
fn rules_add_up_in_no_order_and_what_none_allows_is_refused_counted_told_and_put_down() {
    let authority = Authority::new();
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("audit.log");
    let rules = [
        r#"{"identity": "spiffe://prod/worker/*", "locks": ["nightly/*", "shard-?"]}"#,
        r#"{"identity": "spiffe://*", "locks": ["common"]}"#,
        r#"{"identity": "spiffe://prod/worker/1", "locks": ["own of 1"]}"#,
    ];
    let (worker, stranger) = (authority.client("spiffe://prod/worker/1"), authority.client("spiffe://dev/worker/1"));
    let allowed = ["nightly/import", "nightly/a/b", "shard-7", "common", "own of 1"];
    let denied = ["nightly", "Nightly/import", "shard-17", "shard-", "commons", "a common"];
    for order in [[0, 1, 2], [2, 1, 0]] {
        let acl = directory.path().join("acl.json");
        let text = format!("{{\"rules\": [{}]}}", order.map(|rule| rules[rule]).join(", "));
        let mut command = with_acl(&authority, &acl, &text);
        command.arg("--audit-log").arg(&log);
        let mut watched = Watched::start_with(command);
        for lock in allowed {
            TlsClient::hold(watched.server.address, &authority, Some(&worker), lock);
        }
        for lock in denied {
            expect_denied(&watched, &authority, &worker, lock);
        }
        TlsClient::hold(watched.server.address, &authority, Some(&stranger), "common");
        expect_denied(&watched, &authority, &stranger, "nightly/import");

        let told = watched.server.process.stderr_line("not authorized for lock");
        assert!(told.contains("INFO") && told.contains("nightly") && told.contains("spiffe://prod/worker/1"), "{told}");
        watched.expect_metric("monolock_acl_denials_total", |count| (count - 7.0).abs() < 0.5);
        let acquires = watched.metric("monolock_acquires_total");
        assert!((acquires - 6.0).abs() < 0.5, "a refused claim is none: {acquires}");

        let events = expect_events(&log, 2 * 6 + 7);
        assert_complete(&events);
        let refused: Vec<_> = events.iter().filter(|event| event["event"] == "denied").cloned().collect();
        let mut expected: Vec<_> = denied.iter().map(|lock| format!("denied {lock}")).collect();
        expected.push("denied nightly/import".to_owned());
        assert_eq!(outline(&refused), expected);
        let fields: Vec<_> = refused[0].as_object().unwrap().keys().cloned().collect();
        assert_eq!(fields, ["event", "identity", "lock", "remote_addr", "time"]);
        assert_eq!(refused[0]["identity"], "spiffe://prod/worker/1");

        watched.server.process.signal(nix::sys::signal::Signal::SIGTERM);
        assert_eq!(watched.server.process.status(), 0);
        fs::remove_file(&log).unwrap();
    }
}

#[test]
fn who_follows_the_events_sees_what_is_denied_and_to_whom() {
    let authority = Authority::new();
    let directory = tempfile::tempdir().unwrap();
    let mut command = with_acl(&authority, &directory.path().join("acl.json"), r#"{"rules": []}"#);
    let admin = directory.path().join("admin.sock");
    command.arg("--admin-listen").arg(format!("unix:{}", admin.display()));
    let watched = Watched::start_with(command);
    let mut stream = UnixStream::connect(admin).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut data = BufReader::new(stream).lines().map(Result::unwrap).filter_map(|line| {
        let data = line.strip_prefix("data: ")?;
        Some(serde_json::from_str::<Value>(data).unwrap())
    });
    assert_eq!(data.next().unwrap()["event"], "hello");
    expect_denied(&watched, &authority, &authority.client("spiffe://prod/worker/1"), "jobs");
    let denied = data.next().unwrap();
    let fields: Vec<_> = denied.as_object().unwrap().keys().cloned().collect();
    assert_eq!(fields, ["event", "identity", "lock", "remote_addr", "time"]);
    assert_eq!((&denied["event"], &denied["lock"]), (&"denied".into(), &"jobs".into()));
    assert_eq!(denied["identity"], "spiffe://prod/worker/1");
}

#[test]
fn an_empty_list_allows_nothing() {
    let authority = Authority::new();
    let directory = tempfile::tempdir().unwrap();
    let watched = Watched::start_with(with_acl(&authority, &directory.path().join("acl.json"), r#"{"rules": []}"#));
    expect_denied(&watched, &authority, &authority.client("spiffe://prod/worker/1"), "jobs");
}

#[test]
fn b67_one_identity_with_many_connections_is_refused_more_and_others_are_served() {
    let authority = Authority::new();
    let mut command = mutual_tls(&authority, &authority.server());
    command.args(["--max-sessions-per-client", "5", "--io-timeout", "1m"]);
    let watched = Watched::start_with(command);
    let address = watched.server.address;
    let (greedy, other) = (authority.client("spiffe://prod/greedy"), authority.client("spiffe://prod/other"));

    let mut sessions: Vec<_> =
        (0..5).map(|number| TlsClient::hold(address, &authority, Some(&greedy), &format!("jobs/{number}"))).collect();
    let refused: Vec<_> = (0..20).map(|_| TlsClient::connect(address, &authority, Some(&greedy))).collect();
    for mut client in refused {
        client.acquire("jobs/0");
        client.expect(Frame::Error(0x03));
        client.expect(Frame::End);
    }
    // They come from one address, but each is a client of its own.
    let _served: Vec<_> =
        (0..5).map(|number| TlsClient::hold(address, &authority, Some(&other), &format!("others/{number}"))).collect();

    sessions.pop();
    crate::support::until(
        || {
            let mut client = TlsClient::connect(address, &authority, Some(&greedy));
            client.acquire("jobs/5");
            matches!(client.frame(), Frame::Acquired(_))
        },
        || "a session that has ended is still counted".to_owned(),
    );
}
