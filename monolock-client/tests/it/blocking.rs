//! The blocking client against a scripted server. No test here starts a runtime.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use monolock_client::blocking::Client;
use monolock_client::clock::Clock;
use monolock_client::{Builder, Cancel, ErrorCode, ErrorKind, Held, LossReason, WithLockError};

use crate::server::{
    BlackHole, DeadAddress, LeapingClock, Notes, PATIENCE, Play, Server, StandingClock, WAITING, acquired, error,
};

/// Long enough for nothing to happen by itself within a test.
const LONG: Duration = Duration::from_mins(1);

/// A lease by a clock that stands still until a test moves it: however brief, no machine is too busy to keep it.
const BRIEF: Duration = Duration::from_millis(200);

/// Short enough to wait for its loss.
const SHORT: Duration = Duration::from_secs(1);

fn builder(address: &str) -> Builder<Client> {
    Client::builder(address).connect_timeout(LONG)
}

fn client(play: &Play) -> Client {
    builder(&play.address).build().unwrap()
}

fn client_by(clock: &(impl Clock + Clone), play: &Play) -> Client {
    builder(&play.address).clock(Arc::new(clock.clone())).build().unwrap()
}

#[test]
fn a_free_lock_is_granted_with_its_token_and_released_by_closing() {
    let play = Server::bind().play(|server| {
        for _ in 0..2 {
            let mut peer = server.accept();
            assert_eq!(peer.reads_acquire(), (60_000, "jobs".to_owned()));
            peer.sends(&acquired(41));
            peer.reads_to_the_end();
        }
    });
    let guard = client(&play).acquire("jobs", LONG).unwrap();
    assert_eq!((guard.token().get(), guard.name().as_str(), guard.is_held()), (41, "jobs", true));
    let held = guard.held();
    guard.release();
    assert!(!held.is_held());
    assert_eq!(held.loss(), None);
    assert_eq!(held.wait_lost(LONG), None, "a release ends the wait");
    drop(client(&play).try_acquire("jobs", LONG).unwrap());
    play.finish();
}

#[test]
fn a_taken_lock_is_waited_for_with_heartbeats() {
    let (clock, (queued, is_queued)) = (StandingClock::default(), mpsc::channel());
    let play = Server::bind().play({
        let clock = clock.clone();
        move |server| {
            let mut peer = server.accept_claim();
            peer.sends(WAITING);
            // Nothing but its timer tells the client of the first heartbeat.
            is_queued.recv().unwrap();
            peer.answers_beats(&clock, BRIEF, 3, WAITING);
            let push = acquired(42);
            peer.sends(&push[..4]);
            peer.sends(&push[4..]);
            peer.reads_to_the_end();
        }
    });
    let client = client_by(&clock, &play).on_queued(move |_| queued.send(()).unwrap());
    assert_eq!(client.acquire("jobs", BRIEF).unwrap().token().get(), 42);
    play.finish();
}

#[test]
fn b12_neither_a_try_nor_a_wait_limit_runs_the_body() {
    let play = Server::bind().play(|server| {
        let mut trying = server.accept_claim();
        trying.sends(WAITING);
        trying.reads_to_the_end();
        let mut queued = [server.accept_claim(), server.accept_claim()];
        for peer in &mut queued {
            peer.sends(WAITING);
        }
        for mut peer in queued {
            peer.reads_to_the_end();
        }
    });
    // Long enough for the session's thread to reach the server first.
    let (client, wait) = (client(&play), Duration::from_secs(6));
    assert_eq!(client.try_acquire("jobs", LONG).unwrap_err().kind(), ErrorKind::Contended);
    let work = |_: Held| -> Result<(), ()> { unreachable!("the body never runs") };
    let (within, worked) = thread::scope(|scope| {
        let within = scope.spawn(|| client.acquire_within("jobs", LONG, wait));
        let worked = client.wait_limit(wait).with_lock("jobs", LONG, work);
        (within.join().unwrap(), worked)
    });
    assert_eq!(within.unwrap_err().kind(), ErrorKind::WaitTimeout);
    assert!(matches!(worked, Err(WithLockError::NotAcquired(error)) if error.kind() == ErrorKind::WaitTimeout));
    play.finish();
}

