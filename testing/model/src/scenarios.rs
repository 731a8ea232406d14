//! The stories that are played, each in every interleaving that is looked at.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use monolock_core::LockNameRef;
use monolock_core::wire::ErrorCode;
use prometheus_client::metrics::counter::Counter;
use shuttle::rand::RngCore as _;
use shuttle::thread;
use tokio_util::sync::CancellationToken;

use crate::administration::Who;
use crate::audit::{Audit, AuditFailure, AuditLog, AuditSink};
use crate::audit_sink;
use crate::client::{Client, JOBS, Told};
use crate::clock::{Clock, Passing};
use crate::connection::{Call, Ended};
use crate::event::{Event, What};
use crate::outbox::{Farewell, Reply};
use crate::shared::Shared;
use crate::world::{IO_TIMEOUT, LONG, Network, World, alone};

/// A client that has claimed the lock and heard that it holds it, as the first of all.
fn holder(world: &mut World, lease: Duration) -> Client {
    let mut client = world.connect(Network::Wide);
    client.acquire(lease);
    assert!(client.wait_for_lock());
    client
}

/// A client that has claimed the lock and heard that it waits.
fn waiter(world: &mut World, network: Network, lease: Duration) -> Client {
    let mut client = world.connect(network);
    client.acquire(lease);
    assert_eq!(client.listen(), Told::Waiting);
    client
}

fn name() -> LockNameRef<'static> {
    LockNameRef::new(JOBS).expect("a name")
}

/// Somebody else removes a waiter.
fn kick(shared: &Shared, who: SocketAddr) -> bool {
    shared.shards.kick(name(), Who::RemoteAddr(who)).is_ok()
}

fn join<T>(threads: impl IntoIterator<Item = thread::JoinHandle<T>>) -> Vec<T> {
    threads.into_iter().map(|thread| thread.join().expect("a thread that panics has ended the model")).collect()
}

/// The holder goes while the next waiter sends heartbeats: each is answered once, and the waiter is promoted.
pub fn a_release_meets_heartbeats() {
    let mut world = World::open();
    let first = holder(&mut world, LONG);
    let mut second = waiter(&mut world, Network::Wide, LONG);
    let threads = [
        thread::spawn(move || first.close()),
        thread::spawn(move || {
            second.heartbeat();
            second.heartbeat();
            assert!(second.wait_for_lock());
            second.heartbeat();
            second.wait_for_replies();
            second.close();
        }),
    ];
    join(threads);
    world.close();
}

/// The waiter that is promoted reads slowly: a write breaks off in the middle of a frame, and its own task goes on.
pub fn a_slow_reader_is_promoted() {
    let mut world = World::open();
    let first = holder(&mut world, LONG);
    let mut second = waiter(&mut world, Network::Narrow, LONG);
    let threads = [
        thread::spawn(move || first.close()),
        thread::spawn(move || {
            second.heartbeat();
            second.heartbeat();
            assert!(second.wait_for_lock());
            second.heartbeat();
            second.wait_for_replies();
            second.close();
        }),
    ];
    join(threads);
    world.close();
}

/// The waiter goes while it is promoted, each in a way of its own: the lock goes on to the next.
pub fn a_client_leaves_while_it_is_promoted() {
    leaves_while_promoted(Network::Narrow, Client::close);
}

/// The same, with a reset.
pub fn a_client_resets_while_it_is_promoted() {
    leaves_while_promoted(Network::Narrow, |client| client.fail(ErrorKind::ConnectionReset));
}

/// The same, with words that break the protocol. Nobody reads them while the client does not read, so it does.
pub fn a_client_babbles_while_it_is_promoted() {
    leaves_while_promoted(Network::Wide, |client| {
        client.babble();
        client.finish();
    });
}

fn leaves_while_promoted(network: Network, leave: fn(&Client)) {
    let mut world = World::open();
    let first = holder(&mut world, LONG);
    let second = waiter(&mut world, network, LONG);
    let mut third = waiter(&mut world, Network::Wide, LONG);
    let threads = [
        thread::spawn(move || first.close()),
        thread::spawn(move || leave(&second)),
        thread::spawn(move || {
            third.heartbeat();
            assert!(third.wait_for_lock());
            third.wait_for_replies();
            third.close();
        }),
    ];
    join(threads);
    world.close();
}

