//! `monolock bench`: what it does to a server, and what it says of one that fails. No times are judged.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use monolock_core::Token;
use monolock_core::wire::ServerFrame;
use serde_json::{Value, json};

use crate::certificates::make_certificates;
use crate::support::{Ended, PATIENCE, Process, Server, Watched, assert_fails, monolock, outcome, words};

/// Runs it to its end, and reads its report.
#[track_caller]
fn bench(address: SocketAddr, line: &str) -> Value {
    let Ended { status, stdout, stderr } = outcome(&mut command(address, line));
    assert_eq!((status, stderr.as_str()), (0, ""), "{line}: {stdout}");
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"))
}

fn command(address: SocketAddr, line: &str) -> std::process::Command {
    let mut command = monolock(words("bench"));
    command.args(words(line)).args(["--json", "--server", &address.to_string()]);
    command
}

/// Its first answer, and what comes after it.
fn acquired() -> Vec<u8> {
    let mut frame = Vec::new();
    ServerFrame::Acquired { token: Token::new(1).unwrap() }.encode(&mut frame);
    frame
}

/// A server that does with each client what the test says; the first is only there to see whether somebody listens.
fn stub<T: Send + 'static>(serve: impl Fn(TcpStream) -> T + Copy + Send + 'static) -> (SocketAddr, Receiver<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, served) = channel();
    thread::spawn(move || {
        for client in listener.incoming().skip(1).map_while(Result::ok) {
            let sender = sender.clone();
            thread::spawn(move || sender.send(serve(client)));
        }
    });
    (address, served)
}

fn read(stream: &mut TcpStream) -> std::io::Result<usize> {
    stream.read(&mut [0; 512])
}

