//! The stream of events. What any test reads of it is checked against `openapi.json`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use monolock_net::ServerBuilder;
use serde_json::{Value, json};

use crate::admin::{check, local};
use crate::client::{Client, LONG};
use crate::follower::{Follower, Piece, number};
use crate::http::{self, encoded};
use crate::ops::scrape;
use crate::server::{TestServer, dice, eventually, own_address};

const IO_TIMEOUT: Duration = Duration::from_mins(10);

/// Longer than a reader that has got something waits for more.
const PACE: Duration = Duration::from_millis(50);

const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Half as many as there may be connections.
const MAX_READERS: usize = 16;

fn start() -> TestServer {
    start_with(|builder| builder)
}

fn start_with(set_up: impl FnOnce(ServerBuilder) -> ServerBuilder + Send + 'static) -> TestServer {
    let (admin, ops) = (own_address(), own_address());
    TestServer::with(move |builder| set_up(builder.admin(local(admin)).ops(ops)))
}

fn keeping(events: usize) -> impl FnOnce(ServerBuilder) -> ServerBuilder + Send + 'static {
    move |builder| builder.kept_events(NonZeroUsize::new(events).unwrap())
}

fn start_on_demand() -> TestServer {
    let (admin, ops) = (own_address(), own_address());
    TestServer::with_time_on_demand_and(IO_TIMEOUT, move |builder| builder.admin(local(admin)).ops(ops))
}

fn follow(server: &TestServer, query: &str) -> Follower {
    Follower::start(server.admin(), query)
}

/// One grant and its end, which are two events.
fn pass(server: &TestServer, name: &str) {
    let (mut client, _) = server.holder(name, LONG);
    // It is over when the client is told so.
    client.send(&[0xff]);
    client.hear_all();
}

/// A metric that counts whole things.
#[track_caller]
fn metric(server: &TestServer, name: &str) -> u64 {
    let (text, _) = scrape(server.ops());
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap().parse().unwrap()
}

fn address_of(client: &Client) -> String {
    client.stream().local_addr().unwrap().to_string()
}

#[test]
fn each_kind_of_event_tells_whose_claim_it_was_and_what_became_of_it() {
    let server = start();
    let mut events = follow(&server, "");
    let (mut holder, token) = server.holder("jobs", LONG);
    let granted = events.expect("granted");
    assert_eq!((&granted["lock"], &granted["token"], &granted["wait_ms"]), (&json!("jobs"), &json!(token), &json!(0)));
    assert_eq!((&granted["remote_addr"], &granted["identity"]), (&json!(address_of(&holder)), &json!("")));

    let mut second = server.waiter("jobs", LONG);
    let third = server.waiter("jobs", LONG);
    let queued = [events.expect("queued"), events.expect("queued")];
    assert_eq!(queued.each_ref().map(|queued| &queued["ahead"]), [&json!(1), &json!(2)]);
    assert_eq!(queued[1]["remote_addr"], address_of(&third));
    let lock = http::get(server.admin(), "/api/locks/jobs").json();
    assert_eq!(lock["holder"]["session"], granted["session"]);
    for (waiter, queued) in lock["waiters"].as_array().unwrap().iter().zip(&queued) {
        assert_eq!((&waiter["session"], &waiter["remote_addr"]), (&queued["session"], &queued["remote_addr"]));
    }

    third.reset();
    let gone = events.expect("waiter_gone");
    assert_eq!((&gone["session"], &gone["reason"]), (&queued[1]["session"], &json!("graceful")));
    holder.send(&[0xff]);
    let released = events.expect("released");
    assert_eq!((&released["session"], &released["token"]), (&granted["session"], &json!(token)));
    assert_eq!(released["reason"], "protocol_error");
    let promoted = events.expect("granted");
    assert_eq!((&promoted["session"], &promoted["token"]), (&queued[0]["session"], &json!(second.acquired())));

    let fourth = server.waiter("jobs", LONG);
    let session = events.expect("queued")["session"].clone();
    http::request(server.admin(), "DELETE", &format!("/api/locks/jobs/waiters/{session}"));
    let kicked = events.expect("waiter_gone");
    assert_eq!((&kicked["session"], &kicked["reason"]), (&session, &json!("force")));
    http::request(server.admin(), "POST", "/api/locks/jobs/release");
    assert_eq!(events.expect("released")["reason"], "force");
    drop((holder, fourth));
}

