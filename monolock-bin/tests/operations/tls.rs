//! TLS and identity, with OpenSSL on the other side.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::pki::{Authority, Key, Pair, Validity, Wanted};
use crate::support::{
    Ended, Frame, PATIENCE, Server, Watched, acquire, assert_complete, expect_events, http_get, logged_address,
    monolock, outcome,
};
use crate::tls_client::TlsClient;

/// The flags of a server with this pair.
pub(crate) fn flags(pair: &Pair) -> [&std::ffi::OsStr; 4] {
    ["--tls-cert".as_ref(), pair.certificate.as_ref(), "--tls-key".as_ref(), pair.key.as_ref()]
}

/// A server with this pair.
fn tls_server(pair: &Pair) -> Server {
    let mut command = monolock(["--listen", "127.0.0.1:0"]);
    command.args(flags(pair));
    Server::start_with(command)
}

#[test]
fn every_kind_of_key_serves_both_versions() {
    let authority = Authority::new();
    for key in Key::ALL {
        let pair = authority.issue("server", Wanted { key, ..Wanted::SERVER });
        assert!(fs::read_to_string(&pair.key).unwrap().contains(key.label()), "{key:?}");
        let server = tls_server(&pair);
        for version in ["-tls1_2", "-tls1_3"] {
            let mut client = TlsClient::connect_with(server.address, &authority, None, &[version]);
            client.acquire(version);
            let token = client.expect_acquired();
            client.heartbeat();
            client.expect(Frame::Acquired(token));
        }
    }
}

#[test]
fn older_versions_are_refused_with_an_alert() {
    let authority = Authority::new();
    let server = tls_server(&authority.server());
    let old = ["-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"];
    let complaint = TlsClient::connect_with(server.address, &authority, None, &old).complaint();
    // Of the version, or of the ciphers that go with it.
    let is_told = ["alert protocol version", "alert handshake failure"].iter().any(|alert| complaint.contains(alert));
    assert!(is_told, "{complaint}");
}

#[test]
fn a_holder_that_is_killed_hands_over_at_once_though_tls_had_no_last_word() {
    let authority = Authority::new();
    let server = tls_server(&authority.server());
    for version in ["-tls1_2", "-tls1_3"] {
        let mut holder = TlsClient::connect_with(server.address, &authority, None, &[version]);
        holder.acquire(version);
        let token = holder.expect_acquired();
        let mut next = TlsClient::connect_with(server.address, &authority, None, &[version]);
        next.acquire(version);
        next.expect(Frame::Waiting);
        holder.kill();
        // Its lease of ten minutes is out of this test's reach.
        assert!(next.expect_acquired() > token);
    }
}

#[test]
fn a_farewell_of_tls_is_a_release() {
    let authority = Authority::new();
    let server = tls_server(&authority.server());
    for version in ["-tls1_2", "-tls1_3"] {
        let mut holder = TlsClient::connect_with(server.address, &authority, None, &["-no_ign_eof", version]);
        holder.acquire(version);
        holder.expect_acquired();
        let mut next = TlsClient::connect_with(server.address, &authority, None, &[version]);
        next.acquire(version);
        next.expect(Frame::Waiting);
        holder.close_stdin();
        next.expect_acquired();
    }
}

#[test]
fn heartbeats_of_one_record_are_each_answered_and_a_stop_is_told() {
    let authority = Authority::new();
    let mut server = tls_server(&authority.server());
    let mut client = TlsClient::connect(server.address, &authority, None);
    let mut bytes = acquire("jobs", 600_000);
    bytes.extend([0x02; 3000]);
    client.send(&bytes);
    let token = client.expect_acquired();
    for _ in 0..3000 {
        client.expect(Frame::Acquired(token));
    }
    server.process.signal(nix::sys::signal::Signal::SIGTERM);
    client.expect(Frame::Error(0x01));
    client.expect(Frame::End);
    assert_eq!(server.process.status(), 0);
}

