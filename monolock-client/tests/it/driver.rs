//! The async client against a scripted server.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use monolock_client::clock::Clock;
use monolock_client::{
    Builder, Cancel, Client, ErrorCode, ErrorKind, Held, Lease, LockGuard, LossReason, ProtocolViolation, WithLockError,
};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::server::{
    BlackHole, DeadAddress, LeapingClock, Notes, PATIENCE, Play, Server, StandingClock, WAITING, acquired, error,
};

/// Long enough for nothing to happen by itself within a test.
const LONG: Duration = Duration::from_mins(1);

/// A lease by a clock that stands still until a test moves it: however brief, no machine is too busy to keep it.
const BRIEF: Duration = Duration::from_millis(200);

/// Short enough to wait for its loss.
const SHORT: Duration = Duration::from_secs(1);

async fn lost(guard: &LockGuard) -> LossReason {
    timeout(PATIENCE, guard.lost()).await.expect("the lock is lost")
}

fn builder(address: &str) -> Builder<Client> {
    Client::builder(address).connect_timeout(LONG)
}

fn client(play: &Play) -> Client {
    builder(&play.address).build().unwrap()
}

fn client_by(clock: &(impl Clock + Clone), play: &Play) -> Client {
    builder(&play.address).clock(Arc::new(clock.clone())).build().unwrap()
}

#[tokio::test]
async fn a_free_lock_is_granted_with_its_token_and_released_by_closing() {
    let play = Server::bind().play(|server| {
        let mut peer = server.accept();
        assert_eq!(peer.reads_acquire(), (60_000, "jobs".to_owned()));
        peer.sends(&acquired(41));
        peer.reads_to_the_end();
    });
    let guard = client(&play).acquire("jobs", LONG).await.unwrap();
    assert_eq!((guard.token().get(), guard.name().as_str(), guard.is_held()), (41, "jobs", true));
    let held = guard.held();
    guard.release().await;
    assert!(!held.is_held());
    assert_eq!(held.loss(), None);
    play.finish();
}

#[tokio::test]
async fn a_dropped_guard_releases() {
    let play = Server::bind().play(|server| {
        let mut peer = server.accept_claim();
        peer.sends(&acquired(41));
        peer.reads_to_the_end();
    });
    drop(client(&play).acquire("jobs", LONG).await.unwrap());
    play.finish();
}

#[tokio::test]
async fn a_taken_lock_is_waited_for_with_heartbeats() {
    let clock = StandingClock::default();
    let play = Server::bind().play({
        let clock = clock.clone();
        move |server| {
            let mut peer = server.accept_claim();
            peer.sends(WAITING);
            peer.answers_beats(&clock, BRIEF, 3, WAITING);
            let push = acquired(42);
            peer.sends(&push[..4]);
            peer.sends(&push[4..]);
            peer.reads_to_the_end();
        }
    });
    let guard = client_by(&clock, &play).acquire("jobs", BRIEF).await.unwrap();
    assert_eq!(guard.token().get(), 42);
    drop(guard);
    play.finish();
}

#[tokio::test]
async fn a_try_does_not_wait() {
    let play = Server::bind().play(|server| {
        let mut peer = server.accept_claim();
        peer.sends(WAITING);
        peer.reads_to_the_end();
    });
    let error = client(&play).try_acquire("jobs", LONG).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended);
    play.finish();
}

#[tokio::test]
async fn b12_a_wait_limit_ends_the_wait_and_the_body_never_runs() {
    let play = Server::bind().play(|server| {
        let mut queued = [server.accept_claim(), server.accept_claim()];
        for peer in &mut queued {
            peer.sends(WAITING);
        }
        for mut peer in queued {
            peer.reads_to_the_end();
        }
    });
    // Long enough to reach the server first.
    let (client, wait) = (client(&play), Duration::from_secs(3));
    let limited = client.wait_limit(wait);
    let work = |_| async { unreachable!("the body never runs") };
    let (within, worked) =
        tokio::join!(client.acquire_within("jobs", LONG, wait), limited.with_lock::<(), (), _, _>("jobs", LONG, work));
    assert_eq!(within.unwrap_err().kind(), ErrorKind::WaitTimeout);
    assert!(matches!(worked, Err(WithLockError::NotAcquired(error)) if error.kind() == ErrorKind::WaitTimeout));
    play.finish();
}

