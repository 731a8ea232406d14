//! The server in its container: ports, rights, signals, neighbours.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::thread;

use serde_json::Value;

use crate::engine::{Container, Engine, IMAGE, outcome, until};
use crate::pki::{Authority, Pair, Wanted, serial};
use crate::support::{Ended, Frame, Session, http_get};

#[test]
fn the_quick_start_needs_no_argument() {
    let engine = Engine::with_image();
    let container = engine.run(["--publish", "127.0.0.1::7070", "--publish", "127.0.0.1::9090"], &[]);
    let address = container.published(7070);
    let mut a = Session::connect(address);
    a.acquire("nightly-import", 60_000);
    let token = a.expect_acquired();
    let mut b = Session::connect(address);
    b.acquire("nightly-import", 60_000);
    b.expect(Frame::Waiting);
    drop(a);
    assert!(b.expect_acquired() > token);

    assert_eq!(http_get(container.published(9090), "/readyz"), "ok");
    engine.say(["healthcheck", "run", &container.id]);
}

#[test]
fn sigterm_stops_it_in_order_and_within_a_second() {
    let engine = Engine::with_image();
    let container = engine.run(["--publish", "127.0.0.1::7070", "--env", "MONOLOCK_LOG_FORMAT=json"], &[]);
    let mut holder = Session::connect(container.published(7070));
    holder.acquire("jobs", 60_000);
    holder.expect_acquired();
    thread::scope(|scope| {
        // It goes as soon as it is told to, however long podman takes.
        scope.spawn(move || holder.expect(Frame::Error(0x01)));
        container.kill("TERM");
    });
    assert_eq!(container.wait(), "0");
    // By the server's own clock: how long podman takes is another matter.
    let log = container.log();
    let at = |what: &str| {
        let line = log.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("no {what}: {log}"));
        let event: Value = serde_json::from_str(line).unwrap();
        humantime::parse_rfc3339(event["timestamp"].as_str().unwrap()).unwrap()
    };
    let took = at("\"stopped\"").duration_since(at("stopping: ")).unwrap();
    assert!(took.as_secs() < 1, "{took:?}");
}

/// Puts a pair where a server of another user may read it.
fn put(pair: &Pair, directory: &Path) {
    for (from, name) in [(&pair.certificate, "server.pem"), (&pair.key, "server.key")] {
        let place = directory.join(name);
        fs::copy(from, &place).unwrap();
        fs::set_permissions(&place, Permissions::from_mode(0o644)).unwrap();
    }
}

/// The serial number of the certificate that a client is shown.
fn served_serial(container: &Container<'_>, authority: &Authority) -> String {
    let address = container.published(7070).to_string();
    let mut client = Command::new("openssl");
    client.args(["s_client", "-connect", &address, "-verify_return_error", "-CAfile"]).arg(&authority.own.certificate);
    let Ended { stdout, stderr, .. } = outcome(&mut client);
    let certificate = tempfile::NamedTempFile::new().unwrap();
    let end = "-----END CERTIFICATE-----";
    let begin = stdout.find("-----BEGIN CERTIFICATE-----").unwrap_or_else(|| panic!("{stdout}{stderr}"));
    fs::write(&certificate, &stdout[begin..stdout.find(end).unwrap() + end.len()]).unwrap();
    serial(certificate.path())
}

