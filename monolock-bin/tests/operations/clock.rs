//! The wall clock steps while the server runs.

use std::fs;

use nix::sys::signal::Signal;

use crate::support::{Frame, Server, Watched, monolock};
use crate::wall_clock::WallClock;

const HOUR: i64 = 3600;
const TEN_YEARS: i64 = 10 * 365 * 24 * HOUR;

#[test]
fn b34_a_wall_clock_that_steps_ends_no_hold_early_or_late() {
    let directory = tempfile::tempdir().unwrap();
    let (clock, log) = (WallClock::new(directory.path()), directory.path().join("audit.log"));
    let mut command = monolock([] as [&str; 0]);
    command.arg("--audit-log").arg(&log);
    clock.apply(&mut command);
    let watched = Watched::start_with(command);
    let server = &watched.server;

    let mut holder = server.hold("jobs");
    let mut waiter = server.queue("jobs");
    let mut last_token = 0;
    for step in [HOUR, -HOUR, TEN_YEARS, -TEN_YEARS, 0] {
        clock.set(step);
        for (session, frame) in [(&mut holder, None), (&mut waiter, Some(Frame::Waiting))] {
            session.heartbeat();
            match frame {
                Some(frame) => session.expect(frame),
                None => drop(session.expect_acquired()),
            }
        }
        // It is granted now, and silent: out after its half second.
        let mut short = server.connect();
        short.acquire("short", 500);
        let token = short.expect_acquired();
        assert!(token > last_token, "tokens rise whatever the wall clock says");
        last_token = token;
        clock.set(-step);
        short.expect(Frame::End);
        let longest = watched.metric("monolock_longest_hold_seconds");
        assert!((0.0..60.0).contains(&longest), "{longest}");
    }
    drop(holder);
    waiter.expect_acquired();
    drop(waiter);
    for event in crate::support::expect_events(&log, 2 * 5 + 4) {
        for measured in ["held_ms", "wait_ms"] {
            assert!(event[measured].as_u64().is_none_or(|ms| ms < 60_000), "{event}");
        }
    }
}

/// Takes a lock and lets it go.
#[track_caller]
fn token(server: &Server) -> u64 {
    let mut session = server.connect();
    session.acquire("jobs", 60_000);
    loop {
        match session.frame() {
            Frame::Acquired(token) => return token,
            // The one before is on its way out.
            Frame::Waiting => {}
            other @ (Frame::Error(_) | Frame::End) => panic!("{other:?}"),
        }
    }
}

#[test]
fn b35_tokens_rise_across_a_restart_with_the_clock_an_hour_back() {
    let directory = tempfile::tempdir().unwrap();
    let clock = WallClock::new(directory.path());
    let mut last = 0;
    for step in [0, -HOUR, -TEN_YEARS, TEN_YEARS, 0] {
        clock.set(step);
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            let mut command = monolock(["--listen", "127.0.0.1:0", "--token-file"]);
            command.arg(directory.path().join("tokens"));
            clock.apply(&mut command);
            let mut server = Server::start_with(command);
            for _ in 0..3 {
                let token = token(&server);
                assert!(token > last, "{token} after {last}");
                last = token;
            }
            server.process.signal(signal);
            server.process.status();
        }
    }
}

#[test]
fn a_mark_that_cannot_be_written_is_told_at_once_and_grants_go_on_from_the_reserve() {
    let directory = tempfile::tempdir().unwrap();
    let clock = WallClock::new(directory.path());
    let state = directory.path().join("state");
    fs::create_dir(&state).unwrap();
    let mut command = monolock(["--token-file"]);
    command.arg(state.join("tokens"));
    clock.apply(&mut command);
    let mut watched = Watched::start_with(command);
    let before = token(&watched.server);
    let errors = "monolock_token_file_errors_total";
    assert!(watched.metric(errors).abs() < 0.5);

    // Root writes where nobody may, so the directory goes altogether.
    let away = directory.path().join("away");
    fs::rename(&state, &away).unwrap();
    for step in [HOUR * 3 / 4, 2 * HOUR] {
        clock.set(step);
        watched.expect_metric(errors, |count| count > 0.5);
        assert!(token(&watched.server) > before, "grants go on");
    }
    let told = watched.server.process.stderr_line("the token file cannot be written");
    assert!(told.contains("ERROR"), "{told}");

    let old = fs::read_to_string(away.join("tokens")).unwrap();
    fs::rename(&away, &state).unwrap();
    let mark = || fs::read_to_string(state.join("tokens")).unwrap();
    crate::support::until(|| mark() != old, || "nothing is written though it could be".to_owned());
    assert!(token(&watched.server) > before);
    watched.server.process.signal(Signal::SIGTERM);
    assert_eq!(watched.server.process.status(), 0);
}
