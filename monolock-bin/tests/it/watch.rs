//! `monolock watch`: what happens, in its order, and what was missed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::operator::{Administered, asking};
use crate::support::{Nobody, PATIENCE, Process, assert_fails, http_get, logged_address, outcome, until};

/// A server, and its metrics.
fn observed() -> (Administered, SocketAddr) {
    let administered = Administered::start_with("--ops-listen 127.0.0.1:0");
    let ops = logged_address(&administered.server.process.stderr_line("serving the ops endpoints"));
    (administered, ops)
}

/// Waits until so many follow the events.
fn expect_readers(ops: SocketAddr, number: usize) {
    let line = format!("monolock_event_readers {number}");
    let is_so = || http_get(ops, "/metrics").lines().any(|metric| metric == line);
    until(is_so, || format!("{number} readers were expected"));
}

#[test]
fn a_handover_is_told_as_it_happens_for_people_and_for_programs() {
    let (administered, ops) = observed();
    let text = Process::start(&mut administered.monolock("watch nightly/*"));
    let json = Process::start(&mut administered.monolock("watch --json"));
    expect_readers(ops, 2);
    let server = &administered.server;
    let _other = server.hold("other");
    let mut first = server.connect();
    first.acquire("nightly/import", 60_000);
    let first_token = first.expect_acquired();
    let mut second = server.queue("nightly/import");
    let first_address = first.stream.local_addr().unwrap();
    let second_address = second.stream.local_addr().unwrap();
    let third = server.queue("nightly/import");
    drop(third);
    // The third has gone before the first goes.
    let lines = |process: &Process, number: usize| (0..number).map(|_| process.line()).collect::<Vec<_>>();
    let mut told = lines(&text, 4);
    drop(first);
    let second_token = second.expect_acquired();
    told.extend(lines(&text, 2));

    let outline: Vec<String> = told.iter().map(|line| line.split_whitespace().nth(1).unwrap().to_owned()).collect();
    assert_eq!(outline, ["granted", "queued", "queued", "waiter_gone", "released", "granted"]);
    assert!(told.iter().all(|line| line.split("  ").nth(2) != Some("other") && line.contains("  nightly/import  ")));
    let granted = format!("  granted      nightly/import  {first_address} (session ");
    assert!(told[0].contains(&granted) && told[0].contains(&format!("  token {first_token}, waited ")), "{}", told[0]);
    assert!(
        told[1].contains(&format!("  {second_address} (session ")) && told[1].ends_with("  1 ahead"),
        "{}",
        told[1]
    );
    assert!(
        told[4].contains(&format!("  token {first_token}, held ")) && told[4].ends_with(", graceful"),
        "{}",
        told[4]
    );
    assert!(told[5].contains(&format!("  token {second_token}, waited ")), "{}", told[5]);

    let events: Vec<Value> = lines(&json, 7).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events[0]["lock"], "other");
    assert_eq!((&events[6]["event"], &events[6]["token"]), (&json!("granted"), &json!(second_token)));
}

/// A server of which the test says each stream of events; it tells what each reader said that it had read.
fn streams(streams: Vec<&'static str>) -> (SocketAddr, Receiver<Option<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for (mut stream, text) in listener.incoming().map_while(Result::ok).zip(streams) {
            let head = BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
            let last = head.filter_map(|line| line.strip_prefix("last-event-id: ").map(str::to_owned)).last();
            let _ = sender.send(last);
            let _ =
                write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{text}");
        }
    });
    (address, receiver)
}

#[test]
fn it_comes_back_to_where_it_was_and_says_what_was_missed() {
    const HELLO: &str = "id: a-1\nevent: hello\ndata: {\"event\":\"hello\",\"keep_alive_ms\":15000}\n\n";
    let queued = "id: a-2\nevent: queued\ndata: {\"time\":\"2026-11-29T16:21:58.676Z\",\"event\":\"queued\",\"lock\":\"a\\nb\",\
                  \"session\":7,\"identity\":\"me\",\"remote_addr\":\"10.0.0.1:1\",\"ahead\":2}\n\n";
    let first: &'static str = format!("{HELLO}{queued}: keep-alive\nid: a-9\n\nevent: half").leak();
    let second = "id: a-12\nevent: missed\ndata: {\"event\":\"missed\",\"count\":3,\"message\":\"x\"}\n\nevent: later\ndata: {}\n\n\
                  event: stopping\ndata: {\"event\":\"stopping\"}\n\n";
    let third = "id: b-0\nevent: missed\ndata: {\"event\":\"missed\",\"count\":null,\"message\":\"x\"}\n\n";
    let (address, readers) = streams(vec![first, "", second, third, HELLO]);
    let watch = Process::start(&mut asking(address, &["watch"]));
    assert_eq!(watch.line(), r"2026-11-29T16:21:58.676Z  queued       a\nb  me (10.0.0.1:1, session 7)  2 ahead");
    assert_eq!(watch.line(), "-- 3 events were missed here --");
    assert_eq!(watch.line(), "-- events were missed here: the server was restarted, or nobody knows how many --");
    watch.stderr_line(&format!("monolock: the events of {address} are interrupted: it has closed the connection"));
    watch.stderr_line("are interrupted: the server stops; trying to come back");
    watch.stderr_line("monolock: connected again, and nothing was missed");
    let said: Vec<Option<String>> = (0..5).map(|_| readers.recv_timeout(PATIENCE).unwrap()).collect();
    assert_eq!(said, [None, Some("a-9"), Some("a-9"), Some("a-12"), Some("b-0")].map(|id| id.map(str::to_owned)));
}

#[test]
fn a_server_that_is_restarted_is_followed_on() {
    // An address of its own, where nobody else listens when this one has ended.
    let mut administered = Administered::start_with("--admin-listen 127.0.0.4:0 --ops-listen 127.0.0.1:0");
    let ops = logged_address(&administered.server.process.stderr_line("serving the ops endpoints"));
    let watch = Process::start(&mut administered.monolock("watch --json"));
    expect_readers(ops, 1);
    // It has read something: it knows where it is when the server is gone.
    let _before = administered.server.hold("before");
    assert!(watch.line().contains("before"));
    let admin = administered.admin;
    administered.server.process.signal(Signal::SIGKILL);
    assert_eq!(administered.server.process.status(), 137);
    watch.stderr_line("are interrupted: ");
    let again = Administered::start_with(&format!("--admin-listen {admin} --ops-listen 127.0.0.1:0"));
    assert_eq!(again.admin, admin);
    let missed: Value = serde_json::from_str(&watch.line()).unwrap();
    assert_eq!((&missed["event"], &missed["count"]), (&json!("missed"), &Value::Null));
    let _holder = again.server.hold("jobs");
    let granted: Value = serde_json::from_str(&watch.line()).unwrap();
    assert_eq!((&granted["event"], &granted["lock"]), (&json!("granted"), &json!("jobs")));
}

#[test]
fn without_events_there_is_nothing_to_watch() {
    let older = crate::operator::scripted(|_| (404, json!({"error": "there is nothing at this path"}).to_string()));
    let foreign = format!("what answers at {older} is no admin API of monolock: it serves no events");
    assert_fails(&mut asking(older, &["watch"]), 123, &foreign);
    let nobody = Nobody::new();
    assert_eq!(outcome(&mut asking(nobody.address, &["watch"])).status, 123);
    let needs = "top needs a terminal: elsewhere there are monolock locks and monolock watch";
    assert_fails(&mut asking(nobody.address, &["top"]), 2, needs);
}