#[test]
fn a_report_has_these_fields_and_no_other() {
    let server = Server::start();
    let report = bench(server.address, "cycle --connections 3 --duration 100ms");
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    let names = |line: &str| words(line).into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
    let fields = "scenario server tls connections locks threads lease_ms close rate rounds elapsed_s operations \
                  operations_per_second failures latency_us lag_us server_process";
    assert_eq!(keys(&report), names(fields));
    assert_eq!(keys(&report["latency_us"]), names("measured_from p50 p90 p99 p99.9 p99.99 max mean"));
    assert_eq!(keys(&report["failures"]), names("total kinds"));
    let said = ["scenario", "connections", "locks", "close", "tls", "rate", "rounds", "lag_us", "server_process"];
    let said: Vec<&Value> = said.iter().map(|field| &report[*field]).collect();
    assert_eq!(json!(said), json!(["cycle", 3, 3, "reset", "none", null, 1, null, null]));
    assert!(report["operations"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(report["failures"], json!({"total": 0, "kinds": {}}));
    assert!(report["latency_us"]["p50"].as_f64().unwrap() > 0.0, "{report}");
}

#[test]
fn what_the_report_counts_is_what_the_server_counted() {
    let watched = Watched::start([""; 0]);
    let cycles = bench(watched.server.address, "cycle --connections 4 --locks 2 --duration 200ms");
    let counted = watched.metric("monolock_acquires_total");
    let told = cycles["operations"].as_f64().unwrap();
    // At the end some may still wait for their turn.
    assert!((told..=told + 4.0).contains(&counted), "{told} cycles, {counted} acquires");

    let beats = bench(watched.server.address, "heartbeat --connections 4 --duration 200ms");
    let watched = Watched::start([""; 0]);
    assert!(beats["operations"].as_u64().unwrap() > 0);
    let paced = bench(watched.server.address, "heartbeat --connections 5 --rate 100 --duration 500ms");
    assert_eq!(paced["operations"], 50, "operations begin at set instants: {paced}");
    watched.expect_metric("monolock_heartbeats_total", |beats| (beats - 50.0).abs() < 0.5);
    assert_eq!(paced["latency_us"]["measured_from"], "intended");
    assert_eq!(beats["latency_us"]["measured_from"], "sent");
    assert!(paced["lag_us"]["max"].is_number(), "{paced}");
}

#[test]
fn a_chain_is_handed_down_to_its_end_in_every_round() {
    let watched = Watched::start([""; 0]);
    let report = bench(watched.server.address, "handover --connections 7 --locks 2 --duration 1ms --threads 2");
    let rounds = report["rounds"].as_u64().unwrap();
    assert!(rounds >= 1);
    assert_eq!(report["operations"].as_u64(), Some(rounds * 5), "each round hands two locks to five waiters: {report}");
    let acquires = watched.metric("monolock_acquires_total");
    assert_eq!(Some(acquires), report["rounds"].as_f64().map(|rounds| rounds * 7.0));
    watched.expect_metric("monolock_locks_held", |held| held < 0.5);
}

#[test]
fn a_grant_that_no_closing_of_the_round_caused_is_no_handover() {
    // As of a server that reads the first claim of a round before the end of the last one of the round before.
    static CLIENTS: AtomicUsize = AtomicUsize::new(0);
    static HANDOVER: Barrier = Barrier::new(2);
    let (address, _) = stub(|mut client| {
        let is_first = CLIENTS.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        let mut waiting = Vec::new();
        ServerFrame::Waiting.encode(&mut waiting);
        let _ = read(&mut client).and_then(|_| client.write_all(&waiting));
        if !is_first {
            HANDOVER.wait();
        }
        let _ = client.write_all(&acquired()).and_then(|()| read(&mut client));
        if is_first {
            HANDOVER.wait();
        }
    });
    let report = bench(address, "handover --connections 2 --locks 1 --duration 1ms --threads 1");
    assert_eq!(report["operations"], report["rounds"], "{report}");
    assert_eq!(report["failures"]["total"], 0, "{report}");
}

#[test]
fn idle_clients_hold_and_wait_as_long_as_it_lasts() {
    let watched = Watched::start([""; 0]);
    let _idle = Process::start(&mut command(watched.server.address, "idle --connections 6 --locks 2 --duration 10m"));
    watched.expect_metric("monolock_locks_held", |held| (held - 2.0).abs() < 0.5);
    watched.expect_metric("monolock_waiters", |waiters| (waiters - 4.0).abs() < 0.5);
    let short = bench(watched.server.address, "idle --connections 3 --locks 3 --duration 50ms");
    assert_eq!(short["operations"], 3, "{short}");
    // Those met at the same locks; these have locks of their own, and wait for nobody.
    let apart = bench(watched.server.address, "cycle --connections 2 --prefix apart/ --duration 50ms --timeout 5s");
    assert_eq!(apart["failures"]["total"], 0, "{apart}");
    assert!(apart["operations"].as_u64() > Some(0), "{apart}");
}

#[test]
fn a_storm_places_everybody_in_every_round() {
    let watched = Watched::start([""; 0]);
    let report = bench(watched.server.address, "storm --connections 40 --duration 100ms");
    let rounds = report["rounds"].as_u64().unwrap();
    assert_eq!(report["operations"].as_u64(), Some(rounds * 40), "{report}");
    assert_eq!(report["failures"]["total"], 0);
}

#[test]
fn a_refusal_is_counted_by_its_code_and_the_rest_goes_on() {
    let server = Server::start_with(monolock(words("--listen 127.0.0.1:0 --max-sessions 2")));
    let report = bench(server.address, "idle --connections 5 --locks 5 --duration 50ms");
    assert_eq!(report["operations"], 2, "{report}");
    assert_eq!(report["failures"], json!({"total": 3, "kinds": {"error 0x03": 3}}));
}

#[test]
fn one_success_is_needed_or_the_most_frequent_failure_is_told() {
    let told = |address, line: &str| {
        let Ended { status, stdout, stderr } = outcome(&mut command(address, line));
        let report: Value = serde_json::from_str(&stdout).unwrap();
        (status, stderr, report["failures"]["kinds"].clone())
    };
    let sentence = |kind: &str| format!("monolock: not one operation succeeded: {kind}\n");

    let (mute, _) = stub(|mut client| while matches!(read(&mut client), Ok(1..)) {});
    let line = "idle --connections 3 --duration 1ms --timeout 100ms";
    assert_eq!(told(mute, line), (1, sentence("timed out"), json!({"timed out": 3})));

    let (closing, _) = stub(|mut client| read(&mut client).is_ok());
    let line = "idle --connections 3 --duration 1ms";
    assert_eq!(told(closing, line), (1, sentence("closed by the server"), json!({"closed by the server": 3})));

    let (babbling, _) = stub(|mut client| {
        let _ = client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        while matches!(read(&mut client), Ok(1..)) {}
    });
    let answer = "unintelligible answer";
    assert_eq!(told(babbling, line), (1, sentence(answer), json!({answer: 3})));
}

#[test]
fn a_connection_that_breaks_while_it_is_idle_is_a_failure() {
    let (breaking, _) = stub(|mut client| {
        let _ = read(&mut client).and_then(|_| client.write_all(&acquired()));
    });
    let report = bench(breaking, "idle --connections 3 --duration 2s");
    assert_eq!(report["operations"], 3, "{report}");
    assert_eq!(report["failures"]["kinds"], json!({"closed by the server": 3}));
}

/// Answers each read, the second after a rest.
fn stall(mut client: TcpStream) {
    for number in 0.. {
        match read(&mut client) {
            Ok(1..) if number == 1 => thread::sleep(Duration::from_millis(400)),
            Ok(1..) => {}
            Ok(0) | Err(_) => return,
        }
        if client.write_all(&acquired()).is_err() {
            return;
        }
    }
}

#[test]
fn what_stands_back_behind_a_stall_is_measured_from_the_intended_instant() {
    let (stalling, _) = stub(stall);
    let report = bench(stalling, "heartbeat --connections 1 --rate 100 --duration 500ms");
    assert_eq!(report["operations"], 50, "{report}");
    // Forty of fifty were to begin during the stall, evenly: the middle one of all waited for more than a hundred.
    assert!(report["latency_us"]["p50"].as_f64().unwrap() > 100_000.0, "{report}");
}

/// Where a client came from, and whether it ended by a reset.
fn witness(mut client: TcpStream) -> (IpAddr, bool) {
    let address = client.peer_addr().unwrap().ip();
    let was_reset = loop {
        match read(&mut client) {
            Ok(0) => break false,
            Ok(_) => drop(client.write_all(&acquired())),
            Err(_) => break true,
        }
    };
    (address, was_reset)
}

fn witnessed(line: &str) -> (BTreeSet<IpAddr>, BTreeSet<bool>) {
    let (server, seen) = stub(witness);
    let report = bench(server, line);
    let count = usize::try_from(report["operations"].as_u64().unwrap()).unwrap();
    (0..count).map(|_| seen.recv_timeout(PATIENCE).unwrap()).unzip()
}

#[test]
fn cycles_reset_their_connections_unless_told_otherwise() {
    let (addresses, resets) = witnessed("cycle --connections 2 --duration 100ms");
    assert_eq!(resets, BTreeSet::from([true]));
    assert_eq!(addresses, BTreeSet::from(["127.0.0.1".parse().unwrap()]), "one address has ports enough");
}

#[cfg(target_os = "linux")]
#[test]
fn cycles_that_keep_their_ports_come_from_many_addresses() {
    let (addresses, resets) = witnessed("cycle --connections 2 --rate 200 --duration 100ms --close orderly");
    assert_eq!(resets, BTreeSet::from([false]));
    assert_eq!(addresses.len(), 20, "each of twenty cycles has its own: {addresses:?}");
    assert!(addresses.iter().all(IpAddr::is_loopback), "{addresses:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn the_servers_processor_time_and_memory_are_told_when_asked_for() {
    let server = Server::start();
    let line = format!("heartbeat --connections 2 --duration 300ms --server-pid {}", server.process.pid);
    let taken = &bench(server.address, &line)["server_process"];
    for field in ["processor_s", "processor_us_per_operation", "resident_before_bytes", "resident_at_end_bytes"] {
        assert!(taken[field].as_f64().unwrap() > 0.0, "{field}: {taken}");
    }
    let ended = outcome(&mut command(server.address, "heartbeat --duration 1ms --server-pid 4194304"));
    assert_eq!(ended.status, 1);
    assert!(ended.stderr.starts_with("monolock: --server-pid 4194304: "), "{}", ended.stderr);
}

#[test]
fn people_get_words_and_no_progress_bar_where_nobody_looks() {
    let server = Server::start();
    let mut command = monolock(words("bench heartbeat --connections 2 --duration 100ms"));
    let Ended { status, stdout, stderr } = outcome(command.env("MONOLOCK_SERVER", server.address.to_string()));
    assert_eq!((status, stderr.as_str()), (0, ""));
    let beginnings =
        ["heartbeat at 127.0.0.1:", "operations  ", "failures    none", "latency     from the real beginning"];
    for (line, beginning) in stdout.lines().zip(beginnings) {
        assert!(line.starts_with(beginning), "{line:?}: {stdout}");
    }
    assert!(stdout.contains("  p99.99 "), "{stdout}");
    assert!(!stdout.contains('\u{1b}'), "{stdout}");
}

#[test]
fn what_cannot_be_done_is_said_in_one_sentence() {
    for (line, status, sentence) in [
        ("bench", 2, "SCENARIO is missing: see monolock bench --help"),
        ("bench storm --rate 5", 2, "--rate goes with cycle and heartbeat, and not with storm"),
        (
            "bench handover --connections 5 --locks 5",
            2,
            "handover needs a waiter: give it more --connections than --locks",
        ),
        ("bench cycle --connections 5 --locks 6", 2, "--locks is 6, but must be at most 5, which is --connections"),
        ("bench cycle --connections 1000001", 2, "--connections is 1000001, but must be at most 1000000"),
        (
            &format!("bench cycle --prefix {}", "p".repeat(241)),
            2,
            &format!("--prefix is {:?}, but must be at most 240 bytes long", "p".repeat(241)),
        ),
        ("bench cycle --threads 257", 2, "--threads is 257, but must be at most 256"),
        ("bench cycle --duration 25h", 2, "--duration is too long: 24h at most"),
        ("bench cycle --close politely", 2, r#"--close is "politely", but must be reset or orderly"#),
        (
            "bench idle --lease 10s --duration 10s",
            2,
            "--lease is not longer than --duration: idle sends no heartbeats, so its claims would end",
        ),
        ("bench cycle --tls-key key.pem", 2, "--tls-key needs --tls-ca"),
        (
            "bench cycle --tls-ca /nowhere/ca.pem --tls-cert c.pem",
            1,
            "--tls-ca /nowhere/ca.pem: I/O error: No such file or directory (os error 2)",
        ),
        (
            "bench cycle --server 127.0.0.1:1",
            1,
            "no server was reached at 127.0.0.1:1: Connection refused (os error 111); see that a server runs there, or name \
             another with --server or MONOLOCK_SERVER",
        ),
    ] {
        if cfg!(target_os = "linux") || !sentence.contains("os error") {
            assert_fails(&mut monolock(words(line)), status, sentence);
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn more_connections_than_descriptors_are_refused_before_anything_is_done() {
    let mut limited = std::process::Command::new("sh");
    let program = monolock([""; 0]).get_program().to_owned();
    limited.args(["-c", "ulimit -n 200; exec \"$0\" bench idle --connections 137"]).arg(program);
    let sentence = "--connections is 137, but this process may have 200 files open, which is enough for 136: raise the hard limit \
                    (ulimit -Hn), or run several processes";
    assert_fails(&mut limited, 1, sentence);
}

#[test]
fn tls_and_mutual_tls_are_spoken_and_a_handshake_that_fails_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    make_certificates(directory.path());
    let file = |name: &str| directory.path().join(name).display().to_string();
    let mut mutual = monolock(words("--listen 127.0.0.1:0"));
    mutual.args([
        "--tls-cert",
        &file("server.pem"),
        "--tls-key",
        &file("server.key"),
        "--tls-client-ca",
        &file("ca.pem"),
    ]);
    let server = Server::start_with(mutual);
    let authority = format!("--tls-ca {} --tls-server-name locks.example", file("ca.pem"));
    let shown = format!("{authority} --tls-cert {} --tls-key {}", file("client.pem"), file("client.key"));
    for line in ["cycle --connections 2 --duration 100ms", "heartbeat --connections 2 --rate 100 --duration 100ms"] {
        let report = bench(server.address, &format!("{line} --close orderly {shown}"));
        assert_eq!(report["tls"], "mutual");
        assert_eq!(report["failures"]["total"], 0, "{report}");
        assert!(report["operations"].as_u64().unwrap() > 0);
    }
    // The host of the address is not that of the certificate.
    let unnamed = shown.replace("--tls-server-name locks.example", "");
    let ended = outcome(&mut command(server.address, &format!("idle --connections 2 --duration 1ms {unnamed}")));
    assert_eq!(ended.stderr, "monolock: not one operation succeeded: TLS handshake failed\n", "{}", ended.stdout);
}
