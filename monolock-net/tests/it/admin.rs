//! The admin API. Each answer that any test gets is checked against `openapi.json`.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use std::{fs, io};

use jsonschema::Validator;
use monolock_net::{
    AdminAccess, AdminListen, AdminSettings, AuditFailure, AuditLog, AuditSink, Server, ServerBuilder, StartError,
};
use serde_json::{Value, json};

use crate::child::{ChildServer, no_child_begins};
use crate::client::{Client, Heard, LONG};
use crate::http::{self, Response, encoded, exchange};
use crate::server::{TestServer, crowd, eventually, own_address};

const CLOSED_BY_ADMINISTRATOR: (u8, &str) = (0x02, "closed by administrator");

pub(crate) fn local(listen: SocketAddr) -> AdminSettings {
    AdminSettings { listen: AdminListen::Tcp(listen), access: AdminAccess::Local }
}

fn start() -> TestServer {
    let address = own_address();
    TestServer::with(move |builder| builder.admin(local(address)))
}

pub(crate) static DESCRIPTION: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../src/openapi.json")).unwrap());

/// The path of the description that a target belongs to.
fn described_path(target: &str) -> Option<&'static str> {
    let path = target.split('?').next().unwrap();
    let segments: Vec<_> = path.split('/').collect();
    let is_of = |described: &str| {
        let described: Vec<_> = described.split('/').collect();
        described.len() == segments.len()
            && described.iter().zip(&segments).all(|(described, segment)| {
                if described.starts_with('{') { !segment.is_empty() } else { described == segment }
            })
    };
    DESCRIPTION["paths"].as_object().unwrap().keys().map(String::as_str).find(|described| is_of(described))
}

/// What the description says that an operation answers with a status.
fn schema(path: &str, method: &str, status: u16) -> &'static Value {
    let mut response = &DESCRIPTION["paths"][path][method.to_ascii_lowercase()]["responses"][status.to_string()];
    if let Some(reference) = response["$ref"].as_str() {
        response = DESCRIPTION.pointer(reference.strip_prefix('#').unwrap()).unwrap();
    }
    let schema = &response["content"]["application/json"]["schema"];
    assert!(schema.is_object(), "{method} {path} is not said to answer {status}");
    schema
}

pub(crate) fn validator(schema: &Value) -> Validator {
    let mut root = schema.clone();
    root["components"] = DESCRIPTION["components"].clone();
    jsonschema::options().should_validate_formats(true).build(&root).unwrap()
}

#[track_caller]
pub(crate) fn check(method: &str, target: &str, response: &Response) {
    assert!(response.header_names().all(|name| !name.starts_with("access-control-")), "{response:?}");
    let Some(path) = described_path(target) else {
        return assert!([400, 401, 403, 404].contains(&response.status), "{target} is not described: {response:?}");
    };
    if !DESCRIPTION["paths"][path][method.to_ascii_lowercase()].is_object() {
        return assert!([401, 403, 405].contains(&response.status), "{method} {path} is not described: {response:?}");
    }
    let validator = validator(schema(path, method, response.status));
    let errors: Vec<_> = validator.iter_errors(&response.json()).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{method} {target}: {errors:?} in {}", response.body);
}

/// One request, whose answer is as described.
#[track_caller]
fn request(server: &TestServer, method: &str, target: &str) -> (u16, Value) {
    let response = http::request(server.admin(), method, target);
    check(method, target, &response);
    (response.status, response.json())
}

#[track_caller]
fn get(server: &TestServer, target: &str) -> Value {
    let (status, body) = request(server, "GET", target);
    assert_eq!(status, 200, "{target}: {body}");
    body
}

/// What is wrong with a request, in one sentence.
#[track_caller]
fn refused(server: &TestServer, method: &str, target: &str, expected: u16) -> String {
    let (status, body) = request(server, method, target);
    assert_eq!(status, expected, "{target}: {body}");
    let error = body["error"].as_str().unwrap().to_owned();
    assert!(!error.is_empty() && !error.contains('\n'), "{error:?}");
    error
}

fn names(page: &Value) -> Vec<&str> {
    page["locks"].as_array().unwrap().iter().map(|lock| lock["name"].as_str().unwrap()).collect()
}

fn address_of(client: &Client) -> String {
    client.stream().local_addr().unwrap().to_string()
}