#[test]
fn b01_unanswered_heartbeats_are_a_loss() {
    let play = Server::bind().play(|server| {
        let mut peer = server.accept_claim();
        peer.sends(&acquired(41));
        peer.reads_to_the_end();
    });
    let clock = StandingClock::default();
    let guard = client_by(&clock, &play).acquire("jobs", SHORT).unwrap();
    clock.start();
    assert_eq!(guard.wait_lost(PATIENCE), Some(LossReason::Timeout));
    assert!(!guard.is_held());
    play.finish();
}

#[test]
fn b04_a_clock_that_leapt_is_a_loss_at_the_next_look() {
    let play = Server::bind().play(|server| {
        let mut peer = server.accept_claim();
        peer.sends(&acquired(41));
        peer.reads_to_the_end();
    });
    let clock = LeapingClock::default();
    let guard = client_by(&clock, &play).acquire("jobs", LONG).unwrap();
    assert!(guard.is_held());
    clock.leap(Duration::from_mins(10));
    assert!(!guard.is_held());
    assert_eq!(guard.held().loss(), Some(LossReason::Timeout));
    drop(guard);
    play.finish();
}

#[test]
fn b07_answered_heartbeats_keep_the_lock() {
    let (clock, (answered, all_answered)) = (StandingClock::default(), mpsc::channel());
    let play = Server::bind().play({
        let clock = clock.clone();
        move |server| {
            let mut peer = server.accept_claim();
            peer.sends(&acquired(41));
            peer.answers_beats(&clock, BRIEF, 40, &acquired(41));
            answered.send(()).unwrap();
            peer.reads_to_the_end();
        }
    });
    let guard = client_by(&clock, &play).acquire("jobs", BRIEF).unwrap();
    all_answered.recv().unwrap();
    assert_eq!(guard.held().loss(), None);
    assert!(guard.is_held());
    drop(guard);
    play.finish();
}

#[test]
fn b07_unanswered_heartbeats_are_a_loss_after_four_fifths_of_the_lease() {
    let (clock, (written, is_written)) = (StandingClock::default(), mpsc::channel());
    let play = Server::bind().play({
        let clock = clock.clone();
        move |server| {
            let mut peer = server.accept_claim();
            peer.sends(&acquired(41));
            peer.reads_beat(&clock, BRIEF);
            written.send(()).unwrap();
            peer.reads_to_the_end();
        }
    });
    let guard = client_by(&clock, &play).acquire("jobs", BRIEF).unwrap();
    is_written.recv().unwrap();
    clock.advance(BRIEF / 2);
    assert!(guard.is_held());
    clock.advance(BRIEF / 20);
    assert_eq!(guard.wait_lost(PATIENCE), Some(LossReason::Timeout));
    drop(guard);
    play.finish();
}

#[test]
fn b08_the_loss_reaches_everybody_once_whenever_they_ask() {
    let clock = StandingClock::default();
    let play = Server::bind().play({
        let clock = clock.clone();
        move |server| {
            let mut peer = server.accept_claim();
            peer.sends(&acquired(41));
            peer.reads_beat(&clock, BRIEF);
            peer.sends(&error(0x02));
        }
    });
    let (notes, guard) = (Notes::default(), client_by(&clock, &play).acquire("jobs", BRIEF).unwrap());
    let noting = |what: &'static str| {
        let notes = notes.clone();
        move |_| notes.note(what)
    };
    guard.on_lost(noting("before"));
    let waiting: Vec<_> =
        (0..4).map(|_| guard.held()).map(|held| thread::spawn(move || held.wait_lost(PATIENCE))).collect();
    let expected = Some(LossReason::Server { code: ErrorCode(0x02), reason: "why".to_owned() });
    for lost in waiting {
        assert_eq!(lost.join().unwrap(), expected);
    }
    assert_eq!(guard.wait_lost(PATIENCE), expected);
    // Runs here and now; the one from before may still be running on the session's thread.
    guard.on_lost(noting("after"));
    assert!(notes.all().contains(&"after".to_owned()));
    play.finish();
}