#[test]
fn shut_in_as_far_as_it_goes_it_serves_tls_and_reads_new_certificates_at_sighup() {
    let engine = Engine::with_image();
    let authority = Authority::new();
    let (old, new) = (authority.issue("old", Wanted::SERVER), authority.issue("new", Wanted::SERVER));
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    put(&old, directory.path());
    let certificates = format!("{}:/etc/monolock:ro", directory.path().display());
    let mut flags = vec!["--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges"];
    flags.extend(["--publish", "127.0.0.1::7070", "--volume", &certificates]);
    flags.extend(["--env", "MONOLOCK_TLS_CERT=/etc/monolock/server.pem"]);
    flags.extend(["--env", "MONOLOCK_TLS_KEY=/etc/monolock/server.key"]);
    let limits_memory = engine.limits_memory();
    if limits_memory {
        flags.push("--memory=64m");
    } else {
        eprintln!("this machine lets podman limit no memory, so that is not looked at");
    }
    let container = engine.run(flags, &[]);

    let status = fs::read_to_string(format!("/proc/{}/status", container.pid())).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
        line.unwrap_or_else(|| panic!("{status}")).split_whitespace().next().unwrap()
    };
    assert_eq!((field("Uid"), field("Gid"), field("NoNewPrivs")), ("65532", "65532", "1"));
    assert_eq!((field("CapEff"), field("CapBnd")), ("0000000000000000", "0000000000000000"));
    if limits_memory {
        assert_eq!(memory_limit(container.pid()), Some(64 << 20));
    }

    assert_eq!(served_serial(&container, &authority), serial(&old.certificate));
    put(&new, directory.path());
    container.kill("HUP");
    until(|| container.log().contains("reloaded: "), || container.log());
    assert_eq!(served_serial(&container, &authority), serial(&new.certificate));
    container.kill("TERM");
    assert_eq!(container.wait(), "0");
}

/// What a process may take, as its control group has it; of the first version or the second.
fn memory_limit(pid: u64) -> Option<u64> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let of = |group: &str| groups.lines().find_map(|line| line.split_once(group).map(|(_, path)| path.to_owned()));
    let limit = match of(":memory:") {
        Some(path) => fs::read_to_string(format!("/sys/fs/cgroup/memory{path}/memory.limit_in_bytes")),
        None => fs::read_to_string(format!("/sys/fs/cgroup{}/memory.max", of("0::").unwrap())),
    };
    limit.ok()?.trim().parse().ok()
}

#[test]
fn two_containers_meet_by_name_and_the_admin_api_stays_inside() {
    let engine = Engine::with_image();
    engine.say(["network", "create", "locks"]);
    let server = engine.run(["--name", "monolock", "--network", "locks"], &[]);
    let beside = |words: &str| {
        let arguments = ["run", "--rm", "--network", "locks", IMAGE].into_iter().chain(words.split_whitespace());
        outcome(&mut engine.podman(arguments))
    };
    let ran = beside("run --server monolock:7070 --lease 5s jobs -- /monolock --version");
    assert_eq!(ran.status, 0, "{ran:?}\n{}", server.log());
    assert!(ran.stdout.starts_with("monolock "), "{ran:?}");
    assert_eq!(beside("healthcheck --ops monolock:9090").status, 0);

    // Whoever may go into the container may end claims, and nobody else.
    let refused = beside("locks --admin monolock:7071");
    assert_eq!(refused.status, 123, "{refused:?}");
    let listed = server.exec(&["/monolock", "locks"]);
    assert_eq!(listed.status, 0, "{listed:?}");
}

#[test]
fn an_admin_api_that_is_opened_without_a_token_is_refused() {
    let engine = Engine::with_image();
    let opened = ["run", "--rm", "--env", "MONOLOCK_ADMIN_LISTEN_ADDRESS=0.0.0.0:7071", IMAGE];
    let Ended { status, stderr, .. } = outcome(&mut engine.podman(opened));
    assert_eq!(status, 2);
    assert!(stderr.contains("would let anybody who reaches it end claims"), "{stderr}");
}

#[test]
fn a_new_volume_keeps_the_mark_of_the_tokens_though_the_rest_is_read_only() {
    let engine = Engine::with_image();
    let granted = || {
        let flags = ["--read-only", "--publish", "127.0.0.1::7070", "--volume", "state:/var/lib/monolock"];
        let token_file = ["--env", "MONOLOCK_TOKEN_FILE=/var/lib/monolock/tokens"];
        let container = engine.run(flags.into_iter().chain(token_file), &[]);
        let mut session = Session::connect(container.published(7070));
        session.acquire("jobs", 60_000);
        let token = session.expect_acquired();
        engine.say(["kill", &container.id]);
        container.wait();
        token
    };
    let first = granted();
    // After a crash the tokens go on an hour ahead.
    assert!(granted() >= first + (3000 << 20));
}