#[tokio::test]
async fn b01_unanswered_heartbeats_are_a_loss_before_the_lease_is_over() {
    let play = Server::bind().play(|server| {
        let mut peer = server.accept_claim();
        peer.sends(&acquired(41));
        peer.reads_to_the_end();
    });
    let clock = StandingClock::default();
    let guard = client_by(&clock, &play).acquire("jobs", SHORT).await.unwrap();
    let begun = Instant::now();
    clock.start();
    assert_eq!(lost(&guard).await, LossReason::Timeout);
    assert!(begun.elapsed() >= SHORT * 4 / 5);
    assert!(!guard.is_held());
    play.finish();
}

#[tokio::test]
async fn b02b_a_push_confirms_no_heartbeat() {
    let clock = StandingClock::default();
    let play = Server::bind().play({
        let clock = clock.clone();
        move |server| {
            let mut peer = server.accept_claim();
            peer.sends(WAITING);
            peer.reads_beat(&clock, BRIEF);
            peer.sends(&acquired(41));
            peer.reads_to_the_end();
        }
    });
    let guard = client_by(&clock, &play).acquire("jobs", BRIEF).await.unwrap();
    // A quarter of the lease has passed. Had the push counted, the end would be 1.05 leases from the beginning.
    clock.advance(BRIEF * 11 / 20);
    assert!(!guard.is_held());
    drop(guard);
    play.finish();
}

#[tokio::test]
async fn b04_a_clock_that_leapt_is_a_loss_at_the_next_look() {
    let play = Server::bind().play(|server| {
        let mut peer = server.accept_claim();
        peer.sends(&acquired(41));
        peer.answers_to_the_end(&acquired(41));
    });
    let clock = LeapingClock::default();
    let guard = client_by(&clock, &play).acquire("jobs", LONG).await.unwrap();
    assert!(guard.is_held());
    clock.leap(Duration::from_mins(10));
    assert!(!guard.is_held());
    // The look itself tells everybody, before any task has run.
    assert_eq!(guard.held().loss(), Some(LossReason::Timeout));
    assert_eq!(lost(&guard).await, LossReason::Timeout);
    drop(guard);
    play.finish();
}

#[tokio::test]
async fn b03_a_reply_read_after_the_give_up_instant_revives_nothing() {
    let clock = StandingClock::default();
    let play = Server::bind().play({
        let clock = clock.clone();
        move |server| {
            let mut peer = server.accept_claim();
            peer.sends(&acquired(41));
            peer.reads_beat(&clock, BRIEF);
            // Had the reply counted, the end would be 1.05 leases from the beginning.
            clock.advance(BRIEF * 11 / 20);
            peer.sends(&acquired(41));
            peer.reads_to_the_end();
        }
    });
    let guard = client_by(&clock, &play).acquire("jobs", BRIEF).await.unwrap();
    assert_eq!(lost(&guard).await, LossReason::Timeout);
    assert!(!guard.is_held());
    drop(guard);
    play.finish();
}

#[tokio::test]
async fn b08_the_loss_reaches_everybody_once_whenever_they_ask() {
    let (notes, clock) = (Notes::default(), StandingClock::default());
    let play = Server::bind().play({
        let clock = clock.clone();
        move |server| {
            let mut peer = server.accept_claim();
            peer.sends(&acquired(41));
            peer.reads_beat(&clock, BRIEF);
            peer.sends(&error(0x02));
        }
    });
    let guard = client_by(&clock, &play).acquire("jobs", BRIEF).await.unwrap();
    let waiting: Vec<_> = (0..8).map(|_| tokio::spawn(guard.lost())).collect();
    let in_a_thread = std::thread::spawn({
        let held = guard.held();
        move || held.wait_lost(PATIENCE)
    });
    guard.held().on_lost({
        let notes = notes.clone();
        move |reason| notes.note(reason.to_string())
    });
    let expected = LossReason::Server { code: ErrorCode(0x02), reason: "why".to_owned() };
    for lost in waiting {
        assert_eq!(lost.await.unwrap(), expected);
    }
    assert_eq!(in_a_thread.join().unwrap(), Some(expected.clone()));
    assert_eq!(lost(&guard).await, expected);
    guard.held().on_lost({
        let notes = notes.clone();
        move |reason| notes.note(reason.to_string())
    });
    assert_eq!(notes.all(), ["the server said 0x02: why"; 2]);
    assert!(!guard.is_held());
    play.finish();
}

