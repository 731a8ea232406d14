//! Health and metrics.
#![expect(clippy::float_cmp, reason = "what is counted is whole")]

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::child::{ChildServer, no_child_begins};
use crate::client::{Client, LONG, PATIENCE};
use crate::http::{self, get};
use crate::server::{TestServer, crowd, dice, eventually, own_address};

fn start() -> TestServer {
    let address = own_address();
    TestServer::with(move |builder| builder.ops(address))
}

/// The text of a scrape, and its samples by name and labels.
pub(crate) fn scrape(address: std::net::SocketAddr) -> (String, BTreeMap<String, f64>) {
    let response = get(address, "/metrics");
    assert_eq!(response.status, 200);
    assert_eq!(response.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let samples = response.body.lines().filter(|line| !line.starts_with('#'));
    let samples = samples.map(|line| line.rsplit_once(' ').unwrap());
    let samples = samples.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect();
    (response.body, samples)
}

#[test]
fn a_server_is_healthy_and_ready_until_its_stop_begins_and_says_so_to_the_end_of_it() {
    // A client that does not close holds the stop up for a moment, which does not pass by itself.
    let address = own_address();
    let server = TestServer::with_time_on_demand_and(PATIENCE, move |builder| builder.ops(address));
    let is_at = |path: &str| (get(server.ops(), path).status, get(server.ops(), path).body);
    for path in ["/healthz", "/readyz"] {
        assert_eq!(is_at(path), (200, "ok".to_owned()));
    }
    assert_eq!(http::request(server.ops(), "POST", "/readyz").status, 405);
    assert_eq!(get(server.ops(), "/ready").status, 404);
    let (mut holder, _) = server.holder("jobs", LONG);
    let _guard = no_child_begins();
    server.handle().shutdown();
    holder.error(0x01, "server shutting down");
    assert_eq!(TcpStream::connect(server.address()).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    for path in ["/healthz", "/readyz"] {
        assert_eq!(is_at(path).0, 503);
    }
    assert_eq!(scrape(server.ops()).1["monolock_locks_held"], 0.0);
    let ops = server.ops();
    drop(holder);
    server.stop();
    assert!(TcpStream::connect(ops).is_err());
}

#[test]
fn a_stop_waits_for_no_client_of_http() {
    let server = start();
    let mute: Vec<_> = (0..40).map(|_| http::connect(server.ops())).collect();
    let mut halfway = http::connect(server.ops());
    halfway.write_all(b"GET /metrics HTTP/1.1\r\nHost:").unwrap();
    let begin = Instant::now();
    let stopped = server.stop();
    let took = stopped.returned - begin;
    // Each may take ten seconds for its request.
    assert!(took < Duration::from_secs(9), "{took:?}");
    drop((mute, halfway));
}

#[test]
fn every_metric_and_every_label_value_is_there_from_the_start() {
    let server = start();
    let (text, samples) = scrape(server.ops());
    let zero = [
        "monolock_connections_active",
        "monolock_locks_held",
        "monolock_waiters",
        "monolock_longest_wait_seconds",
        "monolock_longest_hold_seconds",
        "monolock_start_grace_seconds",
        "monolock_acquires_total",
        "monolock_acl_denials_total",
        "monolock_connections_accepted_total",
        "monolock_accept_errors_total",
        "monolock_tls_handshake_errors_total",
        "monolock_heartbeats_total",
        "monolock_audit_dropped_total",
        "monolock_limit_refusals_total",
        "monolock_token_file_errors_total",
        "monolock_event_readers",
        "monolock_event_readers_dropped_total",
        "monolock_events_dropped_total",
        "monolock_wait_seconds_sum",
        "monolock_wait_seconds_count",
        "monolock_hold_seconds_sum",
        "monolock_hold_seconds_count",
    ];
    let reasons = ["graceful", "expired", "io_timeout", "force", "protocol_error", "shutdown"];
    let codes = ["0x10", "0x11", "0x12", "0x13", "0x14", "0x15", "0x16", "0x17", "0x19"];
    let labelled = reasons
        .map(|reason| format!("monolock_releases_total{{reason=\"{reason}\"}}"))
        .into_iter()
        .chain(codes.map(|code| format!("monolock_protocol_errors_total{{code=\"{code}\"}}")))
        .chain(["success", "failure"].map(|result| format!("monolock_reloads_total{{result=\"{result}\"}}")));
    for name in zero.map(str::to_owned).into_iter().chain(labelled) {
        assert_eq!(samples.get(&name), Some(&0.0), "{name} in {text}");
    }
    assert_eq!(samples[&format!("monolock_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"))], 1.0);
}

#[test]
fn gauges_and_counters_follow_what_happens() {
    let server = start();
    let begin = Instant::now();
    let (mut holder, token) = server.holder("jobs", LONG);
    let (_other, _) = server.holder("other", LONG);
    let mut waiter = server.waiter("jobs", LONG);
    let _second = server.waiter("jobs", LONG);
    holder.still_holds(token);
    let (_, samples) = scrape(server.ops());
    let longest = begin.elapsed().as_secs_f64();
    assert_eq!(samples["monolock_locks_held"], 2.0);
    assert_eq!(samples["monolock_waiters"], 2.0);
    assert_eq!(samples["monolock_connections_active"], 4.0);
    assert_eq!(samples["monolock_connections_accepted_total"], 4.0);
    assert_eq!(samples["monolock_acquires_total"], 4.0);
    assert_eq!(samples["monolock_heartbeats_total"], 1.0);
    assert_eq!(samples["monolock_wait_seconds_count"], 2.0);
    let (wait, hold) = (samples["monolock_longest_wait_seconds"], samples["monolock_longest_hold_seconds"]);
    assert!(0.0 < wait && wait < hold && hold < longest, "{wait} {hold} {longest}");
    holder.send(&[0xff]);
    waiter.acquired();
    let (_, samples) = scrape(server.ops());
    assert_eq!(samples["monolock_waiters"], 1.0);
    assert_eq!(samples["monolock_protocol_errors_total{code=\"0x13\"}"], 1.0);
    assert_eq!(samples["monolock_releases_total{reason=\"protocol_error\"}"], 1.0);
    assert_eq!(samples["monolock_hold_seconds_count"], 1.0);
    assert!(samples["monolock_hold_seconds_sum"] > 0.0);
    assert_eq!(samples["monolock_wait_seconds_count"], 3.0);
}

#[test]
fn in_the_grace_after_the_start_all_wait_and_nobody_holds() {
    let address = own_address();
    let server = TestServer::with(move |builder| builder.ops(address).start_grace(Duration::from_hours(1)));
    let _first = server.waiter("jobs", LONG);
    let _second = server.waiter("jobs", LONG);
    let (_, samples) = scrape(server.ops());
    assert_eq!((samples["monolock_locks_held"], samples["monolock_waiters"]), (0.0, 2.0));
    let grace = samples["monolock_start_grace_seconds"];
    assert!(3500.0 < grace && grace < 3600.0, "{grace}");
}

#[test]
#[cfg(target_os = "linux")]
fn the_process_is_measured_as_everywhere() {
    let server = start();
    let (_, samples) = scrape(server.ops());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let start = samples["process_start_time_seconds"];
    assert!((now - 3600.0..now + 2.0).contains(&start), "{start} {now}");
    let open = samples["process_open_fds"];
    assert!(3.0 < open && open < samples["process_max_fds"]);
    assert!(samples["process_cpu_seconds_total"] > 0.0);
    let (resident, virtual_memory) =
        (samples["process_resident_memory_bytes"], samples["process_virtual_memory_bytes"]);
    assert!(100_000.0 < resident && resident < virtual_memory);
}

#[test]
fn b55_no_name_of_a_lock_is_in_the_metrics() {
    const LOCKS: u16 = 10_000;
    const ODD: [&str; 6] = ["\n", "\"", "{reason=\"", "\\", "\0", "\u{202e}"];
    // The server's ends of the connections are in another process.
    let name = "ops::b55_no_name_of_a_lock_is_in_the_metrics";
    let Some(server) = ChildServer::of_test(name, usize::from(LOCKS) + 500) else { return };
    let _alone = crowd(usize::from(LOCKS) / 2);
    let mut dice = dice();
    let (empty, _) = scrape(server.ops);
    let mut clients: Vec<_> = (0..LOCKS)
        .map(|number| {
            let mut client = Client::connect(server.locks);
            client.acquire(format!("needle{}{number}{}", dice.choice(ODD).unwrap(), dice.choice(ODD).unwrap()), LONG);
            client
        })
        .collect();
    for client in &mut clients {
        client.acquired();
    }
    let (full, samples) = scrape(server.ops);
    assert!((samples["monolock_locks_held"] - f64::from(LOCKS)).abs() < 0.5);
    assert!(!full.contains("needle"));
    assert_eq!(full.lines().count(), empty.lines().count());
    clients.into_iter().for_each(Client::reset);
}

#[test]
fn b41_a_server_without_descriptors_holds_its_locks_answers_and_accepts_again() {
    const CLIENTS: usize = 200;
    let name = "ops::b41_a_server_without_descriptors_holds_its_locks_answers_and_accepts_again";
    let Some(mut server) = ChildServer::of_test(name, 64) else { return };
    let mut holder = Client::connect(server.locks);
    holder.acquire("jobs", LONG);
    let token = holder.acquired();
    // The kernel takes them all; the server has room for some.
    let mut crowd: Vec<_> = (0..CLIENTS).map(|_| Client::connect(server.locks)).collect();
    for (number, client) in crowd.iter_mut().enumerate() {
        client.acquire(format!("crowd/{number}"), LONG);
    }
    eventually(|| scrape(server.ops).1["monolock_accept_errors_total"] > 0.0);
    let is_settled =
        |samples: &BTreeMap<String, f64>| samples["monolock_locks_held"] == samples["monolock_connections_active"];
    let mut samples = BTreeMap::new();
    eventually(|| {
        samples = scrape(server.ops).1;
        is_settled(&samples)
    });
    assert!(is_settled(&samples) && (20.0..64.0).contains(&samples["monolock_locks_held"]), "{samples:?}");
    // A quarter is reserved, and all that is open of it now serves the scrape, but for one connection.
    assert!(samples.get("process_open_fds").is_none_or(|open| *open < 56.0), "{samples:?}");
    for target in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(get(server.ops, target).status, 200);
    }
    assert_eq!(get(server.admin, "/api/locks").status, 200);
    holder.still_holds(token);
    // It does not spin.
    let errors = || scrape(server.ops).1["monolock_accept_errors_total"];
    let (before, begin) = (errors(), Instant::now());
    thread::sleep(Duration::from_secs(1));
    let a_second = (errors() - before) / begin.elapsed().as_secs_f64();
    assert!(a_second < 20.0, "{a_second}");
    // Some leave, the others get in, and in the end everybody was served.
    for mut client in crowd {
        client.acquired();
        client.reset();
    }
    let mut last = Client::connect(server.locks);
    last.acquire("last", LONG);
    last.acquired();
    holder.still_holds(token);
    assert!(server.is_running());
    let begin = Instant::now();
    eventually(|| scrape(server.ops).1["monolock_locks_held"] == 2.0);
    assert!(begin.elapsed() < PATIENCE);
}