/// An operator releases the holder by force and removes a waiter, while the one goes by itself and the other is
/// heard. The last in the queue gets the lock.
pub fn an_operator_ends_claims() {
    let mut world = World::open();
    let mut first = holder(&mut world, LONG);
    let mut second = waiter(&mut world, Network::Narrow, LONG);
    let mut third = waiter(&mut world, Network::Wide, LONG);
    let (peer, token) = (second.peer(), first.token());
    let operator = world.beside(move |shared| {
        let forced = shared.shards.force_release(name(), token).is_ok();
        let kicked = kick(shared, peer);
        // Promoted already, it is no waiter.
        assert!(!(forced && kicked), "the only waiter that was promoted was removed from the queue");
    });
    let kicker = world.beside(move |shared| {
        let _ = kick(shared, peer);
    });
    let threads = [
        thread::spawn(move || {
            first.heartbeat();
            first.close();
            let error = first.wait_for_end();
            assert!(error.is_none_or(|code| code == ErrorCode::CLOSED_BY_ADMINISTRATOR));
        }),
        thread::spawn(move || {
            second.heartbeat();
            if second.wait_for_lock() {
                second.close();
            } else {
                assert_eq!(second.wait_for_end(), Some(ErrorCode::CLOSED_BY_ADMINISTRATOR));
            }
        }),
        thread::spawn(move || {
            third.heartbeat();
            assert!(third.wait_for_lock());
            third.wait_for_replies();
            third.close();
        }),
    ];
    join(threads.into_iter().chain([operator, kicker]));
    world.close();
}

/// The holder's lease runs out while it sends a heartbeat, and a waiter whose lease is shorter comes meanwhile. The
/// expiry task is the only one that could promote the last of them.
pub fn a_lease_runs_out() {
    let mut world = World::open();
    let mut first = holder(&mut world, Duration::from_secs(10));
    let mut second = world.connect(Network::Wide);
    let mut third = world.connect(Network::Wide);
    second.acquire(Duration::from_secs(1));
    third.acquire(LONG);
    let threads = [
        thread::spawn(move || {
            first.heartbeat();
            first.wait_for_end();
        }),
        thread::spawn(move || {
            second.wait_for_end();
        }),
        thread::spawn(move || {
            assert!(third.wait_for_lock());
            third.wait_for_replies();
            third.close();
        }),
    ];
    let passing = Passing::begin(Duration::from_secs(4));
    join(threads);
    passing.stop();
    world.close();
}

/// A waiter's lease runs out while an operator removes it and the holder goes: it ends once, and the next gets the
/// lock.
pub fn an_expiry_meets_a_kick() {
    let mut world = World::open();
    let first = holder(&mut world, LONG);
    let mut second = waiter(&mut world, Network::Wide, Duration::from_secs(2));
    let mut third = waiter(&mut world, Network::Wide, LONG);
    let peer = second.peer();
    let operator = world.beside(move |shared| {
        let _ = kick(shared, peer);
    });
    let threads = [
        thread::spawn(move || first.close()),
        thread::spawn(move || {
            second.heartbeat();
            second.wait_for_end();
        }),
        thread::spawn(move || {
            assert!(third.wait_for_lock());
            third.close();
        }),
    ];
    let passing = Passing::begin(Duration::from_secs(1));
    join(threads.into_iter().chain([operator]));
    passing.stop();
    world.close();
}