#[track_caller]
fn is_told(client: &mut Client) {
    client.error(CLOSED_BY_ADMINISTRATOR.0, CLOSED_BY_ADMINISTRATOR.1);
}

#[test]
fn info_shows_the_server_and_its_settings() {
    let directory = tempfile::tempdir().unwrap();
    let audit = directory.path().join("audit.log");
    let sink = AuditSink::File(audit.clone());
    let (admin, ops) = (own_address(), own_address());
    let server = TestServer::with(move |builder| {
        let audit = AuditLog { sink, on_failure: AuditFailure::Continue };
        builder.admin(local(admin)).ops(ops).audit_log(audit).start_grace(Duration::from_hours(1))
    });
    let _waits = server.waiter("jobs", LONG);
    let info = get(&server, "/api/info");
    assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
    assert!(info["start_grace_remaining_ms"].as_u64().unwrap() > 3_500_000);
    assert_eq!((&info["locks"], &info["sessions"]), (&json!(1), &json!(1)));
    let config = json!({
        "listen": server.address(), "ops_listen": server.ops(), "tls": false, "mtls": false, "acl_file": null,
        "audit_log": audit, "io_timeout_ms": 600_000,
    });
    assert_eq!(info["config"], config);
    assert_eq!(get(&server, "/api/locks/jobs")["holder"], Value::Null);
    refused(&server, "POST", "/api/locks/jobs/release", 404);

    let plain = start();
    let info = get(&plain, "/api/info");
    assert_eq!((&info["start_grace_remaining_ms"], &info["config"]["audit_log"]), (&json!(0), &Value::Null));
}

/// Each was told by the wall clock of its own moment, less the time that had passed: two clocks, read one after the other.
#[track_caller]
fn assert_same_instant(one: &Value, other: &Value) {
    let [one, other] = [one, other].map(|time| humantime::parse_rfc3339(time.as_str().unwrap()).unwrap());
    let apart = one.duration_since(other).unwrap_or_else(|error| error.duration());
    assert!(apart < Duration::from_mins(1), "{apart:?}");
}

#[test]
fn a_lock_is_shown_with_its_holder_and_its_queue_in_order() {
    let server = start();
    let (holder, token) = server.holder("nightly/import", LONG);
    let waiters = [server.waiter("nightly/import", LONG + 1), server.waiter("nightly/import", LONG + 2)];
    let lock = get(&server, "/api/locks/nightly%2Fimport");
    let listed = get(&server, "/api/locks");
    // What is left of a lease is less with each look.
    let lasting = |lock: &Value| {
        let mut lock = lock.clone();
        let mut begins = Vec::new();
        for (session, begin) in [("/holder", "since"), ("/waiters/0", "queued_at"), ("/waiters/1", "queued_at")] {
            let session = lock.pointer_mut(session).unwrap();
            let remaining = session["lease_remaining_ms"].take().as_u64().unwrap();
            assert!((u64::from(LONG) - 600_000..=u64::from(LONG) + 2).contains(&remaining), "{remaining}");
            begins.push(session[begin].take());
        }
        (lock, begins)
    };
    assert_eq!(listed["locks"].as_array().unwrap().len(), 1);
    let (lasting, listed) = (lasting(&lock), lasting(&listed["locks"][0]));
    assert_eq!(lasting.0, listed.0);
    for (one, other) in lasting.1.iter().zip(&listed.1) {
        assert_same_instant(one, other);
    }
    assert_eq!(lock["name"], "nightly/import");
    assert_eq!(lock["holder"]["token"], token);
    assert_eq!(lock["holder"]["lease_ms"], LONG);
    assert_eq!(lock["holder"]["identity"], "");
    assert_eq!(lock["holder"]["remote_addr"], address_of(&holder));
    for ((place, client), lease_ms) in waiters.iter().enumerate().zip([LONG + 1, LONG + 2]) {
        assert_eq!(lock["waiters"][place]["remote_addr"], address_of(client));
        assert_eq!(lock["waiters"][place]["lease_ms"], lease_ms);
    }
    drop((holder, waiters));
    eventually(|| http::get(server.admin(), "/api/locks/nightly%2Fimport").status == 404);
    refused(&server, "GET", "/api/locks/nightly%2Fimport", 404);
    assert_eq!(get(&server, "/api/locks"), json!({ "locks": [] }));
}