#[tokio::test]
async fn b14_a_lock_taken_again_after_a_loss_has_heartbeats_of_its_own() {
    let (clock, (answered, mut all_answered)) = (StandingClock::default(), mpsc::unbounded_channel());
    let play = Server::bind().play({
        let clock = clock.clone();
        move |server| {
            let mut first = server.accept_claim();
            first.sends(&acquired(41));
            drop(first);
            let mut second = server.accept_claim();
            second.sends(&acquired(42));
            second.answers_beats(&clock, BRIEF, 20, &acquired(42));
            answered.send(()).unwrap();
            second.reads_to_the_end();
        }
    });
    let client = client_by(&clock, &play);
    let first = client.acquire("jobs", BRIEF).await.unwrap();
    assert!(matches!(lost(&first).await, LossReason::Closed { .. }));
    let second = client.acquire("jobs", BRIEF).await.unwrap();
    assert!(second.token() > first.token());
    all_answered.recv().await.unwrap();
    assert_eq!(second.held().loss(), None);
    assert!(second.is_held());
    // The first hold's end leaves the second alone.
    drop(first);
    assert!(second.is_held());
    second.release().await;
    play.finish();
}

#[tokio::test]
async fn b15_max_hold_ends_a_hold_that_is_confirmed() {
    let play = Server::bind().play(|server| {
        let mut peer = server.accept_claim();
        peer.sends(&acquired(41));
        peer.answers_to_the_end(&acquired(41));
    });
    let client = builder(&play.address).max_hold(SHORT).build().unwrap();
    let guard = client.acquire("jobs", LONG).await.unwrap();
    assert_eq!(lost(&guard).await, LossReason::MaxHold);
    assert!(!guard.is_held());
    drop(guard);
    play.finish();
}

#[tokio::test]
async fn every_kind_of_loss_has_its_reason() {
    type Part = fn(crate::server::Peer);
    type Fits = fn(&LossReason) -> bool;
    let parts: [(Part, Fits); 4] = [
        (|peer| peer.half_closes(), |reason| matches!(reason, LossReason::Closed { error: None })),
        (|peer| peer.resets(), |reason| matches!(reason, LossReason::Closed { error: Some(_) })),
        (
            |mut peer| peer.sends(WAITING),
            |reason| matches!(reason, LossReason::ProtocolViolation(ProtocolViolation::WaitingAfterAcquired)),
        ),
        (
            |mut peer| peer.sends(&acquired(42)),
            |reason| matches!(reason, LossReason::ProtocolViolation(ProtocolViolation::TokenChanged { .. })),
        ),
    ];
    for (part, fits) in parts {
        let clock = StandingClock::default();
        let play = Server::bind().play({
            let clock = clock.clone();
            move |server| {
                let mut peer = server.accept_claim();
                peer.sends(&acquired(41));
                peer.reads_beat(&clock, BRIEF);
                part(peer);
            }
        });
        let guard = client_by(&clock, &play).acquire("jobs", BRIEF).await.unwrap();
        let reason = lost(&guard).await;
        assert!(fits(&reason), "{reason:?}");
        play.finish();
    }
}

#[tokio::test]
async fn b19_a_place_in_the_queue_is_lost_with_its_reason() {
    let clock = StandingClock::default();
    let play = Server::bind().play({
        let clock = clock.clone();
        move |server| {
            let mut silent = server.accept_claim();
            silent.sends(WAITING);
            silent.reads_beat(&clock, BRIEF);
            clock.advance(BRIEF);
            silent.reads_to_the_end();
            let mut kicking = server.accept_claim();
            kicking.sends(WAITING);
            kicking.sends(&error(0x02));
        }
    });
    let client = client_by(&clock, &play);
    let error = client.acquire("jobs", BRIEF).await.unwrap_err();
    assert_eq!((error.kind(), error.loss()), (ErrorKind::Lost, Some(&LossReason::Timeout)));
    let error = client.acquire("jobs", BRIEF).await.unwrap_err();
    assert_eq!((error.kind(), error.server_code()), (ErrorKind::Lost, Some(ErrorCode(0x02))));
    assert!(error.is_retryable());
    play.finish();
}