#[test]
fn mutual_tls_refuses_with_an_alert_whoever_the_ca_did_not_sign() {
    let (authority, another) = (Authority::new(), Authority::new());
    let mut command = monolock([] as [&str; 0]);
    command.args(flags(&authority.server())).arg("--tls-client-ca").arg(&authority.own.certificate);
    let watched = Watched::start_with(command);
    let address = watched.server.address;

    let over = authority.issue("over", Wanted { validity: Validity::Over, ..Wanted::SERVER });
    let strange = another.client("spiffe://prod/worker/1");
    let mut failures = 0.0;
    for version in ["-tls1_2", "-tls1_3"] {
        for (own, alerts) in [
            (None, ["certificate required", "handshake failure"]),
            (Some(&strange), ["unknown ca", "decrypt error"]),
            (Some(&over), ["certificate expired", "certificate expired"]),
        ] {
            let complaint = TlsClient::connect_with(address, &authority, own, &[version]).complaint();
            let is_told = alerts.iter().any(|alert| complaint.contains(&format!("alert {alert}")));
            assert!(is_told, "{version} {own:?}: {complaint}");
            failures += 1.0;
            watched.expect_metric("monolock_tls_handshake_errors_total", |count| count >= failures);
        }
    }
    let known = authority.client("spiffe://prod/worker/1");
    TlsClient::hold(address, &authority, Some(&known), "jobs");
    assert!((watched.metric("monolock_tls_handshake_errors_total") - failures).abs() < 0.5);
    assert!((watched.metric("monolock_acquires_total") - 1.0).abs() < 0.5);
}

