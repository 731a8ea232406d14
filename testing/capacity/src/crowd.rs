//! Many sessions of one server, and what the heap says of them.

use std::alloc::System;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use monolock_core::wire::ClientFrame;
use monolock_core::{Lease, LockNameRef};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::runtime;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::Clock;
use crate::connection::Connection;
use crate::events::{Events, KEPT_EVENTS};
use crate::limits::{Limits, Turnstile};
use crate::metrics::Metrics;
use crate::policy::{Policy, PolicyFiles};
use crate::session::serve;
use crate::shards::Shards;
use crate::shared::Shared;
use crate::socket::{Far, Socket, pair};
use crate::witness::Witness;

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// As the server has on two cores.
const SHARDS: NonZeroUsize = NonZeroUsize::new(8).expect("8 is not 0");

const NAME_BYTES: usize = 30;

/// What the sessions claim. Names are 30 bytes long.
#[derive(Clone, Copy, Debug)]
pub enum Claims {
    /// One lock, so that all but the first wait in its queue.
    OneQueue,
    /// A lock each.
    LocksOfTheirOwn,
}

/// What a crowd took of the heap, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// While all were there, idle.
    pub in_all: usize,
    /// When the last of them had left.
    pub kept: usize,
}

/// Lets so many clients connect and claim, be idle, and leave.
///
/// The heap is counted for the whole process, so nothing else may go on in it.
///
/// # Panics
/// Where the server does not answer each claim once, or a task does not end with its client: these are bugs.
pub fn measure(sessions: usize, claims: Claims) -> Taken {
    let runtime = runtime::Builder::new_current_thread().enable_time().build().expect("a runtime without sockets");
    runtime.block_on(async {
        let shared = shared();
        for shard in 0..SHARDS.get() {
            let shared = Arc::clone(&shared);
            // It ends with the runtime.
            drop(tokio::spawn(async move { shared.shards.expire(shard).await }));
        }
        let (sockets, clients): (Vec<Socket>, Vec<Far>) = (0..sessions).map(|number| claim(number, claims)).unzip();
        // What is there once is not counted: the tasks that end leases, lists that the runtime keeps.
        tokio::task::yield_now().await;

        let empty = heap();
        for socket in sockets {
            let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
            let connection = Arc::new(Connection::new(socket, peer));
            drop(shared.connections.spawn(serve(Arc::clone(&shared), connection)));
        }
        while shared.shards.counts().1 < sessions {
            tokio::task::yield_now().await;
        }
        let in_all = heap().saturating_sub(empty);
        assert!(clients.iter().all(|client| client.received() > 0), "a client has no answer");

        clients.iter().for_each(Far::close);
        shared.connections.close();
        shared.connections.wait().await;
        assert_eq!(shared.shards.counts(), (0, 0), "sessions are left behind");
        Taken { in_all, kept: heap().saturating_sub(empty) }
    })
}

fn shared() -> Arc<Shared> {
    let (metrics, clock) = (Metrics::new(), Clock::start());
    let events = Events::new(KEPT_EVENTS, clock, metrics.clone());
    let witness = Witness::new(metrics, None, events);
    Arc::new(Shared {
        shards: Shards::new(SHARDS, clock, Duration::ZERO, Arc::default(), witness),
        io_timeout: Duration::from_secs(5),
        turnstile: Turnstile::new(Limits::default()),
        policy: ArcSwap::from_pointee(Policy::default()),
        files: PolicyFiles::default(),
        token_file: None,
        audit_failed: CancellationToken::new(),
        stopping: CancellationToken::new(),
        connections: TaskTracker::new(),
    })
}

/// A connection whose client has sent its claim.
fn claim(number: usize, claims: Claims) -> (Socket, Far) {
    let number = match claims {
        Claims::OneQueue => 0,
        Claims::LocksOfTheirOwn => number,
    };
    let name = format!("{number:0NAME_BYTES$}");
    let name = LockNameRef::new(&name).expect("digits are a name");
    let mut frame = Vec::new();
    ClientFrame::Acquire { lease: Lease::MAX, name }.encode(&mut frame);
    let (socket, far) = pair();
    far.send(&frame);
    (socket, far)
}

fn heap() -> usize {
    let stats = HEAP.stats();
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated)
}