#[test]
fn waits_and_holds_are_told_in_milliseconds_and_an_expiry_by_its_reason() {
    let server = start_on_demand();
    let mut events = follow(&server, "");
    let (_holder, _) = server.holder("jobs", 10_000);
    let _waiter = server.waiter("jobs", LONG);
    let _silent = server.waiter("jobs", 4_000);
    server.advance(Duration::from_millis(4_001));
    server.advance(Duration::from_secs(6));
    server.advance(PACE);
    for name in ["granted", "queued", "queued"] {
        events.expect(name);
    }
    let gone = events.expect("waiter_gone");
    assert_eq!((&gone["wait_ms"], &gone["reason"]), (&json!(4_001), &json!("expired")));
    let released = events.expect("released");
    assert_eq!((&released["held_ms"], &released["reason"]), (&json!(10_001), &json!("expired")));
    assert_eq!(events.expect("granted")["wait_ms"], 10_001);
}

/// What a reader knows of the locks, by the rules of the manual.
#[derive(Debug, Default)]
struct Table(BTreeMap<String, Entry>);

#[derive(Debug, Default, PartialEq)]
struct Entry {
    /// Its session and its token.
    holder: Option<(u64, u64)>,
    waiters: Vec<u64>,
}

impl Table {
    fn list(server: &TestServer) -> Self {
        let page = http::get(server.admin(), "/api/locks?limit=10000").json();
        let session = |claim: &Value| claim["session"].as_u64().unwrap();
        let entry = |lock: &Value| Entry {
            holder: lock["holder"]["token"].as_u64().map(|token| (session(&lock["holder"]), token)),
            waiters: lock["waiters"].as_array().unwrap().iter().map(session).collect(),
        };
        let locks = page["locks"].as_array().unwrap();
        Self(locks.iter().map(|lock| (lock["name"].as_str().unwrap().to_owned(), entry(lock))).collect())
    }

    fn apply(&mut self, data: &Value) {
        let name = data["lock"].as_str().unwrap().to_owned();
        let session = data["session"].as_u64().unwrap();
        let token = data["token"].as_u64();
        let entry = self.0.entry(name.clone()).or_default();
        match data["event"].as_str().unwrap() {
            "queued" => {
                let is_known = entry.waiters.contains(&session) || entry.holder.is_some_and(|(own, _)| own == session);
                if !is_known {
                    entry.waiters.push(session);
                }
            }
            "granted" => {
                entry.waiters.retain(|waiter| *waiter != session);
                if entry.holder.is_none_or(|(_, present)| Some(present) < token) {
                    entry.holder = token.map(|token| (session, token));
                }
            }
            "released" => {
                entry.waiters.retain(|waiter| *waiter != session);
                entry.holder.take_if(|(_, present)| Some(*present) == token);
            }
            "waiter_gone" => entry.waiters.retain(|waiter| *waiter != session),
            other => panic!("{other}"),
        }
        if entry.holder.is_none() && entry.waiters.is_empty() {
            self.0.remove(&name);
        }
    }
}

/// Clients that come, queue, hold and go, each in its own way, until it is enough.
fn churn(server: &TestServer, is_over: &AtomicBool, mut dice: fastrand::Rng) -> Vec<Client> {
    let mut clients = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        if clients.len() < 20 && dice.bool() {
            let mut client = server.claim(format!("lock {}", dice.u8(..5)), LONG);
            client.hear();
            clients.push(client);
        } else if !clients.is_empty() {
            clients.swap_remove(dice.usize(..clients.len())).reset();
        }
    }
    clients
}

#[test]
fn who_follows_first_and_lists_then_knows_all_that_is_and_in_the_engines_order() {
    let server = start();
    let mut dice = dice();
    let is_over = AtomicBool::new(false);
    thread::scope(|threads| {
        let crowds: Vec<_> = (0..3)
            .map(|_| {
                let (server, is_over, dice) = (&server, &is_over, dice.fork());
                threads.spawn(move || churn(server, is_over, dice))
            })
            .collect();
        let mut early = follow(&server, "");
        let events: Vec<_> = (0..500).map(|_| early.event()).collect();
        let mut late = follow(&server, "");
        let mut table = Table::list(&server);
        is_over.store(true, Ordering::Relaxed);
        let clients: Vec<_> = crowds.into_iter().map(|crowd| crowd.join().unwrap()).collect();
        // What has happened by now happened before this one.
        eventually(|| metric(&server, "monolock_connections_active") == clients.iter().flatten().count() as u64);
        let (_last, _) = server.holder("the last", LONG);
        let mut tokens: BTreeMap<String, Option<u64>> = BTreeMap::new();
        let follow_to_the_end = |follower: &mut Follower, before: Vec<_>, apply: &mut dyn FnMut(&Value)| {
            let mut before = before.into_iter();
            let mut last = None;
            loop {
                let event = before.next().unwrap_or_else(|| follower.event());
                assert!(last.is_none_or(|last| last + 1 == event.number()), "{last:?} {event:?}");
                last = Some(event.number());
                apply(&event.data);
                if event.data["lock"] == "the last" {
                    return;
                }
            }
        };
        follow_to_the_end(&mut late, Vec::new(), &mut |data| table.apply(data));
        assert_eq!(table.0, Table::list(&server).0);
        // The release of a lock stands before its next grant, and what was granted before the first event is not known.
        follow_to_the_end(&mut early, events, &mut |data| {
            let holder = tokens.get(data["lock"].as_str().unwrap()).copied();
            let token = data["token"].as_u64();
            match data["event"].as_str().unwrap() {
                "granted" => {
                    assert!(matches!(holder, None | Some(None)), "{data}");
                    tokens.insert(data["lock"].as_str().unwrap().to_owned(), token);
                }
                "released" => {
                    assert!(holder.is_none_or(|holder| holder == token), "{data}");
                    tokens.insert(data["lock"].as_str().unwrap().to_owned(), None);
                }
                _ => {}
            }
        });
        drop(clients);
    });
}

