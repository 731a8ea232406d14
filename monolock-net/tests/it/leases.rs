//! When a lock moves because somebody is silent: never before the lease is out, and soon after.

use std::time::{Duration, Instant};

use crate::client::{Client, HEARTBEAT, Heard, LONG};
use crate::server::TestServer;

const IO_TIMEOUT: Duration = Duration::from_secs(5);

const MILLISECOND: Duration = Duration::from_millis(1);

const HOUR: Duration = Duration::from_hours(1);

fn milliseconds(lease: Duration) -> u32 {
    u32::try_from(lease.as_millis()).unwrap()
}

#[test]
fn b23_leases_of_24_hours_10_seconds_and_50_milliseconds_run_out_side_by_side() {
    let server = TestServer::with_time_on_demand(IO_TIMEOUT);
    let mut passed = Duration::ZERO;
    let leases = [Duration::from_millis(50), Duration::from_secs(10), 24 * HOUR];
    let mut pairs: Vec<_> = leases
        .iter()
        .rev()
        .map(|&lease| {
            let name = format!("for {lease:?}");
            (server.holder(&name, milliseconds(lease)), server.waiter(&name, u32::MAX))
        })
        .collect();
    for lease in leases {
        let ((mut holder, token), mut waiter) = pairs.pop().unwrap();
        server.advance(lease - MILLISECOND - passed);
        waiter.still_waits();
        for (_, others) in &mut pairs {
            others.still_waits();
        }
        server.advance(2 * MILLISECOND);
        passed = lease + MILLISECOND;
        assert!(waiter.acquired() > token);
        // Expiry closes without an ERROR.
        holder.ended();
    }
}

#[test]
fn b29_short_leases_are_kept_by_heartbeats_and_lost_by_silence() {
    for lease_ms in [1, 2, 50, 100, 399, 400, 401] {
        let server = TestServer::with_time_on_demand(IO_TIMEOUT);
        let lease = Duration::from_millis(u64::from(lease_ms));
        let (mut holder, token) = server.holder("jobs", lease_ms);
        let mut waiter = server.waiter("jobs", LONG);
        for _ in 0..20 {
            server.advance(lease - lease / 10);
            holder.still_holds(token);
        }
        server.advance(lease - lease / 10);
        waiter.still_waits();
        server.advance(lease / 10 + MILLISECOND);
        assert!(waiter.acquired() > token, "{lease:?}");
        holder.ended();
    }
}

#[test]
fn b29_short_leases_never_end_early_in_real_time() {
    let server = TestServer::start();
    for lease_ms in [1, 2, 50, 100, 399, 400, 401] {
        let name = format!("for {lease_ms} ms");
        let before = Instant::now();
        let mut holder = server.claim(&name, lease_ms);
        assert!(matches!(holder.hear(), Heard::Acquired(_)));
        let mut waiter = server.claim(&name, LONG);
        while waiter.hear() == Heard::Waiting {}
        let lease = Duration::from_millis(u64::from(lease_ms));
        assert!(before.elapsed() >= lease, "{:?} of {lease:?}", before.elapsed());
        holder.ended();
    }
}

#[test]
fn b30_the_longest_lease_is_exact() {
    let server = TestServer::with_time_on_demand(IO_TIMEOUT);
    let (mut holder, token) = server.holder("jobs", u32::MAX);
    server.advance(HOUR);
    let mut waiter = server.waiter("jobs", u32::MAX);
    server.advance(Duration::from_millis(u64::from(u32::MAX)) - HOUR - MILLISECOND);
    waiter.still_waits();
    server.advance(2 * MILLISECOND);
    assert!(waiter.acquired() > token);
    holder.ended();
}

