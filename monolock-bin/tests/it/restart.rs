//! Across a restart: the grace in which nobody is granted, and the file that keeps the tokens rising.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::{Frame, Server, Watched, assert_fails, http, http_get, logged_address, monolock, words};

#[test]
fn in_the_grace_claims_queue_in_order_and_nobody_is_granted() {
    const GRACE: Duration = Duration::from_secs(10);
    let begun = Instant::now();
    let watched = Watched::start(words("--start-grace 10s --admin-listen 127.0.0.1:0"));
    let server = &watched.server;
    let mut sessions: Vec<_> = (0..4).map(|_| server.queue("jobs")).collect();
    let mut elsewhere = server.queue("elsewhere");
    assert!(begun.elapsed() < GRACE, "the machine is too slow for this test");
    let remaining = watched.metric("monolock_start_grace_seconds");
    assert!(remaining <= 10.0);
    for session in &mut sessions {
        session.heartbeat();
    }
    // A waiter may leave meanwhile; the order of the rest is theirs.
    drop(sessions.remove(1));

    elsewhere.expect_acquired();
    assert!(begun.elapsed() >= GRACE);
    for mut session in sessions {
        // The answer to its heartbeat came before.
        session.expect(Frame::Waiting);
        session.expect_acquired();
    }
    assert!(watched.metric("monolock_start_grace_seconds").abs() < f64::EPSILON);
}

#[test]
fn the_admin_api_shows_the_grace_and_works_in_it() {
    let server =
        Server::start_with(monolock(words("--listen 127.0.0.1:0 --start-grace 1h --admin-listen 127.0.0.1:0")));
    let admin = logged_address(&server.process.stderr_line("serving the admin API"));
    let info: Value = serde_json::from_str(&http_get(admin, "/api/info")).unwrap();
    let remaining = info["start_grace_remaining_ms"].as_u64().unwrap();
    assert!(remaining > 3_000_000 && remaining <= 3_600_000, "{info}");

    let mut waiter = server.queue("jobs");
    let lock: Value = serde_json::from_str(&http_get(admin, "/api/locks/jobs")).unwrap();
    assert_eq!(lock["holder"], Value::Null);
    http(admin, "DELETE", &format!("/api/locks/jobs/waiters/{}", lock["waiters"][0]["session"]));
    waiter.expect(Frame::Error(0x02));
    server.process.signal(Signal::SIGTERM);
}

fn with_tokens(file: &Path) -> Command {
    let mut command = monolock(words("--listen 127.0.0.1:0 --token-file"));
    command.arg(file);
    command
}

/// The mark in a token file.
fn mark(file: &Path) -> u64 {
    let text = fs::read_to_string(file).unwrap();
    let mark = text.split(' ').nth(2).and_then(|mark| mark.parse().ok());
    mark.unwrap_or_else(|| panic!("no mark in {text:?}"))
}

/// Writes a token file as a server would have left it.
fn write_mark(file: &Path, mark: u64) {
    fs::write(file, format!("monolock-tokens 1 {mark} {mark:x}\n")).unwrap();
}

fn token_of(server: &Server) -> u64 {
    let mut session = server.connect();
    session.acquire("jobs", 60_000);
    session.expect_acquired()
}

#[test]
fn b35_tokens_rise_over_stops_and_crashes_though_the_wall_clock_is_far_behind() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens");
    // The year 2100: as if the wall clock had been there and was set back since.
    let mark_of_2100 = 4_102_444_800 << 20;
    write_mark(&file, mark_of_2100);

    let mut server = Server::start_with(with_tokens(&file));
    let first = token_of(&server);
    assert_eq!(first, mark_of_2100, "a start begins at the mark");
    assert!(mark(&file) > first, "what may be granted is written before it is");
    server.process.signal(Signal::SIGTERM);
    assert_eq!(server.process.status(), 0);
    assert_eq!(mark(&file), first + 1, "a stop gives back what was not granted");

    let mut server = Server::start_with(with_tokens(&file));
    let second = token_of(&server);
    assert_eq!(second, first + 1);
    server.process.signal(Signal::SIGKILL);
    assert_eq!(server.process.status(), 137);

    let server = Server::start_with(with_tokens(&file));
    assert!(token_of(&server) > second);
}

#[test]
fn a_server_of_the_present_begins_at_the_present() {
    let directory = tempfile::tempdir().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let server = Server::start_with(with_tokens(&directory.path().join("tokens")));
    assert!(token_of(&server) >= now << 20);
}

#[test]
fn a_token_file_that_cannot_be_used_is_named_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens");
    let path = file.display();
    let mut server = Server::start_with(with_tokens(&file));
    assert_fails(&mut with_tokens(&file), 1, &format!("--token-file {path}: another server uses it"));
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    assert_fails(&mut with_tokens(&link), 1, &format!("--token-file {path}: another server uses it"));
    server.process.signal(Signal::SIGKILL);
    assert_eq!(server.process.status(), 137);

    let damaged = format!(
        "--token-file {path}: it is damaged; restore it, or remove it if the wall clock is right and no token of this server is newer than it"
    );
    for text in ["", "monolock-tokens 1 17 12\n", "monolock-tokens 2 17 11\n", "17\n"] {
        fs::write(&file, text).unwrap();
        assert_fails(&mut with_tokens(&file), 1, &damaged);
        assert_eq!(fs::read_to_string(&file).unwrap(), text, "it is left as it is");
    }
    let missing = directory.path().join("missing").join("tokens");
    let sentence = format!("--token-file {}: No such file or directory (os error 2)", missing.display());
    assert_fails(&mut with_tokens(&missing), 1, &sentence);
}