#[test]
fn b24_a_release_that_was_decided_from_an_older_listing_evicts_nobody() {
    let server = start();
    let (mut first, seen) = server.holder("jobs", LONG);
    let mut second = server.waiter("jobs", LONG);
    let mut third = server.waiter("jobs", LONG);
    let (status, ended) = request(&server, "POST", &format!("/api/locks/jobs/release?token={seen}"));
    assert_eq!((status, &ended["holder"]["token"]), (200, &json!(seen)));
    assert_eq!(ended["holder"]["remote_addr"], address_of(&first));
    is_told(&mut first);
    let present = second.acquired();
    let (status, conflict) = request(&server, "POST", &format!("/api/locks/jobs/release?token={seen}"));
    assert_eq!((status, &conflict["token"]), (409, &json!(present)));
    second.still_holds(present);
    assert_eq!(request(&server, "POST", "/api/locks/jobs/release").0, 200);
    is_told(&mut second);
    third.acquired();
    refused(&server, "POST", "/api/locks/idle/release", 404);
    for token in ["", "0", "-1", "+1", "1.0", "x", "18446744073709551616"] {
        let error = refused(&server, "POST", &format!("/api/locks/jobs/release?token={}", encoded(token)), 400);
        assert!(error.contains("token"), "{error}");
    }
}

#[test]
fn b25_a_kick_by_session_never_hits_another_that_has_its_address_now() {
    let server = start();
    let _holder = server.holder("jobs", LONG);
    // An address that no other test's client is given.
    let mut leaving = bound_to(own_address(), server.address());
    leaving.acquire("jobs", LONG);
    leaving.waiting();
    let address = leaving.stream().local_addr().unwrap();
    let seen = get(&server, "/api/locks/jobs")["waiters"][0]["session"].clone();
    leaving.reset();
    eventually(|| get(&server, "/api/locks/jobs")["waiters"] == json!([]));
    let mut other = bound_to(address, server.address());
    other.acquire("jobs", LONG);
    other.waiting();
    assert_eq!(get(&server, "/api/locks/jobs")["waiters"][0]["remote_addr"], address.to_string());
    refused(&server, "DELETE", &format!("/api/locks/jobs/waiters/{seen}"), 404);
    other.still_waits();
    let (status, kicked) = request(&server, "DELETE", &format!("/api/locks/jobs/waiters/{address}"));
    assert_eq!((status, &kicked["waiter"]["remote_addr"]), (200, &json!(address)));
    assert_ne!(kicked["waiter"]["session"], seen);
    is_told(&mut other);
}

/// A client at a given address of its own.
fn bound_to(own: SocketAddr, server: SocketAddr) -> Client {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&own.into()).unwrap();
    socket.connect(&server.into()).unwrap();
    Client::over(socket.into())
}

#[test]
fn a_waiter_is_kicked_by_its_session_and_nobody_else_is() {
    let server = start();
    let (mut holder, token) = server.holder("jobs", LONG);
    let mut waiters: Vec<_> = (0..3).map(|_| server.waiter("jobs", LONG)).collect();
    let lock = get(&server, "/api/locks/jobs");
    let session = &lock["waiters"][1]["session"];
    let target = format!("/api/locks/jobs/waiters/{session}");
    let kicked = request(&server, "DELETE", &target).1;
    assert_eq!(kicked["waiter"]["session"], *session);
    assert_same_instant(&kicked["waiter"]["queued_at"], &lock["waiters"][1]["queued_at"]);
    is_told(&mut waiters[1]);
    refused(&server, "DELETE", &target, 404);
    // A holder is no waiter.
    refused(&server, "DELETE", &format!("/api/locks/jobs/waiters/{}", lock["holder"]["session"]), 404);
    refused(&server, "DELETE", &format!("/api/locks/idle/waiters/{}", lock["waiters"][0]["session"]), 404);
    for nobody in ["x", "%20", "1.2.3.4", "[::1]", "-1", "%ff"] {
        refused(&server, "DELETE", &format!("/api/locks/jobs/waiters/{nobody}"), 400);
    }
    refused(&server, "DELETE", "/api/locks/jobs/waiters/%5B::1%5D:80", 404);
    holder.still_holds(token);
    waiters[0].still_waits();
    waiters[2].still_waits();
}

