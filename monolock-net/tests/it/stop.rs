//! The controlled stop, and the other one.

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use monolock_net::{Server, StartError};
use tokio::runtime::Builder;

use crate::child::no_child_begins;
use crate::client::{Client, LONG, PATIENCE, acquire};
use crate::server::{TestServer, eventually};

const FAREWELL: &str = "server shutting down";

#[test]
fn a_stop_tells_every_session_and_promotes_nobody() {
    let server = TestServer::start();
    let address = server.address();
    let mut mute = server.connect();
    let mut half_said = server.connect();
    half_said.send(&acquire("jobs", LONG)[..9]);
    let mut sessions = Vec::new();
    for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        sessions.push(server.holder(name, LONG).0);
        sessions.extend((0..5).map(|_| server.waiter(name, LONG)));
    }
    server.await_connections(2 + sessions.len());
    let _guard = no_child_begins();
    server.handle().shutdown();
    for client in sessions.iter_mut().chain([&mut mute, &mut half_said]) {
        client.error(0x01, FAREWELL);
    }
    // The door is shut before anybody is told to go.
    assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn a_stop_before_hundreds_tells_each() {
    let server = TestServer::start();
    let _holder = server.holder("jobs", LONG);
    let mut waiters: Vec<_> = (0..400).map(|_| server.claim("jobs", LONG)).collect();
    waiters.iter_mut().for_each(Client::waiting);
    server.handle().shutdown();
    for waiter in &mut waiters {
        waiter.error(0x01, FAREWELL);
    }
}

#[test]
fn a_stop_returns_within_the_io_timeout_whatever_clients_do() {
    let io_timeout = Duration::from_secs(5);
    let server = TestServer::with_time_on_demand(io_timeout);
    let _idle = server.holder("idle", LONG);
    let _mute = server.connect();
    let (mut full, _) = server.holder("full", LONG);
    full.fill();
    server.await_connections(3);
    server.advance(io_timeout - Duration::from_millis(100));
    server.handle().shutdown();
    server.advance(Duration::from_millis(50));
    server.await_partings(3);
    server.advance(io_timeout);
    server.await_tasks_gone();
}

#[test]
fn a_stop_without_sessions_returns_at_once_and_twice_is_once() {
    let server = TestServer::start();
    let begin = Instant::now();
    server.handle().shutdown();
    server.handle().clone().shutdown();
    let handle = server.handle().clone();
    assert!(server.stop().returned - begin < PATIENCE);
    handle.shutdown();
}

#[test]
fn a_stop_before_the_start_is_heeded() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server = Server::builder().listen(([127, 0, 0, 1], 0).into()).bind().unwrap();
        server.handle().shutdown();
        server.run().await.unwrap();
    });
}

#[test]
fn a_stop_tells_those_that_nobody_has_accepted_yet() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(async { Server::builder().listen(([127, 0, 0, 1], 0).into()).bind().unwrap() });
    let mut clients: Vec<_> = (0..20).map(|_| Client::connect(server.local_addr())).collect();
    clients.iter_mut().step_by(2).for_each(|client| client.acquire("jobs", LONG));
    server.handle().shutdown();
    let stopping = thread::spawn(move || runtime.block_on(server.run()));
    for client in &mut clients {
        client.error(0x01, FAREWELL);
    }
    drop(clients);
    stopping.join().unwrap().unwrap();
}

#[test]
fn a_stop_leaves_those_that_nobody_has_accepted_yet_to_who_has_a_passed_socket_next() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let bind = || {
        let socket = socket.try_clone().unwrap();
        runtime.block_on(async { Server::builder().listen_on(socket).bind().unwrap() })
    };
    let server = bind();
    assert_eq!(server.local_addr(), socket.local_addr().unwrap());
    let mut clients: Vec<_> = (0..20).map(|_| Client::connect(server.local_addr())).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.acquire(format!("jobs/{number}"), LONG);
    }
    server.handle().shutdown();
    runtime.block_on(server.run()).unwrap();

    let next = bind();
    let handle = next.handle();
    let running = thread::spawn(move || runtime.block_on(next.run()));
    for client in &mut clients {
        client.acquired();
    }
    handle.shutdown();
    drop(clients);
    running.join().unwrap().unwrap();
}

#[test]
fn an_io_timeout_without_end_is_no_panic() {
    let server = TestServer::with_io_timeout(Duration::MAX);
    let (mut holder, _) = server.holder("jobs", LONG);
    server.handle().shutdown();
    holder.error(0x01, FAREWELL);
    drop(holder);
    server.stop();
}

#[test]
fn an_io_timeout_of_zero_is_refused() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let refused = Server::builder().listen(([127, 0, 0, 1], 0).into()).io_timeout(Duration::ZERO).bind();
        assert!(matches!(refused, Err(StartError::ZeroIoTimeout)));
    });
}

#[test]
fn a_server_whose_future_is_dropped_stops_too() {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = runtime.block_on(async { Server::builder().listen(([127, 0, 0, 1], 0).into()).bind() }).unwrap();
    let address = server.local_addr();
    let running = runtime.spawn(server.run());
    let connect = |frame: &[u8]| {
        let mut client = Client::connect(address);
        client.send(frame);
        client
    };
    // Connections are accepted in order: once the holder has its answer, the mute one has its task.
    let mut mute = connect(&[0x01]);
    let mut holder = connect(&acquire("jobs", LONG));
    holder.acquired();
    let mut waiter = connect(&acquire("jobs", LONG));
    waiter.waiting();
    running.abort();
    for client in [&mut holder, &mut waiter, &mut mute] {
        client.error(0x01, FAREWELL);
    }
    drop((holder, waiter, mute));
    eventually(|| runtime.metrics().num_alive_tasks() == 0);
    assert_eq!(runtime.metrics().num_alive_tasks(), 0);
}

#[test]
fn run_until_stops_when_it_is_told() {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = runtime.block_on(async { Server::builder().listen(([127, 0, 0, 1], 0).into()).bind() }).unwrap();
    let address = server.local_addr();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = runtime.spawn(server.run_until(async move { stopped.await.unwrap() }));
    let mut holder = Client::connect(address);
    holder.acquire("jobs", LONG);
    holder.acquired();
    stop.send(()).unwrap();
    holder.error(0x01, FAREWELL);
    drop(holder);
    runtime.block_on(running).unwrap().unwrap();
}

#[test]
fn what_came_and_went_leaves_nothing_behind() {
    let server = TestServer::start();
    for round in 0..25 {
        let clients: Vec<_> = (0..200).map(|place| server.claim(format!("{round}/{}", place % 50), LONG)).collect();
        for mut client in clients {
            client.hear();
            client.reset();
        }
    }
    server.await_connections(0);
}