#[test]
fn b49_codes_are_told_apart_by_their_range() {
    for (code, kind) in [
        (0x01, ErrorKind::Unreachable),
        (0x0f, ErrorKind::Unreachable),
        (0x10, ErrorKind::Invalid),
        (0x18, ErrorKind::Denied),
    ] {
        let play = Server::bind().play(move |server| server.accept_claim().sends(&error(code)));
        let error = client(&play).acquire("jobs", LONG).unwrap_err();
        assert_eq!((error.kind(), error.server_code()), (kind, Some(ErrorCode(code))));
        play.finish();
    }
    let dead = DeadAddress::bind();
    let client = builder(&dead.address()).build().unwrap();
    assert_eq!(client.acquire("jobs", LONG).unwrap_err().kind(), ErrorKind::Unreachable);
    assert_eq!(client.acquire("jobs", Duration::ZERO).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(client.acquire("", LONG).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn b46_every_address_is_tried_within_the_connect_timeout() {
    let (dead, black_hole) = (DeadAddress::bind(), BlackHole::open());
    // A client that a busy machine keeps waiting may go on to the next without a word.
    let mute = Server::bind().play(|server| server.accept().drains());
    let leaving = Server::bind().play(|server| {
        let mut peer = server.accept();
        peer.sends(&error(0x01));
        peer.drains();
    });
    let living = Server::bind().play(|server| {
        let mut peer = server.accept_claim();
        peer.sends(&acquired(41));
        peer.reads_to_the_end();
    });
    let port = living.address.rsplit_once(':').unwrap().1;
    let client = Client::builder(dead.address())
        .address(black_hole.address())
        .address(&mute.address)
        .address(&leaving.address)
        .address(format!("localhost:{port}"))
        .connect_timeout(PATIENCE)
        .build()
        .unwrap();
    let begun = Instant::now();
    assert_eq!(client.acquire("jobs", LONG).unwrap().token().get(), 41);
    assert!(begun.elapsed() < PATIENCE);
    for play in [mute, leaving, living] {
        play.finish();
    }
}

#[test]
fn b47_acquiring_is_tried_again_and_the_work_runs_once() {
    let clock = StandingClock::default();
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
    let mut runs = 0;
    let failed = client_by(&clock, &play).with_lock_retry("jobs", BRIEF, |held| {
        runs += 1;
        held.wait_lost(PATIENCE).map_or(Err("never lost"), |_| Ok(()))
    });
    assert!(matches!(failed, Err(WithLockError::Lost(error)) if error.server_code() == Some(ErrorCode(0x02))));
    assert_eq!(runs, 1);
    play.finish();
}

#[test]
fn b48_retrying_ends_with_the_wait_limit_or_at_a_refusal() {
    let dead = DeadAddress::bind();
    let limited = builder(&dead.address()).build().unwrap().wait_limit(Duration::from_millis(300));
    assert_eq!(limited.acquire_with_retry("jobs", LONG).unwrap_err().kind(), ErrorKind::WaitTimeout);
    let play = Server::bind().play(|server| server.accept_claim().sends(&error(0x18)));
    let denied = client(&play).acquire_with_retry("jobs", LONG);
    assert_eq!(denied.unwrap_err().kind(), ErrorKind::Denied);
    play.finish();
}

#[test]
fn b10_cancelled_work_keeps_its_lock_until_it_has_ended() {
    let (notes, standing) = (Notes::default(), StandingClock::default());
    let ((is_cancelled, cancelled), (answered, all_answered)) = (mpsc::channel(), mpsc::channel());
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
    let token = client.cancel_on(&cancel).with_lock("jobs", BRIEF, |held| {
        cancel.cancel();
        is_cancelled.send(()).unwrap();
        all_answered.recv().unwrap();
        assert!(held.is_held() && held.is_cancelled());
        notes.note("ended");
        Ok::<_, ()>(held.token().get())
    });
    assert_eq!(token.unwrap(), 41);
    play.finish();
    assert_eq!(notes.all(), ["ended", "closed"]);
}

#[test]
fn b11_the_works_own_error_stands_and_unwinding_closes() {
    let clock = StandingClock::default();
    let play = Server::bind().play({
        let clock = clock.clone();
        move |server| {
            let mut peer = server.accept_claim();
            peer.sends(&acquired(41));
            peer.reads_beat(&clock, BRIEF);
            peer.sends(&error(0x02));
            peer.reads_to_the_end();
            let mut unwinding = server.accept_claim();
            unwinding.sends(&acquired(42));
            unwinding.reads_to_the_end();
        }
    });
    let client = client_by(&clock, &play);
    let failed = client.with_lock("jobs", BRIEF, |held| {
        held.wait_lost(PATIENCE);
        Err::<(), _>("half done")
    });
    match failed.unwrap_err() {
        WithLockError::Work { error: "half done", loss: Some(LossReason::Server { .. }) } => {}
        other @ (WithLockError::Work { .. } | WithLockError::NotAcquired(_) | WithLockError::Lost(_)) => {
            panic!("{other:?}")
        }
    }
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        client.with_lock("jobs", LONG, |_| -> Result<(), ()> { panic!("the work panics") })
    }));
    assert!(unwound.is_err());
    play.finish();
}