#[test]
fn b52_any_name_goes_there_and_back() {
    let long = "ä".repeat(127);
    let odd = [
        "nightly/import",
        "%2F",
        "%252F",
        "..",
        ".",
        "/",
        "//",
        "a/../b",
        "\0",
        "\n",
        "\r\n\r\n",
        "\u{1b}[31m",
        "\u{202e}txt",
        "\"",
        "\\",
        "?",
        "#",
        "&",
        "=",
        "+",
        " ",
        "release",
        "waiters",
        "{name}",
        "e\u{301}",
        "\u{e9}",
        "😀",
        "\u{feff}",
        "A",
        "a",
        &long,
    ];
    let server = start();
    let mut clients: Vec<_> = odd.iter().map(|name| server.holder(name, LONG)).collect();
    let mut sorted = odd.to_vec();
    sorted.sort_unstable();
    assert_eq!(names(&get(&server, "/api/locks")), sorted);
    for (name, (client, token)) in odd.iter().zip(&mut clients) {
        let path = format!("/api/locks/{}", encoded(name));
        let lock = get(&server, &path);
        assert_eq!((&lock["name"], &lock["holder"]["token"]), (&json!(name), &json!(*token)));
        let literal: String = name.chars().map(|c| if "*?".contains(c) { '?' } else { c }).collect();
        assert!(names(&get(&server, &format!("/api/locks?match={}", encoded(&literal)))).contains(name));
        let (status, ended) = request(&server, "POST", &format!("{path}/release?token={token}"));
        assert_eq!((status, &ended["name"]), (200, &json!(name)));
        is_told(client);
    }
    for broken in ["%", "%2", "%zz", "%ff", "%c3%28", "%ed%a0%80", &"a".repeat(256)] {
        refused(&server, "GET", &format!("/api/locks/{broken}"), 400);
        refused(&server, "POST", &format!("/api/locks/{broken}/release"), 400);
    }
}

/// Tells a thread to end, on whatever path a test is left.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn pages_show_each_lock_that_is_there_all_the_time_once() {
    const STAYING: usize = 300;
    let server = start();
    let staying: Vec<_> = (0..STAYING).map(|number| server.holder(format!("stay/{number:04}"), LONG)).collect();
    let is_over = AtomicBool::new(false);
    thread::scope(|threads| {
        threads.spawn(|| {
            let mut number = 0;
            while !is_over.load(Ordering::Relaxed) {
                server.holder(format!("stay/{:04}-{}", number * 37 % STAYING, number), LONG).0.reset();
                number += 1;
            }
        });
        let over = Over(&is_over);
        let mut seen: HashMap<String, usize> = HashMap::new();
        let mut target = "/api/locks?match=stay/*&limit=7".to_owned();
        for pages in 0.. {
            assert!(pages < STAYING, "the last page is not said to be the last");
            let page = get(&server, &target);
            let names = names(&page);
            assert!(names.len() <= 7 && names.is_sorted());
            for name in names {
                *seen.entry(name.to_owned()).or_default() += 1;
            }
            let Some(next) = page["next"].as_str() else { break };
            target = format!("/api/locks?match=stay/*&limit=7&after={}", encoded(next));
        }
        drop(over);
        assert!(seen.values().all(|times| *times == 1));
        assert!((0..STAYING).all(|number| seen.contains_key(&format!("stay/{number:04}"))));
    });
    drop(staying);
}

#[test]
fn a_page_is_the_last_exactly_when_nothing_follows() {
    let server = start();
    let clients: Vec<_> = (0..4).map(|number| server.holder(format!("{number}"), LONG)).collect();
    assert_eq!(get(&server, "/api/locks?limit=4")["next"], Value::Null);
    let page = get(&server, "/api/locks?limit=3");
    assert_eq!((names(&page), &page["next"]), (vec!["0", "1", "2"], &json!("2")));
    assert_eq!(names(&get(&server, "/api/locks?limit=3&after=2")), ["3"]);
    assert_eq!(names(&get(&server, "/api/locks?after=no%20name%20of%20a%20lock")), [""; 0]);
    drop(clients);
}

