//! The audit log: what stands in it, in which order, and what a sink that fails costs.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{
    Frame, PATIENCE, Server, Session, Watched, assert_complete, audit_events, expect_events, http, http_get,
    logged_address, monolock, outcome, outline, until, words,
};

/// A directory, and where the audit log is to be in it.
fn place() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("audit.log");
    (directory, log)
}

fn with_audit(log: &Path, flags: &str) -> Command {
    let mut command = monolock(words(flags));
    command.arg("--audit-log").arg(log);
    command
}

fn fields(event: &Value) -> Vec<&str> {
    event.as_object().unwrap().keys().map(String::as_str).collect()
}

/// The reading end of a named pipe, which waits for nobody who writes.
fn reader_of(pipe: &Path) -> File {
    let reader = File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(pipe).unwrap();
    fcntl(&reader, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    reader
}

/// Names of locks, each another: who claims a lock right after its holder has gone may find it held.
fn numbered(name: &str) -> impl FnMut() -> String {
    let mut numbers = 0..;
    move || format!("{name}/{}", numbers.next().unwrap())
}

/// Claims a lock and lets it go, so many times from several clients at once.
fn churn(address: SocketAddr, rounds: usize) {
    const CLIENTS: usize = 4;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            thread::spawn(move || {
                for _ in 0..rounds / CLIENTS {
                    let mut session = Session::connect(address);
                    session.acquire(&format!("churn/{client}"), 60_000);
                    while session.frame() == Frame::Waiting {}
                }
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
}

#[test]
fn each_event_has_its_own_fields_and_each_end_its_reason() {
    let (_directory, log) = place();
    let mut server =
        Server::start_with(with_audit(&log, "--listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --io-timeout 1s"));
    let admin = logged_address(&server.process.stderr_line("serving the admin API"));

    let address = {
        let graceful = server.hold("graceful");
        graceful.stream.local_addr().unwrap().to_string()
    };
    let mut expired = server.connect();
    expired.acquire("expired", 50);
    expired.expect_acquired();
    expired.expect(Frame::End);

    let mut clogged = server.hold("io_timeout");
    clogged.clog();

    let mut broken = server.hold("protocol_error");
    broken.send(&[0x7f]);
    broken.expect(Frame::Error(0x13));

    let mut forced = server.hold("force");
    let mut kicked = server.queue("force");
    let lock: Value = serde_json::from_str(&http_get(admin, "/api/locks/force")).unwrap();
    http(admin, "DELETE", &format!("/api/locks/force/waiters/{}", lock["waiters"][0]["session"]));
    kicked.expect(Frame::Error(0x02));
    http(admin, "POST", "/api/locks/force/release");
    forced.expect(Frame::Error(0x02));

    let mut stopped = server.hold("shutdown");
    expect_events(&log, 6 * 2 + 2 - 1);
    server.process.signal(Signal::SIGTERM);
    stopped.expect(Frame::Error(0x01));
    assert_eq!(server.process.status(), 0);

    let events = audit_events(&fs::read_to_string(&log).unwrap());
    assert_complete(&events);
    let common = ["event", "identity", "lock", "remote_addr", "time"];
    for event in &events {
        let own: Vec<_> = fields(event).into_iter().filter(|field| !common.contains(field)).collect();
        let expected: &[&str] = match event["event"].as_str().unwrap() {
            "granted" => &["token", "wait_ms"],
            "released" => &["held_ms", "reason", "token"],
            "force_release" => &["token"],
            "kick_waiter" => &[],
            _ => panic!("an unknown event: {event}"),
        };
        assert_eq!(own, expected);
        assert_eq!(fields(event).len(), common.len() + own.len());
        assert!(humantime::parse_rfc3339(event["time"].as_str().unwrap()).is_ok(), "{event}");
        if event["event"] == "released" {
            assert_eq!(event["reason"], event["lock"], "the locks are named by the reasons");
        }
    }
    assert_eq!(events[0]["remote_addr"], address.as_str());
    assert_eq!(events.iter().filter(|event| event["event"] == "released").count(), 6);
    let of_force: Vec<_> = events.iter().filter(|event| event["lock"] == "force").cloned().collect();
    assert_eq!(outline(&of_force), ["granted force", "kick_waiter force", "force_release force", "released force"]);
}

#[test]
fn a_wait_and_a_hold_are_measured() {
    let (_directory, log) = place();
    let server = Server::start_with(with_audit(&log, "--listen 127.0.0.1:0"));
    let holder = server.hold("jobs");
    let mut waiter = server.queue("jobs");
    thread::sleep(std::time::Duration::from_millis(30));
    drop(holder);
    waiter.expect_acquired();
    let events = expect_events(&log, 3);
    assert_eq!(outline(&events), ["granted jobs", "released jobs", "granted jobs"]);
    assert_eq!(events[0]["wait_ms"], 0);
    assert!(events[1]["held_ms"].as_u64() >= Some(30) && events[2]["wait_ms"].as_u64() >= Some(29), "{events:#?}");
    assert!(events[2]["token"].as_u64() > events[0]["token"].as_u64());
}

#[test]
fn b52_no_name_breaks_its_line_or_reaches_a_terminal_raw() {
    let names = [
        "two\nlines\r\n",
        "{\"event\":\"granted\"}",
        "quote\" back\\slash /",
        "\0nul",
        "\x1b[31mred\x1b[0m",
        "bell\x07 delete\x7f c1\u{9b}31m",
        "\u{202e}drawkcab \u{200f}\u{2066}",
        "line\u{2028}separators\u{2029}",
        "zero\u{200b}width \u{feff}",
        "Zoë 日本語 🔒",
        "\u{e000}\u{10fffd}",
    ];
    let (_directory, log) = place();
    let server = Server::start_with(with_audit(&log, "--listen 127.0.0.1:0"));
    for name in names {
        server.hold(name);
    }
    let events = expect_events(&log, 2 * names.len());
    assert_complete(&events);
    let granted = events.iter().filter(|event| event["event"] == "granted");
    let read: Vec<_> = granted.map(|event| event["lock"].as_str().unwrap()).collect();
    assert_eq!(read, names);

    let text = fs::read_to_string(&log).unwrap();
    let is_raw = |c: char| {
        c != '\n' && (c.is_control() || "\u{202e}\u{200f}\u{2066}\u{2028}\u{2029}\u{200b}\u{feff}".contains(c))
    };
    assert_eq!(text.chars().find(|c| is_raw(*c)), None);
    assert!(text.contains("Zoë 日本語 🔒"), "what prints is left as it is");
}

#[test]
fn b64_every_grant_has_one_end_before_the_next_also_when_clients_are_killed_and_at_a_stop() {
    const CLIENTS: usize = 16;
    let (_directory, log) = place();
    let mut server = Server::start_with(with_audit(&log, "--listen 127.0.0.1:0"));
    let address = server.address;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            thread::spawn(move || {
                for round in 0.. {
                    // A stop ends the rounds: nobody listens any more, or code 01 came.
                    let Some(mut session) = Session::try_connect(address) else { return };
                    session.acquire(&format!("jobs/{}", round % 3), 60_000);
                    if (client + round) % 3 > 0 {
                        let mut frame = session.frame();
                        while frame == Frame::Waiting {
                            frame = session.frame();
                        }
                        if !matches!(frame, Frame::Acquired(_)) {
                            return;
                        }
                    }
                    if round % 2 == 0 {
                        session.reset();
                    }
                }
            })
        })
        .collect();
    // The others may all be between two claims when the stop comes.
    let _held = server.hold("held");
    expect_events(&log, 2000);
    server.process.signal(Signal::SIGTERM);
    assert_eq!(server.process.status(), 0);
    for client in clients {
        client.join().unwrap();
    }
    let events = audit_events(&fs::read_to_string(&log).unwrap());
    assert_complete(&events);
    assert!(events.iter().any(|event| event["reason"] == "shutdown"));
}

#[test]
fn b64_a_renamed_file_is_written_until_the_hang_up_and_its_place_is_left_free() {
    let (_directory, log) = place();
    let server = Server::start_with(with_audit(&log, "--listen 127.0.0.1:0"));
    let old = log.with_extension("1");
    fs::rename(&log, &old).unwrap();
    server.hold("before");
    assert_eq!(outline(&expect_events(&old, 2)), ["granted before", "released before"]);
    assert!(!log.exists(), "whoever renamed it may make the new one");
    server.process.signal(Signal::SIGHUP);
    until(|| log.exists(), || "it is not opened anew".to_owned());
    server.hold("after");
    assert_eq!(outline(&expect_events(&log, 2)), ["granted after", "released after"]);
    assert_eq!(expect_events(&old, 2).len(), 2);
}

#[test]
fn the_log_may_be_standard_output() {
    let mut server = Server::start_with(monolock(words("--listen 127.0.0.1:0 --audit-log -")));
    server.hold("jobs");
    let lines = [server.process.line(), server.process.line()];
    let events = audit_events(&(lines.join("\n") + "\n"));
    assert_eq!(outline(&events), ["granted jobs", "released jobs"]);
    server.process.signal(Signal::SIGTERM);
    assert_eq!(server.process.status(), 0);
}

#[test]
fn a_log_that_cannot_be_opened_is_named_at_the_start() {
    let (directory, log) = place();
    let log = log.join("deeper.log");
    let sentence = format!("cannot open the audit log {}: No such file or directory (os error 2)", log.display());
    crate::support::assert_fails(&mut with_audit(&log, "--listen 127.0.0.1:0"), 1, &sentence);
    drop(directory);
}

/// A server whose files may not grow beyond 16 KiB, until somebody allows it.
fn with_full_disk(log: &Path, flags: &str) -> Command {
    let program = with_audit(log, flags);
    let mut command = Command::new("sh");
    // The shell counts in blocks of 512 bytes.
    command.args(["-c", "ulimit -S -f 32; exec \"$0\" \"$@\""]).arg(program.get_program()).args(program.get_args());
    command
}

#[test]
#[cfg(target_os = "linux")]
fn b63_a_full_disk_costs_no_lock_and_the_log_goes_on_when_there_is_room() {
    let (_directory, log) = place();
    let mut server = Server::start_with(with_full_disk(&log, "--listen 127.0.0.1:0"));
    let mut holder = server.hold("jobs");
    // More than fits once, and less than fits twice.
    churn(server.address, 72);
    server.process.stderr_line("the audit log cannot be written");
    holder.heartbeat();
    holder.expect_acquired();
    server.hold("another");
    assert_eq!(fs::metadata(&log).unwrap().len(), 16 << 10);

    let pid = server.process.pid.to_string();
    assert_eq!(outcome(Command::new("prlimit").args(["--fsize=unlimited:", "--pid", &pid])).status, 0);
    server.process.stderr_line("the audit log is written again");
    drop(holder);
    assert_complete(&expect_events(&log, 2 * 74));
    server.process.signal(Signal::SIGTERM);
    assert_eq!(server.process.status(), 0);
}

#[test]
fn b63_a_line_that_was_broken_off_stands_whole_in_the_next_file() {
    let (_directory, log) = place();
    let mut server = Server::start_with(with_full_disk(&log, "--listen 127.0.0.1:0"));
    churn(server.address, 72);
    server.process.stderr_line("the audit log cannot be written");
    // Renamed, as for a rotation, and asked for anew.
    let old = log.with_extension("1");
    fs::rename(&log, &old).unwrap();
    server.process.signal(Signal::SIGHUP);
    let text = fs::read_to_string(&old).unwrap();
    let text = &text[..=text.rfind('\n').unwrap()];
    let rest = expect_events(&log, 2 * 72 - audit_events(text).len());
    assert_complete(&[audit_events(text), rest].concat());
    server.process.signal(Signal::SIGTERM);
    assert_eq!(server.process.status(), 0);
}

#[test]
fn b63_a_sink_that_fails_ends_a_server_that_must_not_go_on_without_it() {
    let mut server = Server::start_with(with_audit("/dev/full".as_ref(), "--listen 127.0.0.1:0 --audit-failure exit"));
    let mut session = server.connect();
    session.acquire("jobs", 60_000);
    while session.frame() != Frame::Error(0x01) {}
    assert_eq!(server.process.status(), 1);
    let said = server.process.stderr_rest();
    assert_eq!(said.last().unwrap(), "monolock: stopped: the audit log could not be written (--audit-log)");
}

#[test]
fn b63_a_sink_that_fails_is_told_once_to_a_server_that_goes_on() {
    let mut server = Server::start_with(with_audit("/dev/full".as_ref(), "--listen 127.0.0.1:0 --io-timeout 1s"));
    churn(server.address, 200);
    let mut holder = server.hold("jobs");
    holder.heartbeat();
    holder.expect_acquired();
    server.process.signal(Signal::SIGTERM);
    assert_eq!(server.process.status(), 0);
    let said = server.process.stderr_rest();
    assert_eq!(said.iter().filter(|line| line.contains("the audit log cannot be written")).count(), 1, "{said:#?}");
    assert!(said.iter().any(|line| line.contains("the audit log lacks its last lines")), "{said:#?}");
}

#[test]
fn b63_a_file_that_was_deleted_is_made_anew() {
    let (_directory, log) = place();
    let server = Server::start_with(with_audit(&log, "--listen 127.0.0.1:0"));
    server.hold("before");
    expect_events(&log, 2);
    fs::remove_file(&log).unwrap();
    until(|| log.exists(), || "the file does not come back".to_owned());
    fs::remove_file(&log).unwrap();
    server.hold("after");
    assert_eq!(outline(&expect_events(&log, 2)), ["granted after", "released after"]);
}

#[test]
fn b63_a_file_that_was_deleted_with_its_directory_is_made_anew_when_it_can_be() {
    let (_directory, log) = place();
    let log = log.with_file_name("deeper").join("audit.log");
    fs::create_dir(log.parent().unwrap()).unwrap();
    let mut server = Server::start_with(with_audit(&log, "--listen 127.0.0.1:0"));
    fs::remove_dir_all(log.parent().unwrap()).unwrap();
    let mut meanwhile = numbered("meanwhile");
    until(
        || {
            server.hold(&meanwhile());
            server.process.stderr_lines_so_far().iter().any(|line| line.contains("the audit log cannot be written"))
        },
        || "nothing is said".to_owned(),
    );
    fs::create_dir(log.parent().unwrap()).unwrap();
    server.process.stderr_line("the audit log is written again");
    // The end of the last hold may not be written yet.
    server.process.signal(Signal::SIGTERM);
    server.process.status();
    assert_complete(&expect_events(&log, 2));
}

#[test]
fn b63_a_pipe_whose_reader_dies_is_written_again_for_the_next() {
    let (_directory, log) = place();
    mkfifo(&log, Mode::S_IRWXU).unwrap();
    let reader = reader_of(&log);
    let server = Server::start_with(with_audit(&log, "--listen 127.0.0.1:0"));
    server.hold("first");
    drop(reader);
    let mut unheard = numbered("unheard");
    until(
        || {
            server.hold(&unheard());
            server.process.stderr_lines_so_far().iter().any(|line| line.contains("the audit log cannot be written"))
        },
        || "nothing is said".to_owned(),
    );
    let mut reader = BufReader::new(File::open(&log).unwrap());
    server.process.stderr_line("the audit log is written again");
    server.hold("heard");
    let mut line = String::new();
    while !line.contains("\"lock\":\"heard\"") {
        line.clear();
        reader.read_line(&mut line).unwrap();
        audit_events(&line);
    }
}

#[test]
fn b63_a_pipe_that_nobody_reads_yet_is_waited_for_unless_the_log_must_be_whole() {
    let (_directory, log) = place();
    mkfifo(&log, Mode::S_IRWXU).unwrap();
    let sentence = format!("cannot open the audit log {}: No such device or address (os error 6)", log.display());
    crate::support::assert_fails(&mut with_audit(&log, "--listen 127.0.0.1:0 --audit-failure exit"), 1, &sentence);

    let server = Server::start_with(with_audit(&log, "--listen 127.0.0.1:0"));
    server.hold("jobs");
    let mut reader = BufReader::new(File::open(&log).unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert_eq!(outline(&audit_events(&line)), ["granted jobs"]);
}

/// The server writes into a pipe that is read again only after far more events than there is room for.
fn let_the_reader_stand_still(pipe: &Path, command: Command) {
    const ROUNDS: usize = 10_000;
    mkfifo(pipe, Mode::S_IRWXU).unwrap();
    let reader = reader_of(pipe);
    let mut watched = Watched::start_with(command);
    let mut holder = watched.server.hold("jobs");
    churn(watched.server.address, ROUNDS);
    holder.heartbeat();
    holder.expect_acquired();
    watched.expect_metric("monolock_releases_total{reason=\"graceful\"}", |count| count > 9999.5);
    let dropped = watched.metric("monolock_audit_dropped_total");
    assert!(dropped > 0.0);

    let (sender, lines) = channel();
    thread::spawn(move || BufReader::new(reader).lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    // What is taken now finds room again.
    let mut later = numbered("later");
    until(
        || {
            let before = watched.metric("monolock_audit_dropped_total");
            watched.server.hold(&later());
            (watched.metric("monolock_audit_dropped_total") - before).abs() < 0.5
        },
        || "events find no room though they are read".to_owned(),
    );
    drop(holder);
    let mut events = Vec::new();
    while outline(&events[events.len().saturating_sub(1)..]) != ["released jobs"] {
        events.extend(audit_events(&(lines.recv_timeout(PATIENCE).unwrap() + "\n")));
    }
    watched.server.process.signal(Signal::SIGTERM);
    assert_eq!(watched.server.process.status(), 0);
    let of_churn = events.iter().filter(|event| event["lock"].as_str().unwrap().starts_with("churn/")).count();
    #[expect(clippy::cast_precision_loss, reason = "there are thousands")]
    let missing = (2 * ROUNDS - of_churn) as f64;
    assert!((missing - dropped).abs() < 0.5, "{missing} are missing, {dropped} were dropped");
}

#[test]
fn b63_a_reader_that_stands_still_costs_events_and_no_lock_and_what_it_reads_later_is_whole() {
    let (_directory, log) = place();
    let_the_reader_stand_still(&log, with_audit(&log, ""));
}

#[test]
fn b63_so_does_a_reader_of_standard_output() {
    let (_directory, pipe) = place();
    let program = monolock(words("--audit-log -"));
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" \"$@\" >\"$PIPE\""]).env("PIPE", &pipe);
    command.arg(program.get_program()).args(program.get_args());
    let_the_reader_stand_still(&pipe, command);
}

#[test]
fn b63_events_that_find_no_room_end_a_server_that_must_not_go_on_without_them() {
    let (_directory, log) = place();
    mkfifo(&log, Mode::S_IRWXU).unwrap();
    let _reader = reader_of(&log);
    let mut server = Server::start_with(with_audit(&log, "--listen 127.0.0.1:0 --audit-failure exit"));
    while let Some(mut session) = Session::try_connect(server.address) {
        session.acquire("jobs", 60_000);
        if session.frame() == Frame::Error(0x01) {
            break;
        }
    }
    assert_eq!(server.process.status(), 1);
}