#[test]
fn a_pattern_lets_through_what_it_matches() {
    let server = start();
    let mut some = follow(&server, &format!("match={}", encoded("nightly/*")));
    let mut all = follow(&server, "");
    let names = ["other", "nightly/1", "nightly", "nightly/ü", "Nightly/1"];
    for name in names {
        pass(&server, name);
    }
    for name in ["nightly/1", "nightly/ü"] {
        assert_eq!(some.expect("granted")["lock"], name);
        assert_eq!(some.expect("released")["lock"], name);
    }
    for name in names {
        assert_eq!(all.expect("granted")["lock"], name);
        all.expect("released");
    }
    let long = format!("/api/events?match={}", "*".repeat(1025));
    for target in ["/api/events?mach=a", "/api/events?after=1", "/api/events?after=", "/api/events?match=%f", &long] {
        let response = http::get(server.admin(), target);
        check("GET", target, &response);
        assert_eq!(response.status, 400, "{target}");
    }
}

#[test]
fn b52_any_name_is_one_line_that_parses_back() {
    let server = start();
    let mut events = follow(&server, "");
    for name in
        ["\n\nevent: granted\ndata: {}\n\n", "\r", "\0", "\u{1b}[31m", "\u{202e}", "\"\\", "\u{2028}", "😀", ":"]
    {
        pass(&server, name);
        assert_eq!(events.expect("granted")["lock"], name);
        assert_eq!(events.expect("released")["lock"], name);
    }
}

#[test]
fn who_comes_back_reads_on_where_it_was() {
    let server = start();
    let mut events = follow(&server, "");
    pass(&server, "a");
    events.expect("granted");
    let after_the_grant = events.last_id.clone();
    events.expect("released");
    let after_both = events.last_id.clone();
    drop(events);
    eventually(|| metric(&server, "monolock_event_readers") == 0);
    pass(&server, "b");
    let header = |id: &str| format!("Last-Event-ID: {id}\r\n");
    for (query, headers) in [(format!("after={after_both}"), String::new()), (String::new(), header(&after_both))] {
        let mut again = Follower::request(server.admin(), &query, &headers);
        assert_eq!(again.event().name, "hello");
        // Who leaves now has read nothing that it would miss.
        assert_eq!(again.last_id, after_both);
        assert_eq!(again.expect("granted")["lock"], "b");
        assert_eq!(number(&again.last_id), number(&after_both) + 1);
        again.expect("released");
    }
    // A browser asks for the address that it was given, and says in the header how far it is.
    let mut both = Follower::request(server.admin(), &format!("after={after_the_grant}"), &header(&after_both));
    both.expect("hello");
    assert_eq!(both.expect("granted")["lock"], "b");
}

#[test]
fn who_comes_back_too_late_is_told_how_many_events_it_has_missed() {
    let server = start_with(keeping(4));
    let mut events = follow(&server, "");
    let beginning = events.last_id.clone();
    for name in ["a", "b", "c"] {
        pass(&server, name);
        events.expect("granted");
        events.expect("released");
    }
    for (id, missed) in [(&beginning, Some(2)), (&events.last_id.clone(), None)] {
        let mut again = Follower::request(server.admin(), &format!("after={id}"), "");
        let Some(missed) = missed else {
            again.expect("hello");
            continue;
        };
        let first = again.event();
        assert_eq!((&*first.name, &first.data["count"]), ("missed", &json!(missed)));
        assert_eq!(first.number(), number(&beginning) + missed);
        for name in ["b", "c"] {
            assert_eq!(again.expect("granted")["lock"], name);
            again.expect("released");
        }
    }
}