#[test]
fn fifteen_thousand_locks_are_listed_while_heartbeats_go_on() {
    const LOCKS: usize = 15_000;
    const MANY: u64 = 10;
    // The server's ends of the connections are in another process.
    let name = "admin::fifteen_thousand_locks_are_listed_while_heartbeats_go_on";
    let Some(server) = ChildServer::of_test(name, LOCKS + 500) else { return };
    let _alone = crowd(LOCKS / 2);
    let claim = |name: String| {
        let mut client = Client::connect(server.locks);
        client.acquire(name, LONG);
        client
    };
    let mut clients: Vec<_> = (0..LOCKS).map(|number| claim(format!("lock/{number:05}"))).collect();
    for client in &mut clients {
        client.acquired();
    }
    let mut beating = claim("beating".to_owned());
    let token = beating.acquired();
    let (is_over, beats) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|threads| {
        threads.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                beating.still_holds(token);
                beats.fetch_add(1, Ordering::Relaxed);
            }
        });
        let _over = Over(&is_over);
        let list = |query: &str| {
            let target = format!("/api/locks?limit=10000{query}");
            let response = http::get(server.admin, &target);
            check("GET", &target, &response);
            response.json()
        };
        let first = list("");
        let second = list(&format!("&after={}", encoded(first["next"].as_str().unwrap())));
        assert_eq!((names(&first).len(), names(&second).len()), (10_000, 5_001));
        assert_eq!(names(&list("&match=*4999")), ["lock/04999", "lock/14999"]);
        // How many are answered while one listing is made is the machine's affair; a listing that held them up would
        // never see so many.
        let during = || {
            let before = beats.load(Ordering::Relaxed);
            http::get(server.admin, "/api/locks?limit=10000");
            beats.load(Ordering::Relaxed) - before
        };
        let mut most = 0;
        eventually(|| {
            most = most.max(during());
            most >= MANY
        });
        assert!(most >= MANY, "{most}");
    });
    clients.into_iter().for_each(Client::reset);
}

#[test]
fn b56_a_foreign_host_is_refused_before_routing() {
    let server = start();
    let send = |target: &str, headers: &str| {
        let response = exchange(http::connect(server.admin()), &format!("GET {target} HTTP/1.1\r\n{headers}\r\n"));
        check("GET", target, &response);
        response.status
    };
    let port = server.admin().port();
    for host in ["localhost", "127.0.0.1", "[::1]", "LOCALHOST"] {
        assert_eq!(send("/api/info", &format!("Host: {host}\r\n")), 200);
        assert_eq!(send("/api/info", &format!("Host: {host}:{port}\r\n")), 200);
    }
    for headers in ["Host: evil.example\r\n", "Host: localhost.evil.example:7072\r\n", "Host: \r\n", ""] {
        assert_eq!(send("/api/info", headers), 403, "{headers}");
        assert_eq!(send("/api/nothing", headers), 403, "{headers}");
    }
    assert_eq!(send("/api/info", "Host: localhost\r\nHost: evil.example\r\n"), 403);
    let absolute = "GET http://evil.example/api/info HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_eq!(exchange(http::connect(server.admin()), absolute).status, 403);
}

#[test]
fn b57_a_form_of_another_site_does_nothing_and_no_answer_is_for_other_sites() {
    let server = start();
    let (mut holder, token) = server.holder("jobs", LONG);
    let form = "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 3\r\n";
    for foreign in ["Origin: http://evil.example\r\n", "Origin: null\r\n", "Sec-Fetch-Site: cross-site\r\n"] {
        let request = format!("POST /api/locks/jobs/release HTTP/1.1\r\nHost: localhost\r\n{foreign}{form}\r\na=b");
        assert_eq!(exchange(http::connect(server.admin()), &request).status, 403, "{foreign}");
    }
    // A body is never heeded, so it is never taken.
    let body = "POST /api/locks/jobs/release HTTP/1.1\r\nHost: localhost\r\nContent-Length: 11\r\n\r\n{\"token\":1}";
    assert_eq!(exchange(http::connect(server.admin()), body).status, 400);
    holder.still_holds(token);
    let preflight = "Origin: http://evil.example\r\nAccess-Control-Request-Method: POST\r\n";
    let response = http::request_with(server.admin(), "OPTIONS", "/api/locks/jobs/release", preflight);
    check("OPTIONS", "/api/locks/jobs/release", &response);
    assert_eq!(response.status, 403);
    let own = format!("Origin: http://{}\r\nSec-Fetch-Site: same-origin\r\n", server.admin());
    assert_eq!(http::request_with(server.admin(), "POST", "/api/locks/jobs/release", &own).status, 200);
}