#[tokio::test]
async fn b49_codes_are_told_apart_by_their_range() {
    for (code, kind, retryable) in [
        (0x01, ErrorKind::Unreachable, true),
        (0x03, ErrorKind::Unreachable, true),
        (0x0f, ErrorKind::Unreachable, true),
        (0x10, ErrorKind::Invalid, false),
        (0x18, ErrorKind::Denied, false),
        (0x19, ErrorKind::Invalid, false),
        (0xff, ErrorKind::Invalid, false),
    ] {
        let play = Server::bind().play(move |server| server.accept_claim().sends(&error(code)));
        let error = client(&play).acquire("jobs", LONG).await.unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (kind, retryable), "{error}");
        assert_eq!(error.server_code(), Some(ErrorCode(code)));
        assert!(error.to_string().contains(&play.address), "{error}");
        play.finish();
    }
}

#[tokio::test]
async fn b30_bad_input_is_found_before_dialling() {
    // Nobody listens: whatever dials fails with another kind.
    let dead = DeadAddress::bind();
    let client = builder(&dead.address()).build().unwrap();
    for lease in [
        Duration::ZERO,
        Duration::from_micros(400),
        Duration::from_millis(1),
        Duration::from_millis(2),
        Duration::from_millis(19),
        Duration::from_micros(1_000_500),
        Duration::from_millis(u64::from(u32::MAX) + 1),
        Duration::MAX,
    ] {
        let error = client.acquire("jobs", lease).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{lease:?}");
    }
    for lease in [20, 50, 100, 399, 400, 401, u32::MAX] {
        let error = client.acquire("jobs", Lease::from_millis(lease).unwrap()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{lease:?}");
    }
    assert_eq!(client.acquire("", LONG).await.unwrap_err().kind(), ErrorKind::Invalid);
    let long = "x".repeat(256);
    assert_eq!(client.acquire(long.as_str(), LONG).await.unwrap_err().kind(), ErrorKind::Invalid);
    for address in ["", "localhost", ":7070", "localhost:", "localhost:0", "localhost:65536"] {
        let error = Client::builder(address).build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{address}");
    }
    assert!(Client::builder(dead.address()).connect_timeout(Duration::ZERO).build().is_err());
    assert!(Client::builder(dead.address()).max_hold(Duration::ZERO).build().is_err());
}

#[tokio::test]
async fn b46_every_address_is_tried_within_the_connect_timeout() {
    let (dead, black_hole) = (DeadAddress::bind(), BlackHole::open());
    let mute = Server::bind().play(|server| server.accept_claim().reads_to_the_end());
    let hanging_up = Server::bind().play(|server| drop(server.accept_claim()));
    let leaving = Server::bind().play(|server| server.accept_claim().sends(&error(0x01)));
    let living = Server::bind().play(|server| {
        let mut peer = server.accept_claim();
        peer.sends(&acquired(41));
        peer.reads_to_the_end();
    });
    let client = Client::builder(dead.address())
        .address(black_hole.address())
        .address(&mute.address)
        .address(&hanging_up.address)
        .address(&leaving.address)
        .address(&living.address)
        .connect_timeout(PATIENCE)
        .build()
        .unwrap();
    let begun = Instant::now();
    let guard = client.acquire("jobs", LONG).await.unwrap();
    assert!(begun.elapsed() < PATIENCE);
    assert_eq!(guard.token().get(), 41);
    drop(guard);
    for play in [mute, hanging_up, leaving, living] {
        play.finish();
    }
}

#[tokio::test]
async fn b46_a_name_is_resolved_and_the_failures_are_named() {
    let play = Server::bind().play(|server| {
        let mut peer = server.accept_claim();
        peer.sends(&acquired(41));
        peer.reads_to_the_end();
    });
    let port = play.address.rsplit_once(':').unwrap().1;
    let client = builder(&format!("localhost:{port}")).build().unwrap();
    drop(client.acquire("jobs", LONG).await.unwrap());
    play.finish();

    let (dead, black_hole) = (DeadAddress::bind(), BlackHole::open());
    let client = Client::builder(dead.address())
        .address(black_hole.address())
        .connect_timeout(Duration::from_millis(300))
        .build()
        .unwrap();
    let error = client.acquire("jobs", LONG).await.unwrap_err();
    assert_eq!((error.kind(), error.server_code()), (ErrorKind::Unreachable, None));
    assert!(
        error.to_string().contains(&dead.address()) && error.to_string().contains(&black_hole.address()),
        "{error}"
    );
}

#[tokio::test]
async fn a_short_lease_bounds_the_handshake_with_a_mute_server() {
    let clock = StandingClock::default();
    let play = Server::bind().play({
        let clock = clock.clone();
        move |server| {
            let mut mute = server.accept_claim();
            clock.advance(BRIEF);
            mute.reads_to_the_end();
        }
    });
    let client = client_by(&clock, &play);
    let error = timeout(PATIENCE, client.acquire("jobs", BRIEF)).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    play.finish();
}

#[tokio::test]
async fn b48_a_refusal_is_not_tried_again() {
    let play = Server::bind().play(|server| server.accept_claim().sends(&error(0x18)));
    let error = client(&play).acquire_with_retry("jobs", LONG).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    play.finish();
}

#[tokio::test]
async fn b47_acquiring_is_tried_again_and_the_work_runs_once() {
    let (notes, clock) = (Notes::default(), StandingClock::default());
    let play = Server::bind().play({
        let clock = clock.clone();
        move |server| {
            server.accept_claim().sends(&error(0x01));
            drop(server.accept_claim());
            let mut kicked = server.accept_claim();
            kicked.sends(WAITING);
            kicked.sends(&error(0x02));
            let mut peer = server.accept_claim();
            peer.sends(&acquired(44));
            peer.reads_beat(&clock, BRIEF);
            peer.sends(&error(0x02));
        }
    });
    let work = |held: Held| {
        notes.note(held.token().to_string());
        std::future::pending::<Result<(), ()>>()
    };
    let failed = client_by(&clock, &play).with_lock_retry("jobs", BRIEF, work).await.unwrap_err();
    assert!(matches!(&failed, WithLockError::Lost(error) if error.server_code() == Some(ErrorCode(0x02))));
    assert_eq!(notes.all(), ["44"]);
    play.finish();
}

#[tokio::test]
async fn b48_retrying_ends_with_the_wait_limit() {
    let dead = DeadAddress::bind();
    let client = builder(&dead.address()).build().unwrap().wait_limit(Duration::from_millis(300));
    let error = client.acquire_with_retry("jobs", LONG).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WaitTimeout);
}

