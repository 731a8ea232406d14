//! The limits that an operator may turn on, by addresses.

use std::net::{SocketAddr, TcpStream};

use crate::support::{Frame, Session, Watched, until, words};

/// A session from this address of the machine.
fn from(source: &str, address: SocketAddr) -> Session {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(source.parse().unwrap(), 0).into()).unwrap();
    socket.connect(&address.into()).unwrap();
    Session::over(TcpStream::from(socket))
}

#[track_caller]
fn expect_refused(mut session: Session, name: &str, lease_ms: u32, code: u8) {
    session.acquire(name, lease_ms);
    session.expect(Frame::Error(code));
    session.expect(Frame::End);
}

#[test]
fn sessions_over_the_limit_are_refused_until_others_have_ended() {
    let watched = Watched::start(words("--max-sessions 3 --io-timeout 1m"));
    let server = &watched.server;
    let holder = server.hold("jobs");
    let mut waiter = server.queue("jobs");
    let another = server.hold("another");
    // Connections without a claim are none.
    let mut silent = server.connect();
    for _ in 0..10 {
        expect_refused(server.connect(), "jobs", 1000, 0x03);
    }
    watched.expect_metric("monolock_limit_refusals_total", |count| (count - 10.0).abs() < 0.5);
    waiter.heartbeat();
    waiter.expect(Frame::Waiting);

    drop(holder);
    waiter.expect_acquired();
    // The waiter may hear of it before the holder is struck off.
    watched.expect_metric("monolock_connections_active", |count| (count - 3.0).abs() < 0.5);
    silent.acquire("third", 60_000);
    silent.expect_acquired();
    expect_refused(server.connect(), "fourth", 1000, 0x03);
    drop(another);
    until(
        || {
            let mut session = server.connect();
            session.acquire("fourth", 60_000);
            matches!(session.frame(), Frame::Acquired(_))
        },
        || "a session that has ended is still counted".to_owned(),
    );
}

#[test]
fn b67_one_address_with_many_connections_is_refused_more_and_others_are_served() {
    let watched = Watched::start(words("--max-sessions-per-client 10 --io-timeout 1m"));
    let address = watched.server.address;
    let greedy: Vec<_> = (0..10).map(|_| watched.server.connect()).collect();
    let mut greedy: Vec<_> = greedy
        .into_iter()
        .enumerate()
        .map(|(number, mut session)| {
            session.acquire(&format!("jobs/{number}"), 60_000);
            session.expect_acquired();
            session
        })
        .collect();
    for _ in 0..1000 {
        expect_refused(watched.server.connect(), "jobs", 1000, 0x03);
    }
    let mut other = from("127.0.0.2", address);
    other.acquire("other", 60_000);
    other.expect_acquired();
    for session in &mut greedy {
        session.heartbeat();
        session.expect_acquired();
    }
}

#[test]
fn b33_the_longest_lease_bounds_what_a_silent_client_costs() {
    let watched = Watched::start(words("--max-lease 2s"));
    let server = &watched.server;
    expect_refused(server.connect(), "jobs", 2001, 0x19);
    expect_refused(server.connect(), "jobs", u32::MAX, 0x19);
    watched.expect_metric("monolock_protocol_errors_total{code=\"0x19\"}", |count| (count - 2.0).abs() < 0.5);
    assert!(watched.metric("monolock_limit_refusals_total").abs() < 0.5);

    let mut silent = server.connect();
    silent.acquire("jobs", 2000);
    silent.expect_acquired();
    let is_free = || {
        let mut next = server.connect();
        next.acquire("jobs", 2000);
        matches!(next.frame(), Frame::Acquired(_))
    };
    until(is_free, || "a silent client costs more than the longest lease".to_owned());
}

#[test]
fn a_lease_is_looked_at_before_the_number_of_sessions() {
    let watched = Watched::start(words("--max-lease 1m --max-sessions 1"));
    let _holder = watched.server.hold("jobs");
    expect_refused(watched.server.connect(), "jobs", 60_001, 0x19);
    expect_refused(watched.server.connect(), "jobs", 60_000, 0x03);
}

#[test]
fn without_limits_there_are_none() {
    let watched = Watched::start([] as [&str; 0]);
    let mut sessions: Vec<_> = (0..200).map(|_| watched.server.connect()).collect();
    for (number, session) in sessions.iter_mut().enumerate() {
        session.acquire(&format!("jobs/{number}"), u32::MAX);
        session.expect_acquired();
    }
}