#[test]
fn an_id_of_another_life_or_of_none_misses_what_nobody_knows() {
    let (server, other) = (start(), start());
    let mut events = follow(&server, "");
    pass(&server, "a");
    events.expect("granted");
    let foreign = follow(&other, "").last_id;
    let (life, _) = events.last_id.split_once('-').unwrap();
    for id in [foreign, format!("{life}-3"), format!("{life}-18446744073709551615"), "0000000000000000-0".to_owned()] {
        let mut again = Follower::request(server.admin(), &format!("after={id}"), "");
        assert_eq!(again.expect("missed")["count"], Value::Null, "{id}");
        assert_eq!(again.expect("granted")["lock"], "a");
    }
    for strange in ["7", "", "\u{e9}", "x-1"] {
        let mut again = Follower::request(server.admin(), "", &format!("Last-Event-ID: {strange}\r\n"));
        assert_eq!(again.expect("missed")["count"], Value::Null, "{strange:?}");
    }
}

#[test]
fn events_are_kept_for_a_minute_after_the_last_reader_and_then_no_more() {
    let server = start_on_demand();
    let read = |query: &str| {
        let mut events = Follower::request(server.admin(), query, "");
        let first = events.event();
        (events, first)
    };
    pass(&server, "before the first reader");
    let (events, hello) = read("");
    assert_eq!((&*hello.name, hello.number()), ("hello", 0));
    drop(events);
    let alone = || eventually(|| metric(&server, "monolock_event_readers") == 0);
    alone();
    server.advance(Duration::from_secs(59));
    pass(&server, "in time");
    let (mut events, hello) = read(&format!("after={}", hello.id.unwrap()));
    assert_eq!(hello.name, "hello");
    server.advance(PACE);
    assert_eq!(events.expect("granted")["lock"], "in time");
    events.expect("released");
    let last = events.last_id.clone();
    drop(events);
    alone();
    server.advance(Duration::from_secs(61));
    pass(&server, "too late");
    let (mut events, first) = read(&format!("after={last}"));
    assert_eq!((&*first.name, &first.data["count"]), ("missed", &Value::Null));
    pass(&server, "new");
    server.advance(PACE);
    assert_eq!(events.expect("granted")["lock"], "new");
}

/// A name of which an event is as long as may be: 4000 grants and their ends are 14 MB, which is more than the sockets
/// of a reader that does not read take.
fn long_name() -> String {
    "\u{1}".repeat(255)
}

const ROUNDS: usize = 40;
/// Each is a grant and its end: with all of a round unread, fewer events than the server keeps.
const PASSES_A_ROUND: usize = 100;