#[test]
fn what_is_served_is_what_is_described() {
    let server = start();
    assert_eq!(get(&server, "/api/openapi.json"), *DESCRIPTION);
    for (path, item) in DESCRIPTION["paths"].as_object().unwrap() {
        let target = path.replace("{name}", "jobs").replace("{waiter}", "1");
        for method in ["GET", "PUT", "POST", "DELETE", "OPTIONS", "PATCH", "TRACE"] {
            if (method, path.as_str()) == ("GET", "/api/events") {
                // It does not end; `events.rs` checks it.
                continue;
            }
            let response = http::request(server.admin(), method, &target);
            check(method, &target, &response);
            let is_known = item[method.to_ascii_lowercase()].is_object();
            assert_eq!(response.status == 405, !is_known, "{method} {target}: {response:?}");
            let allowed = response.header("allow").unwrap_or_default().split(',').filter(|allowed| *allowed != "HEAD");
            if response.status == 405 {
                assert!(allowed.clone().count() > 0, "{method} {target}: {response:?}");
                assert!(allowed.clone().all(|allowed| item[allowed.to_ascii_lowercase()].is_object()));
                assert!(response.json()["error"].is_string());
            }
        }
    }
    for nowhere in ["//", "/api", "/api/", "/api/info/", "/api/locks/", "/api/locks/a/b", "/API/info"] {
        refused(&server, "GET", nowhere, 404);
    }
    assert_eq!(http::request(server.admin(), "POST", "/api/locks//release").status, 400);
    // Each schema says no to something, or it would say nothing.
    for schema in DESCRIPTION["components"]["schemas"].as_object().unwrap().values() {
        assert!(!validator(schema).is_valid(&json!({ "unknown": 1 })), "{schema}");
    }
}

#[test]
fn a_query_that_is_not_understood_is_refused_by_name() {
    let server = start();
    for (query, name) in [
        ("limit=0", "limit"),
        ("limit=10001", "limit"),
        ("limit=x", "limit"),
        ("limit=", "limit"),
        ("limit=-1", "limit"),
        ("mach=a", "mach"),
        ("match=a&match=b", "match"),
        ("match=%f", "match"),
        ("after=%ff", "after"),
        ("token=1", "token"),
    ] {
        let error = refused(&server, "GET", &format!("/api/locks?{query}"), 400);
        assert!(error.contains(name), "{query}: {error}");
    }
    let long = format!("/api/locks?match={}", "*".repeat(1025));
    assert!(refused(&server, "GET", &long, 400).contains("match"));
    refused(&server, "GET", "/api/info?a", 400);
    refused(&server, "GET", "/api/locks/jobs?a=b", 400);
    refused(&server, "POST", "/api/locks/jobs/release?tokn=1", 400);
    refused(&server, "DELETE", "/api/locks/jobs/waiters/1?token=1", 400);
}

#[test]
fn b59_tokens_are_numbers_that_javascript_reads_exactly() {
    let server = start();
    let (_holder, token) = server.holder("jobs", LONG);
    assert!(token < 1 << 53);
    let text = http::get(server.admin(), "/api/locks/jobs").body;
    assert!(text.contains(&format!("\"token\":{token},")), "{text}");
}

/// What keeps a server from its start.
fn start_error(set_up: impl FnOnce(ServerBuilder) -> ServerBuilder) -> StartError {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { set_up(Server::builder().listen(own_address())).bind().unwrap_err() })
}

#[test]
fn b58_an_address_that_others_reach_needs_a_token_or_a_word() {
    let everywhere = SocketAddr::from(([0, 0, 0, 0], 0));
    let settings = move |access| AdminSettings { listen: AdminListen::Tcp(everywhere), access };
    for address in ["0.0.0.0:0", "[::]:0", "10.0.0.1:0", "[::ffff:10.0.0.1]:0"] {
        let error = start_error(|builder| builder.admin(local(address.parse().unwrap())));
        assert!(matches!(error, StartError::OpenAdmin(open) if open.to_string() == address), "{error:?}");
    }
    let insecure = TestServer::with(move |builder| builder.admin(settings(AdminAccess::Insecure)));
    let here = SocketAddr::from(([127, 0, 0, 1], insecure.admin().port()));
    let response = exchange(http::connect(here), "GET /api/info HTTP/1.1\r\nHost: any.example\r\n\r\n");
    assert_eq!(response.status, 200);

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    fs::write(&file, "  s3cret-Token==\n").unwrap();
    let server = TestServer::with(move |builder| builder.admin(settings(AdminAccess::Token(file))));
    let here = SocketAddr::from(([127, 0, 0, 1], server.admin().port()));
    for right in ["Bearer s3cret-Token==", "bearer s3cret-Token=="] {
        let headers = format!("Authorization: {right}\r\n");
        assert_eq!(http::request_with(here, "GET", "/api/info", &headers).status, 200, "{right}");
    }
    for wrong in [
        "",
        "Bearer",
        "Bearer ",
        "Bearer s3cret-Token=",
        "Bearer S3cret-Token==",
        "Basic s3cret-Token==",
        "s3cret-Token==",
    ] {
        for target in ["/api/info", "/api/openapi.json", "/api/nothing", "/api/locks/jobs"] {
            let response = http::request_with(here, "GET", target, &format!("Authorization: {wrong}\r\n"));
            check("GET", target, &response);
            assert_eq!(
                (response.status, response.header("www-authenticate")),
                (401, Some("Bearer realm=\"monolock\""))
            );
        }
    }
}