#[tokio::test]
async fn b10_cancelled_work_keeps_its_lock_until_it_has_ended() {
    let (notes, standing) = (Notes::default(), StandingClock::default());
    let (is_cancelled, cancelled) = std::sync::mpsc::channel();
    let (answered, mut all_answered) = mpsc::unbounded_channel();
    let play = Server::bind().play({
        let (notes, clock) = (notes.clone(), standing.clone());
        move |server| {
            let mut peer = server.accept_claim();
            peer.sends(&acquired(41));
            cancelled.recv().unwrap();
            peer.answers_beats(&clock, BRIEF, 12, &acquired(41));
            answered.send(()).unwrap();
            peer.reads_to_the_end();
            notes.note("closed");
        }
    });
    let cancel = Cancel::new();
    let client = client_by(&standing, &play);
    let work = |held: Held| {
        let (cancel, notes) = (cancel.clone(), notes.clone());
        async move {
            cancel.cancel();
            held.cancelled().await;
            is_cancelled.send(()).unwrap();
            all_answered.recv().await.unwrap();
            assert!(held.is_held() && held.is_cancelled());
            notes.note("ended");
            Ok::<_, ()>(held.token().get())
        }
    };
    assert_eq!(client.cancel_on(&cancel).with_lock("jobs", BRIEF, work).await.unwrap(), 41);
    play.finish();
    assert_eq!(notes.all(), ["ended", "closed"]);
}

#[tokio::test]
async fn b11_the_works_own_error_stands_and_the_loss_is_joined_to_it() {
    let clock = StandingClock::default();
    let play = Server::bind().play({
        let clock = clock.clone();
        move |server| {
            for _ in 0..2 {
                let mut peer = server.accept_claim();
                peer.sends(&acquired(41));
                peer.reads_beat(&clock, BRIEF);
                peer.sends(&error(0x02));
                peer.reads_to_the_end();
            }
            let mut kept = server.accept_claim();
            kept.sends(&acquired(42));
            kept.reads_to_the_end();
        }
    });
    let client = client_by(&clock, &play);
    let noticing = |held: Held| async move {
        held.lost().await;
        Err::<(), _>("half done")
    };
    match client.with_lock("jobs", BRIEF, noticing).await.unwrap_err() {
        WithLockError::Work { error: "half done", loss: Some(LossReason::Server { .. }) } => {}
        other @ (WithLockError::Work { .. } | WithLockError::NotAcquired(_) | WithLockError::Lost(_)) => {
            panic!("{other:?}")
        }
    }
    // Work that does not look is dropped.
    let failed = client.with_lock("jobs", BRIEF, |_| std::future::pending::<Result<(), ()>>()).await.unwrap_err();
    assert!(matches!(failed, WithLockError::Lost(_)));
    let failed = client.with_lock("jobs", LONG, |_| async { Err::<(), _>("its own") }).await.unwrap_err();
    assert!(matches!(failed, WithLockError::Work { error: "its own", loss: None }));
    play.finish();
}