#[test]
fn b44_holders_that_fall_silent_with_their_sockets_open_lose_their_locks_within_their_leases() {
    let server = TestServer::with_time_on_demand(IO_TIMEOUT);
    let step = Duration::from_secs(3);
    let mut pairs: Vec<_> = (1..=20)
        .map(|steps: u32| {
            let name = format!("lock {steps}");
            let (mut holder, token) = server.holder(&name, milliseconds(step * steps));
            holder.still_holds(token);
            (holder, token, server.waiter(&name, u32::MAX))
        })
        .collect();
    server.advance(step - MILLISECOND);
    for gone in 0..pairs.len() {
        for (_, _, waiter) in &mut pairs[gone..] {
            waiter.still_waits();
        }
        server.advance(2 * MILLISECOND);
        let (holder, token, waiter) = &mut pairs[gone];
        assert!(waiter.acquired() > *token);
        holder.ended();
        server.advance(step - 2 * MILLISECOND);
    }
}

#[test]
fn b17_a_grant_to_a_silent_waiter_stands_for_the_rest_of_its_own_lease() {
    let server = TestServer::with_time_on_demand(IO_TIMEOUT);
    let (holder, _) = server.holder("jobs", LONG);
    let mut silent = server.waiter("jobs", 10_000);
    let mut next = server.waiter("jobs", LONG);
    server.advance(Duration::from_secs(4));
    silent.still_waits();
    server.advance(Duration::from_secs(9));
    drop(holder);
    let token = silent.acquired();
    server.advance(Duration::from_secs(1) - MILLISECOND);
    next.still_waits();
    server.advance(2 * MILLISECOND);
    assert!(next.acquired() > token);
    silent.ended();
}

#[test]
fn b19_a_waiter_that_falls_silent_is_dropped_and_never_granted() {
    let server = TestServer::with_time_on_demand(IO_TIMEOUT);
    let (holder, _) = server.holder("jobs", LONG);
    let mut silent = server.waiter("jobs", 5_000);
    let mut next = server.waiter("jobs", LONG);
    server.advance(Duration::from_secs(5) - MILLISECOND);
    silent.hears_nothing();
    assert_eq!(server.connections(), 3);
    server.advance(2 * MILLISECOND);
    silent.ended();
    next.still_waits();
    drop(holder);
    next.acquired();
}

#[test]
fn b20_a_day_in_the_queue_changes_nothing() {
    let server = TestServer::with_time_on_demand(IO_TIMEOUT);
    let lease = Duration::from_mins(1);
    let beat = lease * 3 / 4;
    let (mut holder, token) = server.holder("jobs", milliseconds(lease));
    let mut waiters: Vec<_> = (0..5).map(|_| server.waiter("jobs", milliseconds(lease))).collect();
    let mut passed = Duration::ZERO;
    while passed < 24 * HOUR {
        server.advance(beat);
        passed += beat;
        for waiter in &mut waiters {
            waiter.send(&HEARTBEAT);
        }
        holder.still_holds(token);
        waiters.iter_mut().for_each(Client::waiting);
    }
    drop(holder);
    let mut last = token;
    for mut waiter in waiters {
        let token = waiter.acquired();
        assert!(last < token);
        last = token;
    }
}

/// More than are closed before others have a turn, on each shard and on one lock.
const CROWD: usize = 100;

#[test]
fn leases_that_end_in_one_instant_all_end_and_each_lock_passes_on_in_that_instant() {
    let server = TestServer::with_time_on_demand(IO_TIMEOUT);
    let names: Vec<_> = (0..CROWD).map(|number| format!("jobs/{number}")).collect();
    let mut silent: Vec<_> = names.iter().map(|name| server.holder(name, 1000).0).collect();
    silent.extend((0..CROWD).map(|_| server.claim("one", 1000)));
    let mut next: Vec<_> = names.iter().map(|name| server.waiter(name, LONG)).collect();
    server.advance(Duration::from_secs(1) + MILLISECOND);
    for waiter in &mut next {
        waiter.acquired();
    }
    for expired in &mut silent {
        while expired.hear() != Heard::End {}
    }
    server.await_connections(CROWD);
}