/// The server stops while the holder goes, a waiter is heard, another reads slowly and a third claims. Everybody who is
/// still there is told so, last of all.
pub fn a_stop_meets_everything() {
    let mut world = World::open();
    let first = holder(&mut world, LONG);
    let mut second = waiter(&mut world, Network::Narrow, LONG);
    let mut third = world.connect(Network::Wide);
    let stop = world.beside(Shared::stop);
    let threads = [
        thread::spawn(move || first.close()),
        thread::spawn(move || {
            second.heartbeat();
            second.heartbeat();
            assert_eq!(second.wait_for_end(), Some(ErrorCode::SERVER_SHUTTING_DOWN));
        }),
        thread::spawn(move || {
            third.acquire(LONG);
            assert_eq!(third.wait_for_end(), Some(ErrorCode::SERVER_SHUTTING_DOWN));
        }),
    ];
    join(threads.into_iter().chain([stop]));
    world.close();
}

/// The server stops while the first client of all claims: it is told so, with a grant before it or without.
pub fn a_stop_meets_the_first_claim() {
    let mut world = World::open();
    let mut client = world.connect(Network::Wide);
    let stop = world.beside(Shared::stop);
    client.acquire(LONG);
    assert_eq!(client.wait_for_end(), Some(ErrorCode::SERVER_SHUTTING_DOWN));
    join([stop]);
    world.close();
}

/// A holder reads nothing for longer than the io-timeout: it loses its lock, and the next waiter has it.
pub fn a_write_takes_too_long() {
    let mut world = World::open();
    let mut first = world.connect(Network::Narrow);
    first.acquire(LONG);
    let mut second = world.connect(Network::Wide);
    second.acquire(LONG);
    let threads = [
        thread::spawn(move || {
            first.heartbeat();
            first.heartbeat();
        }),
        thread::spawn(move || {
            assert!(second.wait_for_lock());
            second.wait_for_replies();
            second.close();
        }),
    ];
    let passing = Passing::begin(IO_TIMEOUT / 2);
    join(threads);
    passing.stop();
    world.close();
}

/// The network of the holder fails, which proves nothing: it keeps its lock until its lease is out. The same failure
/// costs a waiter its place at once, or it has its lock by then. The next waiter has the lock in the end.
pub fn a_network_fails() {
    let mut world = World::open();
    let first = holder(&mut world, Duration::from_secs(4));
    let second = waiter(&mut world, Network::Wide, Duration::from_secs(4));
    let mut third = waiter(&mut world, Network::Wide, LONG);
    let threads = [
        thread::spawn(move || first.fail(ErrorKind::TimedOut)),
        thread::spawn(move || second.fail(ErrorKind::HostUnreachable)),
        thread::spawn(move || {
            third.heartbeat();
            assert!(third.wait_for_lock());
            third.wait_for_replies();
            third.close();
        }),
    ];
    let passing = Passing::begin(Duration::from_secs(1));
    join(threads);
    passing.stop();
    world.close();
}

/// Claims queue in the grace after a start; the expiry task ends it.
pub fn a_grace_ends() {
    let mut world = World::with_grace(Duration::from_secs(3));
    let mut first = world.connect(Network::Wide);
    let mut second = world.connect(Network::Wide);
    first.acquire(LONG);
    second.acquire(LONG);
    let threads = [
        thread::spawn(move || {
            first.heartbeat();
            assert!(first.wait_for_lock());
            first.wait_for_replies();
            first.close();
        }),
        thread::spawn(move || {
            assert!(second.wait_for_lock());
            second.close();
        }),
    ];
    let passing = Passing::begin(Duration::from_secs(1));
    join(threads);
    passing.stop();
    world.close();
}

