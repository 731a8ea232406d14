//! A server, clients of it, and what must hold of them.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use shuttle::future::JoinHandle;
use shuttle::thread;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audit::{Audit, AuditFailure, AuditLog, AuditSink};
use crate::audit_sink;
use crate::client::Client;
use crate::clock::Clock;
use crate::connection::Connection;
use crate::events::{Events, KEPT_EVENTS};
use crate::limits::{Limits, Turnstile};
use crate::metrics::Metrics;
use crate::outbox::Promise;
use crate::policy::{Policy, PolicyFiles};
use crate::session::serve;
use crate::shards::Shards;
use crate::shared::Shared;
use crate::socket::{Far, Socket, pair};
use crate::witness::Witness;

/// How long a first frame may take, and a write.
pub(crate) const IO_TIMEOUT: Duration = Duration::from_secs(5);

/// A lease that no model lets run out.
pub(crate) const LONG: Duration = Duration::from_secs(1_000_000);

/// More sessions than a model has: they are counted, and all are let in.
const MAX_SESSIONS: NonZeroUsize = NonZeroUsize::new(8).expect("8 is not 0");

/// A server and who is connected to it.
pub(crate) struct World {
    pub(crate) shared: Arc<Shared>,
    expiry: JoinHandle<()>,
    guests: Vec<Guest>,
}

/// A connection, as it is looked at when all is over.
struct Guest {
    far: Far,
    promise: Promise,
    connection: Weak<Connection>,
    task: JoinHandle<()>,
}

/// How the client's network takes bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Network {
    /// All that is written.
    Wide,
    /// Less than a frame lies unread, and a byte at a time is taken.
    Narrow,
}

impl World {
    pub(crate) fn open() -> Self {
        Self::with_grace(Duration::ZERO)
    }

    /// A server that grants nothing for so long.
    pub(crate) fn with_grace(grace: Duration) -> Self {
        let metrics = Metrics::new();
        let audit_failed = CancellationToken::new();
        let log = AuditLog { sink: AuditSink::Stdout, on_failure: AuditFailure::Exit };
        let audit =
            Audit::start(&log, metrics.audit_dropped.clone(), audit_failed.clone()).expect("the sink is memory");
        let clock = Clock::start();
        let events = Events::new(KEPT_EVENTS, clock, metrics.clone());
        let witness = Witness::new(metrics, Some(audit), events);
        let limits = Limits { max_sessions: Some(MAX_SESSIONS), ..Limits::default() };
        let shared = Arc::new(Shared {
            shards: Shards::new(NonZeroUsize::MIN, clock, grace, Arc::default(), witness),
            io_timeout: IO_TIMEOUT,
            turnstile: Turnstile::new(limits),
            policy: ArcSwap::from_pointee(Policy::default()),
            files: PolicyFiles::default(),
            token_file: None,
            audit_failed,
            stopping: CancellationToken::new(),
            connections: TaskTracker::new(),
        });
        let of_expiry = Arc::clone(&shared);
        let expiry = shuttle::future::spawn(async move { of_expiry.shards.expire(0).await });
        Self { shared, expiry, guests: Vec::new() }
    }

    /// Connects a client, which has a task of the server from now on.
    pub(crate) fn connect(&mut self, network: Network) -> Client {
        let (socket, far) = network.pair();
        let port = u16::try_from(self.guests.len() + 1).expect("a model has few clients");
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (connection, promise) = connection(socket, peer);
        let weak = Arc::downgrade(&connection);
        let served = self.shared.connections.track_future(serve(Arc::clone(&self.shared), connection));
        let task = shuttle::future::spawn(served);
        self.guests.push(Guest { far: far.clone(), promise, connection: weak, task });
        Client::new(far, peer)
    }

    /// Something that is done beside the clients.
    pub(crate) fn beside(&self, deed: impl FnOnce(&Shared) + Send + 'static) -> thread::JoinHandle<()> {
        let shared = Arc::clone(&self.shared);
        thread::spawn(move || deed(&shared))
    }

    /// Ends it all: whoever is still connected goes. Then looks at what is left.
    pub(crate) fn close(self) {
        let Self { shared, expiry, guests } = self;
        for guest in &guests {
            guest.far.close();
        }
        let mut gone = Vec::new();
        for Guest { far, promise, connection, task } in guests {
            shuttle::future::block_on(task).expect("no task of a connection is cancelled");
            gone.push((far, promise, connection));
        }
        expiry.abort();
        let _ = shuttle::future::block_on(expiry);

        assert_eq!(shared.shards.counts(), (0, 0), "locks and sessions are left behind in the engine");
        let survey = shared.shards.survey();
        assert_eq!((survey.held, survey.waiters), (0, 0), "the gauges count somebody");
        assert_eq!(shared.connections.len(), 0, "tasks are left behind");
        for (far, promise, connection) in gone {
            assert!(connection.upgrade().is_none(), "a connection is left behind in the table");
            let (promised, taken) = (promise.bytes(), far.taken());
            assert!(promised.starts_with(&taken), "told {taken:?} and not {promised:?}");
        }
        let admissions: Vec<_> = (0..MAX_SESSIONS.get())
            .map(|_| {
                let (connection, _) = connection(pair(0, 0).0, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
                shared.turnstile.admit(&connection)
            })
            .collect();
        assert!(admissions.iter().all(Result::is_ok), "the limits count a session that is gone");
        let audit = shared.witness().audit.as_ref().expect("there is an audit log");
        assert!(audit.finish(Duration::MAX), "the audit log is not written");
        check_audit(&audit_sink::lines());
    }
}

/// A connection without a server, and its client.
pub(crate) fn alone(network: Network) -> (Arc<Connection>, Client, Promise) {
    let (socket, far) = network.pair();
    let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let (connection, promise) = connection(socket, peer);
    (connection, Client::new(far, peer), promise)
}

impl Network {
    fn pair(self) -> (Socket, Far) {
        match self {
            Self::Wide => pair(usize::MAX, usize::MAX),
            Self::Narrow => pair(3, 2),
        }
    }
}

fn connection(socket: Socket, peer: SocketAddr) -> (Arc<Connection>, Promise) {
    let connection = Arc::new(Connection::new(socket, peer));
    (connection, Promise::latest())
}

/// Every grant has one end, which comes before the next grant, and tokens rise. What an operator did was done to whom
/// it was meant for: a waiter that waited, a holder that held.
fn check_audit(lines: &str) {
    // The holder of each lock, by token and address.
    let mut holders: HashMap<String, (u64, String)> = HashMap::new();
    let mut last = 0;
    for line in lines.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("a line of the audit log is JSON");
        let text = |field: &str| line[field].as_str().unwrap_or_default().to_owned();
        let token = || line["token"].as_u64().expect("a token is a number");
        let (lock, address) = (text("lock"), text("remote_addr"));
        let holder = holders.get(&lock);
        match text("event").as_str() {
            "granted" => {
                assert!(token() > last, "tokens rise: {lines}");
                last = token();
                assert_eq!(holders.insert(lock, (token(), address)), None, "granted while it was held: {lines}");
            }
            "released" => {
                assert_eq!(holders.remove(&lock), Some((token(), address)), "the holder was another: {lines}");
            }
            "force_release" => assert_eq!(holder, Some(&(token(), address)), "the holder was another: {lines}"),
            "kick_waiter" => {
                assert!(holder.is_none_or(|(_, holder)| *holder != address), "a holder was removed: {lines}");
            }
            event => unreachable!("nobody was {event}"),
        }
    }
    assert!(holders.is_empty(), "a grant has no end: {lines}");
}