#[tokio::test]
async fn b11_work_is_polled_once_more_when_the_loss_comes_while_it_runs() {
    let play = Server::bind().play(|server| {
        let mut peer = server.accept_claim();
        peer.sends(&acquired(41));
        peer.reads_to_the_end();
    });
    let clock = LeapingClock::default();
    let client = client_by(&clock, &play);
    let work = |held: Held| {
        let mut lost = held.lost();
        poll_fn(move |context| {
            if pin!(&mut lost).poll(context).is_ready() {
                return Poll::Ready(Err::<(), _>("half done"));
            }
            // It has just looked and seen nothing, and now the lock is lost.
            clock.leap(LONG);
            assert!(!held.is_held());
            Poll::Pending
        })
    };
    let failed = client.with_lock("jobs", LONG, work).await.unwrap_err();
    assert!(matches!(failed, WithLockError::Work { error: "half done", loss: Some(LossReason::Timeout) }));
    play.finish();
}

#[test]
fn b08_a_runtime_that_stops_leaves_nobody_waiting() {
    let play = Server::bind().play(|server| {
        for reply in [acquired(41), WAITING.to_vec()] {
            let mut peer = server.accept_claim();
            peer.sends(&reply);
            peer.reads_to_the_end();
        }
    });
    let (queued, mut is_queued) = mpsc::unbounded_channel();
    let client = client(&play).on_queued(move |_| queued.send(()).unwrap());
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let stopping = runtime();
    let guard = stopping.block_on(client.acquire("jobs", LONG)).unwrap();
    drop(stopping);
    assert_eq!(guard.held().wait_lost(PATIENCE), Some(LossReason::Closed { error: None }));
    assert!(!guard.is_held());

    let stopping = runtime();
    let mut waiting = Box::pin(client.acquire("jobs", LONG));
    stopping.block_on(async {
        tokio::select! {
            ended = &mut waiting => panic!("{ended:?}"),
            queued = is_queued.recv() => queued.unwrap(),
        }
    });
    drop(stopping);
    let error = runtime().block_on(async { timeout(PATIENCE, waiting).await }).unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    play.finish();
}

#[tokio::test]
async fn b11_the_connection_closes_when_the_work_unwinds() {
    let play = Server::bind().play(|server| {
        let mut peer = server.accept_claim();
        peer.sends(&acquired(41));
        peer.reads_to_the_end();
    });
    let client = client(&play);
    let working = tokio::spawn(async move {
        client.with_lock::<(), (), _, _>("jobs", LONG, |_| async { panic!("the work panics") }).await
    });
    assert!(working.await.unwrap_err().is_panic());
    play.finish();
}

#[tokio::test]
async fn b27_a_client_knows_its_own_claims_and_queues_behind_them() {
    let play = Server::bind().play(|server| {
        let mut holder = server.accept_claim();
        holder.sends(&acquired(41));
        let mut waiter = server.accept_claim();
        waiter.sends(WAITING);
        waiter.reads_to_the_end();
        holder.reads_to_the_end();
    });
    let client = client(&play);
    let guard = client.acquire("jobs", LONG).await.unwrap();
    let name = guard.name().clone();
    assert_eq!(client.clone().claims(&name), 1);
    let waiting = client.acquire_within("jobs", LONG, Duration::from_secs(3)).await;
    assert_eq!(waiting.unwrap_err().kind(), ErrorKind::WaitTimeout);
    assert_eq!(client.claims(&name), 1);
    guard.release().await;
    assert_eq!(client.claims(&name), 0);
    play.finish();
}