/// Whatever comes, in one story: the holder goes, waiters are heard, read slowly or leave, leases run out, an operator
/// releases and removes, the server stops. What each does, and when, is drawn anew for each interleaving.
pub fn all_at_once() {
    let mut world = World::open();
    let clients: Vec<Client> = (0..4)
        .map(|_| {
            let lease = if draw(3) == 0 { Duration::from_secs(3) } else { LONG };
            let client = world.connect(if draw(2) == 0 { Network::Narrow } else { Network::Wide });
            client.acquire(lease);
            client
        })
        .collect();
    let peer = clients[1].peer();
    let mut deeds = vec![
        world.beside(move |shared| {
            let _ = kick(shared, peer);
        }),
        world.beside(|shared| {
            let _ = shared.shards.force_release(name(), None);
            shared.shards.survey();
        }),
    ];
    if draw(2) == 0 {
        deeds.push(world.beside(Shared::stop));
    }
    let passing = Passing::begin(Duration::from_secs(1));
    let threads: Vec<_> = clients
        .into_iter()
        .map(|mut client| {
            let habit = draw(6);
            thread::spawn(move || {
                (0..draw(3)).for_each(|_| client.heartbeat());
                match habit {
                    0 => client.close(),
                    1 => client.fail(ErrorKind::ConnectionReset),
                    2 => {
                        client.babble();
                        client.wait_for_end();
                    }
                    3 => client.finish(),
                    _ => {
                        if client.wait_for_lock() {
                            client.heartbeat();
                        }
                        client.close();
                    }
                }
            })
        })
        .collect();
    join(threads.into_iter().chain(deeds));
    passing.stop();
    world.close();
}

/// A number below `end`, which belongs to the schedule and comes again with it.
fn draw(end: u64) -> u64 {
    shuttle::rand::thread_rng().next_u64() % end
}

/// Two tasks push and write while the connection's own waits, and one of them ends the session.
pub fn writers_share_a_connection() {
    share_a_connection(Network::Wide);
}

/// The same with a client that reads slowly.
pub fn writers_share_a_slow_connection() {
    share_a_connection(Network::Narrow);
}

fn share_a_connection(network: Network) {
    let (connection, mut client, promise) = alone(network);
    let own = Arc::clone(&connection);
    let task = shuttle::future::spawn(async move {
        loop {
            match own.call().await {
                Call::Ended(_) => break own.drain_outbox().await,
                Call::Blocked => own.unblock().await?,
                call @ (Call::Readable | Call::Failed(_)) => unreachable!("{call:?} of a client that does nothing"),
            }
        }
    });
    let other = Arc::clone(&connection);
    let pusher = thread::spawn(move || {
        other.push(Reply::Waiting);
        other.flush();
    });
    let ender = thread::spawn(move || {
        connection.end(Some(Farewell::ShuttingDown));
        connection.flush();
        // Whatever was pushed before the end has somebody who flushes it, too: the task is called once more.
        connection.flush();
    });
    assert_eq!(client.wait_for_error(), ErrorCode::SERVER_SHUTTING_DOWN);
    shuttle::future::block_on(task).expect("nobody cancels it").expect("the socket does not fail");
    join([pusher, ender]);
    assert_eq!(client.taken(), promise.bytes());
}

/// One task writes while the session ends, in every order that there is.
pub fn an_end_meets_a_write() {
    let (connection, client, promise) = alone(Network::Wide);
    let other = Arc::clone(&connection);
    let writer = thread::spawn(move || {
        other.push(Reply::Waiting);
        other.flush();
    });
    connection.end(None);
    connection.flush();
    let task = shuttle::future::spawn(async move {
        assert_eq!(connection.ended().await, Ended::Silently);
        connection.drain_outbox().await
    });
    shuttle::future::block_on(task).expect("nobody cancels it").expect("the socket does not fail");
    join([writer]);
    assert_eq!(client.taken(), promise.bytes());
}

/// Two shards put something down at once: both lines are written, though nobody asks for more and no time passes.
pub fn audit_lines_are_written() {
    let log = AuditLog { sink: AuditSink::Stdout, on_failure: AuditFailure::Continue };
    let audit = Audit::start(&log, Counter::default(), CancellationToken::new()).expect("the sink is memory");
    let audit = Arc::new(audit);
    let recorders: Vec<_> = (1..=2)
        .map(|port| {
            let audit = Arc::clone(&audit);
            thread::spawn(move || {
                let remote_addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                let what = What::Denied {};
                audit.record(Event {
                    time: Clock::wall(),
                    lock: name().into(),
                    session: None,
                    identity: "".into(),
                    remote_addr,
                    what,
                });
                audit.announce();
            })
        })
        .collect();
    join(recorders);
    audit_sink::wait_for_lines(2);
}