#[test]
fn a_reader_that_is_too_slow_is_dropped_and_told_and_nobody_else_is_held_up() {
    let server = start_with(keeping(300));
    let (mut holder, token) = server.holder("beating", LONG);
    let mut slow = Follower::request(server.admin(), "", "");
    let mut prompt = follow(&server, "match=beating");
    let mut diligent = follow(&server, "");
    // One that reads all and is waited for, so that it never lags by more than is kept.
    let ends_read = AtomicUsize::new(0);
    thread::scope(|threads| {
        threads.spawn(|| {
            while ends_read.load(Ordering::Relaxed) < ROUNDS * PASSES_A_ROUND {
                if diligent.event().name == "released" {
                    ends_read.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        for round in 1..=ROUNDS {
            for _ in 0..PASSES_A_ROUND {
                pass(&server, &long_name());
            }
            holder.still_holds(token);
            // A few events are for the one that has little to read, so that it does not lag either.
            server.waiter("beating", LONG).reset();
            prompt.expect("queued");
            prompt.expect("waiter_gone");
            eventually(|| ends_read.load(Ordering::Relaxed) == round * PASSES_A_ROUND);
        }
    });
    // It has what its socket had taken, then that it was too slow, and then nothing.
    let mut last = None;
    let overrun = loop {
        match slow.event() {
            event if event.name == "overrun" => break event,
            event => last = event.id.or(last),
        }
    };
    assert_eq!(overrun.id, None);
    slow.ended();
    eventually(|| metric(&server, "monolock_event_readers") == 2);
    assert_eq!(metric(&server, "monolock_event_readers_dropped_total"), 1);
    let dropped = overrun.data["count"].as_u64().unwrap();
    assert!(dropped > 0);
    assert!(metric(&server, "monolock_events_dropped_total") >= dropped);
    let mut again = Follower::request(server.admin(), &format!("after={}", last.unwrap()), "");
    assert!(again.expect("missed")["count"].as_u64().unwrap() >= dropped);
    holder.send(&[0xff]);
    assert_eq!(prompt.expect("released")["lock"], "beating");
}

#[test]
fn a_reader_that_takes_nothing_for_a_minute_is_cut_off() {
    let server = start_on_demand();
    let stalled = Follower::request(server.admin(), "", "");
    let mut prompt = follow(&server, "match=end");
    // A reader gets something each time that a little has passed.
    for _ in 0..400 {
        for _ in 0..10 {
            pass(&server, &long_name());
        }
        server.advance(PACE);
    }
    for _ in 0..8 {
        server.advance(KEEP_ALIVE);
    }
    eventually(|| metric(&server, "monolock_event_readers") == 1);
    assert_eq!(metric(&server, "monolock_event_readers"), 1);
    assert_eq!(metric(&server, "monolock_event_readers_dropped_total"), 1);
    pass(&server, "end");
    server.advance(PACE);
    prompt.expect("granted");
    drop(stalled);
}

#[test]
fn a_quiet_stream_is_kept_alive_beyond_what_a_connection_lives() {
    let server = start_on_demand();
    let mut all = follow(&server, "");
    let mut none = follow(&server, "match=none");
    for _ in 0..20 {
        server.advance(KEEP_ALIVE);
        assert_eq!(all.piece(), Piece::Comment("keep-alive".to_owned()));
        assert_eq!(none.piece(), Piece::Comment("keep-alive".to_owned()));
    }
    let before = none.last_id.clone();
    let (_holder, _) = server.holder("jobs", LONG);
    server.advance(PACE);
    let granted = all.event();
    assert_eq!(granted.name, "granted");
    // Who was shown nothing comes to know how far it is.
    server.advance(KEEP_ALIVE);
    assert_eq!(none.piece(), Piece::Comment("keep-alive".to_owned()));
    assert_eq!((number(&none.last_id), Some(&none.last_id)), (number(&before) + 1, granted.id.as_ref()));
}

#[test]
fn traffic_that_does_not_match_keeps_no_keep_alive_away() {
    let server = start_on_demand();
    let mut none = follow(&server, "match=none");
    for _ in 0..16 {
        pass(&server, "jobs");
        server.advance(Duration::from_secs(1));
    }
    assert_eq!(none.piece(), Piece::Comment("keep-alive".to_owned()));
}

#[test]
fn half_of_the_connections_may_read_events_and_the_rest_is_for_requests() {
    let server = start();
    let mut readers: Vec<_> = (0..MAX_READERS).map(|_| follow(&server, "")).collect();
    assert_eq!(metric(&server, "monolock_event_readers"), MAX_READERS as u64);
    let refused = http::get(server.admin(), "/api/events");
    check("GET", "/api/events", &refused);
    assert_eq!(refused.status, 503);
    assert_eq!(http::get(server.admin(), "/api/locks").status, 200);
    readers.pop();
    eventually(|| metric(&server, "monolock_event_readers") < MAX_READERS as u64);
    readers.push(follow(&server, ""));
    pass(&server, "jobs");
    for reader in &mut readers {
        reader.expect("granted");
    }
}

#[test]
fn a_stop_is_told_last() {
    let server = start();
    let mut events = follow(&server, "");
    let (holder, _) = server.holder("jobs", LONG);
    let waiter = server.waiter("jobs", LONG);
    let stopping = thread::spawn(move || server.stop());
    for name in ["granted", "queued"] {
        events.expect(name);
    }
    // In whichever order: nobody is promoted.
    let mut ends = [events.event(), events.event()];
    ends.sort_by(|one, other| one.name.cmp(&other.name));
    assert_eq!(ends.each_ref().map(|end| &*end.name), ["released", "waiter_gone"]);
    assert!(ends.iter().all(|end| end.data["reason"] == "shutdown"));
    let last = events.event();
    assert_eq!((&*last.name, &last.id), ("stopping", &None));
    events.ended();
    drop((holder, waiter));
    stopping.join().unwrap();
}

#[test]
fn a_request_for_the_head_alone_leaves_no_reader_behind() {
    let server = start();
    let mut stream = http::connect(server.admin());
    stream.write_all(b"HEAD /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    assert_eq!(http::read_head(&mut stream).0.status, 200);
    eventually(|| metric(&server, "monolock_event_readers") == 0);
    assert_eq!(metric(&server, "monolock_event_readers"), 0);
}