#[tokio::test]
async fn a_caller_is_told_when_its_wait_begins() {
    let (told, waiting) = std::sync::mpsc::channel::<()>();
    let play = Server::bind().play(move |server| {
        let mut queued = server.accept_claim();
        queued.sends(WAITING);
        // The grant comes when the caller knows that it waits.
        waiting.recv().unwrap();
        queued.sends(&acquired(41));
        let mut free = server.accept_claim();
        free.sends(&acquired(42));
        let mut contended = server.accept_claim();
        contended.sends(WAITING);
        for mut peer in [queued, free, contended] {
            peer.reads_to_the_end();
        }
    });
    let notes = Notes::default();
    let client = client(&play).on_queued({
        let notes = notes.clone();
        move |name| {
            notes.note(name.as_str());
            told.send(()).unwrap();
        }
    });
    drop(client.acquire("jobs", LONG).await.unwrap());
    drop(client.acquire("free", LONG).await.unwrap());
    // Who does not wait is not told that it waits.
    assert_eq!(client.try_acquire("contended", LONG).await.unwrap_err().kind(), ErrorKind::Contended);
    assert_eq!(notes.all(), ["jobs"]);
    play.finish();
}

#[tokio::test]
async fn a_try_runs_the_work_or_does_not_wait() {
    let play = Server::bind().play(|server| {
        for reply in [acquired(41), WAITING.to_vec()] {
            let mut peer = server.accept_claim();
            peer.sends(&reply);
            peer.reads_to_the_end();
        }
    });
    let client = client(&play);
    let token = client.try_with_lock("jobs", LONG, |held| async move { Ok::<_, ()>(held.token().get()) });
    assert_eq!(token.await.unwrap(), 41);
    let never = |_| async { unreachable!("the body never runs") };
    let failed = client.try_with_lock::<(), (), _, _>("jobs", LONG, never).await.unwrap_err();
    assert!(matches!(failed, WithLockError::NotAcquired(error) if error.kind() == ErrorKind::Contended));
    play.finish();
}

#[tokio::test]
async fn b50_dropping_a_future_closes_its_socket_in_every_stage() {
    let (reached, mut stage) = mpsc::unbounded_channel();
    let play = Server::bind().play(move |server| {
        for reply in [Vec::new(), WAITING.to_vec(), acquired(41)] {
            let mut peer = server.accept_claim();
            peer.sends(&reply);
            reached.send(()).unwrap();
            peer.reads_to_the_end();
        }
    });
    let client = client(&play);
    for _ in 0..3 {
        let working = client.with_lock("jobs", LONG, |_| std::future::pending::<Result<(), ()>>());
        tokio::select! {
            ended = working => panic!("{ended:?}"),
            reached = stage.recv() => reached.unwrap(),
        }
    }
    play.finish();
}

#[tokio::test]
async fn b50_a_cancelled_call_says_so_in_every_stage() {
    async fn is_cancelled_after(reached: impl Future<Output = ()>, client: Client) {
        let cancel = Cancel::new();
        let bound = client.cancel_on(&cancel);
        let acquiring = tokio::spawn(async move { bound.acquire("jobs", LONG).await });
        reached.await;
        cancel.cancel();
        let error = timeout(PATIENCE, acquiring).await.unwrap().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        let error = client.cancel_on(&cancel).acquire("jobs", LONG).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
    }

    let (reached, mut stage) = mpsc::unbounded_channel();
    let play = Server::bind().play(move |server| {
        for reply in [&[], WAITING] {
            let mut peer = server.accept_claim();
            peer.sends(reply);
            reached.send(()).unwrap();
            peer.reads_to_the_end();
        }
    });
    for _ in 0..2 {
        is_cancelled_after(async { stage.recv().await.unwrap() }, client(&play)).await;
    }
    play.finish();
    let black_hole = BlackHole::open();
    let unconnected = builder(&black_hole.address()).build().unwrap();
    // A black hole tells nobody when it is reached.
    is_cancelled_after(sleep(Duration::from_secs(1)), unconnected).await;
}

#[test]
fn futures_can_move_between_threads() {
    fn can_move<T: Send>(_: &T) {}
    let client = Client::builder("127.0.0.1:1").build().unwrap();
    can_move(&client.acquire("jobs", LONG));
    can_move(&client.acquire_with_retry("jobs", LONG));
    can_move(&client.with_lock("jobs", LONG, |_| async { Ok::<_, ()>(()) }));
}