#[test]
fn the_identity_is_the_first_uri_else_the_first_dns_name_else_the_common_name() {
    let authority = Authority::new();
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("audit.log");
    let mut command = monolock(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
    command.args(flags(&authority.server())).arg("--tls-client-ca").arg(&authority.own.certificate);
    command.arg("--audit-log").arg(&log);
    let server = Server::start_with(command);
    let admin = logged_address(&server.process.stderr_line("serving the admin API"));

    let table = [
        ("/CN=worker", "DNS:a.example,URI:spiffe://prod/worker/1,URI:spiffe://prod/worker/2", "spiffe://prod/worker/1"),
        ("/CN=worker", "IP:127.0.0.1,email:a@example.com,DNS:b.example,DNS:a.example", "b.example"),
        ("/CN=worker", "IP:127.0.0.1", "worker"),
        ("/O=None/CN=Zoë Wörker", "", "Zoë Wörker"),
        ("/O=Only an organisation", "", ""),
        ("/O=None", "DNS:*.example", "*.example"),
        // Alternative names that break off, and a URI that is no text: the common name is not what the CA meant.
        ("/CN=worker", "DER:30058209616263", ""),
        ("/CN=worker", "DER:30048602fffe", ""),
        // B52: what an identity does to a log and to JSON.
        ("/CN=a\"b\nc\u{1b}[31m\u{202e}d\u{7f}", "", "a\"b\nc\u{1b}[31m\u{202e}d\u{7f}"),
    ];
    let clients: Vec<_> = (0..)
        .zip(table)
        .map(|(number, (subject, alternative_names, identity))| {
            let own = authority.issue(&format!("{number}"), Wanted { subject, alternative_names, ..Wanted::SERVER });
            let client = TlsClient::hold(server.address, &authority, Some(&own), &format!("jobs/{number}"));
            let lock = http_get(admin, &format!("/api/locks/jobs%2F{number}"));
            let lock: serde_json::Value = serde_json::from_str(&lock).unwrap();
            assert_eq!(lock["holder"]["identity"], identity, "{subject} {alternative_names}");
            client
        })
        .collect();
    drop(clients);
    // One event a line, though an identity has lines of its own.
    let events = expect_events(&log, 2 * table.len());
    assert_complete(&events);
    for event in events {
        let number: usize = event["lock"].as_str().unwrap().strip_prefix("jobs/").unwrap().parse().unwrap();
        assert_eq!(event["identity"], table[number].2, "{event}");
    }
}

#[test]
fn without_mutual_tls_nobody_has_an_identity() {
    let authority = Authority::new();
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("audit.log");
    let mut command = monolock(["--listen", "127.0.0.1:0"]);
    command.args(flags(&authority.server())).arg("--audit-log").arg(&log);
    let server = Server::start_with(command);
    let own = authority.client("spiffe://prod/worker/1");
    let _client = TlsClient::hold(server.address, &authority, Some(&own), "jobs");
    assert_eq!(expect_events(&log, 1)[0]["identity"], "");
}

/// What a server says that cannot start with these files.
fn refusal(certificate: &Path, key: &Path, client_ca: Option<&Path>) -> String {
    let mut command = monolock(["--listen", "127.0.0.1:0"]);
    command.arg("--tls-cert").arg(certificate).arg("--tls-key").arg(key);
    command.args(client_ca.iter().flat_map(|file| ["--tls-client-ca".as_ref(), file.as_os_str()]));
    let Ended { status, stdout, stderr } = outcome(&mut command);
    assert_eq!((status, stdout.as_str(), stderr.lines().count()), (1, "", 1), "{stderr}");
    stderr
}

#[test]
fn files_that_are_wrong_are_named_at_the_start() {
    let authority = Authority::new();
    let directory = tempfile::tempdir().unwrap();
    let (server, another) = (authority.server(), authority.client("spiffe://another"));
    let text = fs::read_to_string(&server.certificate).unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let half = file("half.pem", &text[..text.len() / 2]);
    let key = fs::read_to_string(&server.key).unwrap();
    let half_key = file("half.key", &key[..key.len() / 2]);
    let empty = file("empty.pem", "");
    let missing = directory.path().join("missing.pem");
    let Pair { certificate, key } = &server;

    for (said, files) in [
        ("the key is not that of", [certificate, &another.key]),
        ("No such file", [&missing, key]),
        ("No such file", [certificate, &missing]),
        ("not PEM", [&half, key]),
        ("not PEM", [certificate, &half_key]),
        ("there is no certificate in it", [&empty, key]),
        ("there is no certificate in it", [key, key]),
        ("there is no private key in it", [certificate, certificate]),
        ("Is a directory", [&directory.path().to_owned(), key]),
    ] {
        let sentence = refusal(files[0], files[1], None);
        let named = files.iter().any(|file| sentence.contains(&*file.to_string_lossy()));
        assert!(sentence.contains(said) && named, "{said}: {sentence}");
    }
    for (said, client_ca) in [("No such file", &missing), ("not PEM", &half), ("there is no certificate", &empty)] {
        let sentence = refusal(certificate, key, Some(client_ca));
        let named = format!("client CA {}", client_ca.display());
        assert!(sentence.contains(said) && sentence.contains(&named), "{sentence}");
    }
}

#[test]
fn flags_of_tls_that_do_not_go_together_are_a_wrong_command_line() {
    for (flags, sentence) in [
        (&["--tls-cert", "a"][..], "--tls-cert needs --tls-key: give both or neither"),
        (&["--tls-key", "a"], "--tls-key needs --tls-cert: give both or neither"),
        (
            &["--tls-client-ca", "a"],
            "--tls-client-ca needs --tls-cert and --tls-key: clients are asked for certificates over TLS alone",
        ),
        (
            &["--tls-cert", "a", "--tls-key", "a", "--acl-file", "a"],
            "--acl-file needs --tls-client-ca: identities come from client certificates",
        ),
    ] {
        crate::support::assert_fails(&mut monolock(flags), 2, sentence);
    }
}

/// A connection that gets nowhere with its handshake.
enum Stalled {
    Mute(TcpStream),
    /// A thread feeds it.
    Dribbling(TcpStream),
    Plain(TcpStream),
}

impl Stalled {
    fn new(number: usize, address: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        match number % 3 {
            0 => Self::Mute(stream),
            1 => {
                let mut feeder = stream.try_clone().unwrap();
                // The beginning of a long ClientHello, a byte now and then.
                let hello = [0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03];
                thread::spawn(move || {
                    hello.into_iter().chain(std::iter::repeat(0)).try_for_each(|byte| {
                        thread::sleep(Duration::from_millis(50));
                        feeder.write_all(&[byte])
                    })
                });
                Self::Dribbling(stream)
            }
            _ => {
                stream.write_all(&acquire("jobs", 60_000)).unwrap();
                Self::Plain(stream)
            }
        }
    }

    /// Waits until the server has closed it.
    fn expect_end(self) {
        let (Self::Mute(mut stream) | Self::Dribbling(mut stream) | Self::Plain(mut stream)) = self;
        let mut said = Vec::new();
        match stream.read_to_end(&mut said) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }
}

#[test]
fn b40_handshakes_that_stall_hinder_nobody_and_are_closed_counted_and_logged_seldom() {
    const STALLED: usize = 100;
    const IO_TIMEOUT: Duration = Duration::from_secs(5);
    let authority = Authority::new();
    let mut command = monolock(["--io-timeout", "5s"]);
    command.args(flags(&authority.server()));
    let mut watched = Watched::start_with(command);
    let address = watched.server.address;

    let begun = Instant::now();
    let stalled: Vec<_> = (0..STALLED).map(|number| Stalled::new(number, address)).collect();
    TlsClient::hold(address, &authority, None, "jobs");
    assert!(begun.elapsed() < IO_TIMEOUT, "another client waited for those that stall: {:?}", begun.elapsed());
    for connection in stalled {
        connection.expect_end();
    }
    let errors = "monolock_tls_handshake_errors_total";
    watched.expect_metric(errors, |count| (count - 100.0).abs() < 0.5);
    // One of five seconds at the most, and the first.
    let most = 1 + begun.elapsed().as_secs() / 5 + 1;

    watched.server.process.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(watched.server.process.status(), 0);
    let log = watched.server.process.stderr_rest();
    let told = log.iter().filter(|line| line.contains("a TLS handshake failed")).count() as u64;
    assert!((1..=most).contains(&told), "{log:#?}");
}

#[test]
fn the_variables_do_as_the_flags() {
    let authority = Authority::new();
    let directory = tempfile::tempdir().unwrap();
    let (acl, log) = (directory.path().join("acl.json"), directory.path().join("audit.log"));
    fs::write(&acl, r#"{"rules": [{"identity": "spiffe://client", "locks": ["allowed"]}]}"#).unwrap();
    let (pair, client) = (authority.server(), authority.client("spiffe://client"));
    let mut command = monolock(["--listen", "127.0.0.1:0"]);
    command.env("MONOLOCK_TLS_CERT", &pair.certificate).env("MONOLOCK_TLS_KEY", &pair.key);
    command.env("MONOLOCK_TLS_CLIENT_CA", &authority.own.certificate).env("MONOLOCK_ACL_FILE", &acl);
    command.env("MONOLOCK_AUDIT_LOG", &log);
    let server = Server::start_with(command);
    TlsClient::hold(server.address, &authority, Some(&client), "allowed");
    let mut refused = TlsClient::connect(server.address, &authority, Some(&client));
    refused.acquire("another");
    refused.expect(Frame::Error(0x18));
    assert_eq!(expect_events(&log, 3)[2]["event"], "denied");
}

#[test]
fn what_openssl_shows_is_the_pair_that_was_given() {
    let authority = Authority::new();
    let pair = authority.server();
    let server = tls_server(&pair);
    assert_eq!(served_serial(server.address), crate::pki::serial(&pair.certificate));
}

/// The serial number of the certificate that is served there.
pub(crate) fn served_serial(address: SocketAddr) -> String {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", &address.to_string()]).stdin(Stdio::null()).stderr(Stdio::null());
    let shown = command.output().unwrap().stdout;
    let mut parser = Command::new("openssl")
        .args(["x509", "-noout", "-serial"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    parser.stdin.take().unwrap().write_all(&shown).unwrap();
    String::from_utf8(parser.wait_with_output().unwrap().stdout).unwrap()
}
