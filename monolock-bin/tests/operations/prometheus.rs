//! The metrics, as Prometheus and its linter see them.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{PATIENCE, Process, Watched, http_get, until, words};

/// A server that has something to show.
fn watched() -> Watched {
    let watched = Watched::start(words("--max-sessions 3 --max-lease 1m"));
    let server = &watched.server;
    drop(server.hold("before"));
    let mut refused = server.connect();
    refused.acquire("jobs", 60_001);
    assert_eq!(refused.frame(), crate::support::Frame::Error(0x19));
    watched
}

#[test]
fn promtool_finds_nothing_to_complain_about() {
    let watched = watched();
    let _holder = watched.server.hold("jobs");
    let _waiter = watched.server.queue("jobs");
    let page = http_get(watched.ops, "/metrics");
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = promtool.spawn().unwrap();
    promtool.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success() && said.is_empty(), "{said}\n{page}");
}

/// A running Prometheus that scrapes the server.
struct Prometheus {
    _process: Process,
    address: SocketAddr,
}

impl Prometheus {
    fn start(directory: &Path, target: SocketAddr) -> Self {
        const READY: &str = "Server is ready to receive web requests";

        let config = directory.join("prometheus.yml");
        let text = format!(
            "global:\n  scrape_interval: 100ms\n  scrape_timeout: 100ms\nscrape_configs:\n  - job_name: monolock\n    scrape_interval: 200ms\n    static_configs:\n      - targets: ['{target}']\n"
        );
        fs::write(&config, text).unwrap();
        // It cannot say which port it took, so it is given one that was free; one that was taken meanwhile is tried
        // again with another.
        loop {
            let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let mut command = Command::new("prometheus");
            command.arg(format!("--config.file={}", config.display()));
            command.arg(format!("--storage.tsdb.path={}", directory.join("data").display()));
            command.arg(format!("--web.listen-address={address}"));
            let process = Process::start(&mut command);
            if process.stderr_line_of(&[READY, "address already in use"]).contains(READY) {
                return Self { _process: process, address };
            }
        }
    }

    /// The value of a query now, if there is one.
    fn query(&self, expression: &str) -> Option<f64> {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET /api/v1/query?query={expression} HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["status"], "success", "{body}");
        body["data"]["result"][0]["value"][1].as_str()?.parse().ok()
    }
}

#[test]
fn a_prometheus_scrapes_it() {
    let directory = tempfile::tempdir().unwrap();
    let watched = watched();
    let prometheus = Prometheus::start(directory.path(), watched.ops);
    let _holder = watched.server.hold("jobs");
    let _waiter = watched.server.queue("jobs");
    for (expression, value) in [
        ("up", 1.0),
        ("monolock_waiters", 1.0),
        ("monolock_locks_held", 1.0),
        ("monolock_acquires_total", 3.0),
        ("monolock_protocol_errors_total%7Bcode=%220x19%22%7D", 1.0),
        ("monolock_releases_total%7Breason=%22graceful%22%7D", 1.0),
        ("monolock_hold_seconds_count", 1.0),
        ("count(process_resident_memory_bytes)", 1.0),
        ("sum(monolock_build_info)", 1.0),
    ] {
        until(
            || prometheus.query(expression).is_some_and(|found| (found - value).abs() < 0.01),
            || format!("{expression} is {:?}", prometheus.query(expression)),
        );
    }
}