#[test]
fn a_caller_is_told_when_its_wait_begins() {
    let (told, waiting) = mpsc::channel();
    let play = Server::bind().play(move |server| {
        let mut queued = server.accept_claim();
        queued.sends(WAITING);
        // The grant comes when the caller knows that it waits.
        waiting.recv().unwrap();
        queued.sends(&acquired(41));
        let mut contended = server.accept_claim();
        contended.sends(WAITING);
        for mut peer in [queued, contended] {
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
    assert_eq!(client.acquire("jobs", LONG).unwrap().token().get(), 41);
    // Who does not wait is not told that it waits.
    let never = |_: Held| -> Result<(), ()> { unreachable!("the body never runs") };
    let failed = client.try_with_lock("contended", LONG, never).unwrap_err();
    assert!(matches!(failed, WithLockError::NotAcquired(error) if error.kind() == ErrorKind::Contended));
    assert_eq!(notes.all(), ["jobs"]);
    play.finish();
}

#[test]
fn b50_a_cancelled_call_returns_at_once_in_every_stage() {
    fn is_cancelled_after(reached: impl FnOnce(), client: &Client) {
        let cancel = Cancel::new();
        let bound = client.cancel_on(&cancel);
        let acquiring = thread::spawn(move || (bound.acquire("jobs", LONG).unwrap_err(), Instant::now()));
        reached();
        let cancelled_at = Instant::now();
        cancel.cancel();
        let (error, returned_at) = acquiring.join().unwrap();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        // 100 ms are promised; a busy test machine gets more.
        assert!(returned_at - cancelled_at < PATIENCE);
        assert_eq!(client.cancel_on(&cancel).acquire("jobs", LONG).unwrap_err().kind(), ErrorKind::Cancelled);
    }

    let (reached, stage) = mpsc::channel();
    let play = Server::bind().play(move |server| {
        for reply in [&[], WAITING] {
            let mut peer = server.accept_claim();
            peer.sends(reply);
            reached.send(()).unwrap();
            peer.reads_to_the_end();
        }
    });
    for _ in 0..2 {
        is_cancelled_after(|| stage.recv().unwrap(), &client(&play));
    }
    play.finish();
    let black_hole = BlackHole::open();
    let unconnected = builder(&black_hole.address()).build().unwrap();
    // A black hole tells nobody when it is reached.
    is_cancelled_after(|| thread::sleep(Duration::from_secs(1)), &unconnected);
}