#[test]
fn a_token_that_nobody_could_show_is_refused_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    let error = || {
        let access = AdminAccess::Token(file.clone());
        start_error(|builder| builder.admin(AdminSettings { listen: AdminListen::Tcp(own_address()), access }))
            .to_string()
    };
    assert!(error().contains(file.to_str().unwrap()));
    for token in [&b""[..], b" \n", b"two words", b"line\nline", b"\xff", "t\u{f6}ken".as_bytes()] {
        fs::write(&file, token).unwrap();
        assert!(error().contains(file.to_str().unwrap()), "{token:?}");
    }
}

fn unix(path: &Path) -> AdminSettings {
    AdminSettings { listen: AdminListen::Unix(path.to_owned()), access: AdminAccess::Local }
}

fn start_at(path: &Path) -> TestServer {
    let settings = unix(path);
    TestServer::with(move |builder| builder.admin(settings))
}

fn info_at(path: &Path) -> io::Result<u16> {
    let stream = UnixStream::connect(path)?;
    Ok(exchange(stream, "GET /api/info HTTP/1.1\r\nHost: any.example\r\n\r\n").status)
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_unix_socket_is_its_owners_alone_and_goes_with_its_server() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("admin.sock");
    let server = start_at(&path);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(info_at(&path).unwrap(), 200);
    assert_eq!(entries(directory.path()), std::slice::from_ref(&path));

    let error = start_error(|builder| builder.admin(unix(&path)));
    assert!(matches!(&error, StartError::Admin(_, error) if error.kind() == io::ErrorKind::AddrInUse), "{error:?}");
    assert_eq!(info_at(&path).unwrap(), 200);
    server.stop();
    assert!(entries(directory.path()).is_empty());
}

#[test]
fn a_socket_that_nobody_listens_on_is_replaced_and_nothing_else_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("admin.sock");
    let guard = no_child_begins();
    drop(UnixListener::bind(&path).unwrap());
    assert!(fs::symlink_metadata(&path).unwrap().file_type().is_socket());
    let server = start_at(&path);
    drop(guard);
    assert_eq!(info_at(&path).unwrap(), 200);
    // What has taken its place by the end is not its own to remove.
    fs::remove_file(&path).unwrap();
    fs::write(&path, "precious").unwrap();
    server.stop();
    let error = start_error(|builder| builder.admin(unix(&path)));
    assert!(matches!(&error, StartError::Admin(_, error) if error.kind() == io::ErrorKind::AlreadyExists), "{error:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    assert_eq!(entries(directory.path()), [path]);
}

#[test]
fn clients_that_say_nothing_cost_the_locks_nothing() {
    let server = start();
    let mute: Vec<_> = (0..200).map(|_| http::connect(server.admin())).collect();
    let (mut holder, _) = server.holder("jobs", LONG);
    let mut next = server.waiter("jobs", LONG);
    holder.send(&[0xff]);
    assert!(matches!(holder.hear(), Heard::Error(0x13, _)));
    next.acquired();
    drop(mute);
    assert_eq!(names(&get(&server, "/api/locks")), ["jobs"]);
}

#[test]
fn an_endless_head_is_refused() {
    let server = start();
    let request = format!("GET /api/info HTTP/1.1\r\nHost: localhost\r\nX-Long: {}\r\n\r\n", "a".repeat(1 << 15));
    assert_eq!(exchange(http::connect(server.admin()), &request).status, 431);
}
