//! What an operator asks the admin API by the command, and is told.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;

use serde_json::{Value, json};

use crate::support::{Ended, Frame, Nobody, Server, Session, assert_fails, logged_address, monolock, outcome, words};

/// A server with an admin API.
pub(crate) struct Administered {
    pub(crate) server: Server,
    pub(crate) admin: SocketAddr,
}

impl Administered {
    pub(crate) fn start() -> Self {
        Self::start_with("")
    }

    pub(crate) fn start_with(flags: &str) -> Self {
        let mut command = monolock(words("--listen 127.0.0.1:0 --admin-listen 127.0.0.1:0"));
        command.args(words(flags));
        let server = Server::start_with(command);
        let admin = logged_address(&server.process.stderr_line("serving the admin API"));
        Self { server, admin }
    }

    /// The command, asking this server.
    pub(crate) fn monolock(&self, line: &str) -> Command {
        asking(self.admin, &words(line))
    }

    fn said(&self, line: &str) -> String {
        said(&mut self.monolock(line))
    }

    fn shown(&self, line: &str) -> Value {
        serde_json::from_str(&self.said(line)).unwrap()
    }
}

/// The command, asking the admin API at this address.
pub(crate) fn asking(admin: SocketAddr, arguments: &[&str]) -> Command {
    let mut command = monolock(arguments);
    command.env("MONOLOCK_ADMIN_ADDRESS", admin.to_string());
    command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE").env_remove("CLICOLOR");
    command
}

/// What a command says that succeeds and has nothing to complain about.
#[track_caller]
fn said(command: &mut Command) -> String {
    let Ended { status, stdout, stderr } = outcome(command);
    assert_eq!((status, stderr.as_str()), (0, ""), "{stdout}");
    stdout
}

/// The cells of a table's line.
fn cells(line: &str) -> Vec<&str> {
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

fn address_of(session: &Session) -> String {
    session.stream.local_addr().unwrap().to_string()
}

#[test]
fn a_client_by_ipv4_is_known_by_that_address_on_a_socket_for_both_families_too() {
    let administered = Administered::start_with("--listen :0");
    let mut session = Session::connect(([127, 0, 0, 1], administered.server.address.port()).into());
    session.acquire("jobs", 60_000);
    session.expect_acquired();
    let own = session.stream.local_addr().unwrap().to_string();
    assert_eq!(administered.shown("lock jobs --json")["holder"]["remote_addr"], own.as_str());
}

#[test]
fn the_four_questions_of_the_night_have_answers() {
    let administered = Administered::start();
    let server = &administered.server;
    let mut holder = server.connect();
    holder.acquire("nightly/import", 60_000);
    let token = holder.expect_acquired().to_string();
    let waiters = [server.queue("nightly/import"), server.queue_with("nightly/import", 3_600_000)];
    let _other = server.hold("other");

    let locks = administered.said("locks");
    let lines: Vec<&str> = locks.lines().collect();
    assert_eq!(cells(lines[0]), ["NAME", "HOLDER", "HELD FOR", "WAITERS", "LONGEST WAIT", "TOKEN"]);
    let row = cells(lines[1]);
    assert_eq!([row[0], row[1], row[3], row[5]], ["nightly/import", &address_of(&holder), "2", &token], "{locks}");
    assert!(row[2].ends_with('s') && row[4].ends_with('s'), "{locks}");
    assert_eq!([cells(lines[2])[0], cells(lines[2])[3], cells(lines[2])[4]], ["other", "0", "-"], "{locks}");
    assert_eq!(lines.len(), 3);
    assert_eq!(administered.said("locks nightly/*").lines().count(), 2);
    assert_eq!(administered.said("locks x?"), "nobody claims a lock whose name matches \"x?\"\n");

    let lock = administered.said("lock nightly/import");
    let api = administered.shown("lock nightly/import --json");
    let lines: Vec<&str> = lock.lines().collect();
    assert_eq!(lines[0], "nightly/import");
    assert_eq!(lines[1], format!("held by  {}", address_of(&holder)));
    let since = api["holder"]["since"].as_str().unwrap()[..19].replace('T', " ");
    assert!(lines[2].starts_with(&format!("since    {since} UTC, for ")), "{lock}");
    assert_eq!(lines[3], format!("token    {token}"));
    assert_eq!(lines[4], format!("session  {}", api["holder"]["session"]));
    assert!(lines[5].starts_with("lease    1m, ") && lines[5].ends_with("s left"), "{lock}");
    assert_eq!(lines[6..8], ["", "2 wait:"], "{lock}");
    assert_eq!(cells(lines[8]), ["#", "ADDRESS", "SESSION", "WAITS FOR", "LEASE"]);
    for (place, waiter) in waiters.iter().enumerate() {
        let row = cells(lines[9 + place]);
        let session = api["waiters"][place]["session"].to_string();
        assert_eq!([row[0], row[1], row[2]], [&(place + 1).to_string(), &address_of(waiter), &session], "{lock}");
    }
    assert!(lines[9].contains(" 1m, ") && lines[10].contains(" 1h, "), "{lock}");

    let info = administered.said("info");
    let said = |what: &str| cells(info.lines().find(|line| line.starts_with(what)).unwrap())[1].to_owned();
    assert_eq!(
        info.lines().next().unwrap(),
        format!("monolock {} at {}", env!("CARGO_PKG_VERSION"), administered.admin)
    );
    assert_eq!([said("locks"), said("sessions"), said("TLS")], ["2", "4", "off"], "{info}");
    assert_eq!(administered.shown("info --json")["sessions"], 4);
}

#[test]
fn where_nobody_claims_anything_that_is_said() {
    let administered = Administered::start();
    assert_eq!(administered.said("locks"), "nobody claims a lock\n");
    assert_eq!(administered.said("locks --json"), "{\"locks\":[]}\n");
    assert_fails(&mut administered.monolock("lock jobs"), 3, "nobody claims the lock \"jobs\"");
    assert_fails(&mut administered.monolock("release jobs --token 41"), 3, "nobody holds the lock \"jobs\"");
    assert_fails(&mut administered.monolock("release jobs --yes"), 3, "nobody claims the lock \"jobs\"");
    assert_fails(&mut administered.monolock("kick jobs 7"), 3, "nobody claims the lock \"jobs\"");

    let early = Administered::start_with("--start-grace 1h");
    let _waiter = early.server.queue("jobs");
    assert_eq!(cells(early.said("locks").lines().nth(1).unwrap())[..3], ["jobs", "nobody yet", "-"]);
    assert!(early.said("lock jobs").contains("nobody yet: the server grants nothing so soon after its start"));
    assert!(early.said("info").contains("nobody is granted anything for 59m "));
    assert_fails(&mut early.monolock("release jobs --yes"), 3, "nobody holds the lock \"jobs\"");
}

#[test]
fn b24_a_release_ends_the_claim_that_was_meant_or_none() {
    let administered = Administered::start();
    let server = &administered.server;
    let mut first = server.connect();
    first.acquire("jobs", 60_000);
    let token = first.expect_acquired();
    let mut second = server.queue("jobs");

    let needs = "release needs --token or --yes where nobody can be asked: standard input and error are no terminal";
    assert_fails(&mut administered.monolock("release jobs"), 2, needs);
    let other = format!(
        "nothing was done: the lock \"jobs\" is not held under token 41, but under {token}, by {} (session {})",
        address_of(&first),
        administered.shown("lock jobs --json")["holder"]["session"]
    );
    assert_fails(&mut administered.monolock("release jobs --token 41"), 4, &other);
    first.heartbeat();
    first.expect(Frame::Acquired(token));

    let released = administered.said(&format!("release jobs -token {token}"));
    assert!(released.starts_with(&format!("released \"jobs\", which {} (session ", address_of(&first))), "{released}");
    assert!(released.ends_with(&format!(" under token {token}\n")), "{released}");
    first.expect(Frame::Error(0x02));
    second.expect_acquired();

    let released = administered.shown("release jobs --yes --json");
    assert_eq!(released["holder"]["remote_addr"], address_of(&second));
    second.expect(Frame::Error(0x02));
}

#[test]
fn b25_a_kick_hits_the_one_waiter_that_was_meant_or_none() {
    let administered = Administered::start();
    let server = &administered.server;
    let holder = server.hold("jobs");
    let mut waiters: Vec<Session> = (0..4).map(|_| server.queue("jobs")).collect();
    let lock = administered.shown("lock jobs --json");
    let session = |place: usize| lock["waiters"][place]["session"].to_string();
    let named = |place: usize| format!("{} (session {})", address_of(&waiters[place]), session(place));

    let several = [0, 1, 2, 3].map(named).join(", ");
    let several = format!("nothing was done: 127.0.0.1 fits 4 waiters, so name one by its session: {several}");
    assert_fails(&mut administered.monolock("kick jobs 127.0.0.1"), 4, &several);
    let kicked = administered.said(&format!("kick jobs {}", session(2)));
    assert!(kicked.starts_with(&format!("removed {} from the queue of \"jobs\" after ", named(2))), "{kicked}");
    let kicked = administered.shown(&format!("kick jobs {} --json", address_of(&waiters[1])));
    assert_eq!(kicked["waiter"]["session"].to_string(), session(1));
    let gone = format!("no {} waits for the lock \"jobs\"", session(2));
    assert_fails(&mut administered.monolock(&format!("kick jobs {}", session(2))), 3, &gone);
    assert_fails(&mut administered.monolock("kick jobs somebody"), 3, "no somebody waits for the lock \"jobs\"");
    let holds = format!(
        "{} (session {}) holds the lock \"jobs\" and does not wait: monolock release ends its claim",
        address_of(&holder),
        lock["holder"]["session"]
    );
    assert_fails(&mut administered.monolock(&format!("kick jobs {}", address_of(&holder))), 3, &holds);

    waiters[2].expect(Frame::Error(0x02));
    waiters[1].expect(Frame::Error(0x02));
    for place in [0, 3] {
        waiters[place].heartbeat();
        waiters[place].expect(Frame::Waiting);
    }
}

#[test]
fn b52_hostile_names_are_shown_and_do_nothing() {
    const NAME: &str = "\u{1b}[2J\u{202e}a\r\nb\u{9b}31m 锁";
    let administered = Administered::start();
    let _holder = administered.server.hold(NAME);
    let shown = r"\u{1b}[2J\u{202e}a\r\nb\u{9b}31m 锁";
    assert!(administered.said("locks").lines().nth(1).unwrap().starts_with(&format!("{shown}  127.0.0.1:")));
    let mut lock = asking(administered.admin, &["lock", NAME]);
    assert_eq!(said(&mut lock).lines().next(), Some(shown));
    let json = administered.said("locks --json");
    assert!(!json.contains(['\u{1b}', '\u{202e}', '\r', '\u{9b}']), "{json:?}");
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["locks"][0]["name"], NAME);
    let released = said(&mut asking(administered.admin, &["release", NAME, "--yes"]));
    assert!(
        released.starts_with(&format!("released {NAME:?}, which ")) && !released.contains('\u{1b}'),
        "{released:?}"
    );
}

#[test]
fn colours_are_for_terminals_and_for_who_asks() {
    let administered = Administered::start();
    let _holder = administered.server.hold("jobs");
    let has_colours = |flags: &str, variables: &[(&str, &str)]| {
        said(administered.monolock(&format!("locks {flags}")).envs(variables.iter().copied())).contains('\u{1b}')
    };
    assert!(!has_colours("", &[]));
    assert!(has_colours("--color always", &[]));
    assert!(has_colours("", &[("MONOLOCK_COLOR", "always")]));
    assert!(has_colours("", &[("CLICOLOR_FORCE", "1")]));
    assert!(!has_colours("", &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
    assert!(!has_colours("--color never", &[("CLICOLOR_FORCE", "1")]));
    assert!(!has_colours("--json --color always", &[]));
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let pages = scripted(|_| (200, json!({"locks": many(1000), "next": "z"}).to_string()));
    let mut locks = asking(pages, &["locks", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(locks.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ended = locks.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(0), &b""[..]), "{line}");
}

#[test]
fn the_bearer_token_is_shown_and_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (right, wrong, empty) = (file("right", "se/cr+et=\n"), file("wrong", "guess"), file("empty", "\n"));
    let administered = Administered::start_with(&format!("--admin-token-file {right}"));
    let at = administered.admin;
    assert_eq!(administered.said(&format!("locks --admin-token-file {right}")), "nobody claims a lock\n");
    assert_eq!(said(administered.monolock("locks").env("MONOLOCK_ADMIN_TOKEN_FILE", &right)), "nobody claims a lock\n");
    let missing = format!("the admin API at {at} asks for a bearer token: name its file with --admin-token-file");
    assert_fails(&mut administered.monolock("locks"), 122, &missing);
    let refused = format!("the admin API at {at} refuses the bearer token in {wrong}");
    assert_fails(&mut administered.monolock(&format!("info --admin-token-file {wrong}")), 122, &refused);
    let nothing = format!("--admin-token-file {empty}: the file is empty");
    assert_fails(&mut administered.monolock(&format!("info --admin-token-file {empty}")), 1, &nothing);
}

#[test]
fn a_unix_socket_is_as_good_as_an_address() {
    let folder = tempfile::tempdir().unwrap();
    let path = format!("unix:{}", folder.path().join("admin.sock").display());
    let server = Server::start_with(monolock(["--listen", "127.0.0.1:0", "--admin-listen", &path]));
    server.process.stderr_line("serving the admin API");
    let _holder = server.hold("jobs");
    assert!(said(&mut monolock(["locks", "--admin", &path])).contains("jobs"));
    let info = said(monolock(["info"]).env("MONOLOCK_ADMIN_ADDRESS", &path));
    assert!(info.starts_with(&format!("monolock {} at {path}\n", env!("CARGO_PKG_VERSION"))), "{info}");
    let nobody = "no admin API is reached at unix:/nowhere: No such file or directory (os error 2); where it is says --admin, and \
                  the server serves it with --admin-listen";
    assert_fails(&mut monolock(words("info --admin unix:/nowhere")), 123, nobody);
}

#[test]
fn who_answers_in_its_place_is_found_out() {
    let foreign = |at: SocketAddr, why: &str| format!("what answers at {at} is no admin API of monolock: {why}");
    let server = Server::start();
    let locks = asking(server.address, &["info"]);
    assert_fails(&mut { locks }, 123, &foreign(server.address, "invalid HTTP version parsed"));
    for (status, body, why) in [
        (404, "<html>", "it answers 404 Not Found"),
        (200, "<html>", "expected value at line 1 column 1"),
        (200, "{}", "missing field `locks` at line 1 column 2"),
    ] {
        let at = scripted(move |_| (status, body.to_owned()));
        assert_fails(&mut asking(at, &["locks"]), 123, &foreign(at, why));
    }
    let loud = scripted(|_| (500, json!({"error": "\u{1b}[31mno"}).to_string()));
    let sentence = format!(r"the admin API at {loud} answers 500 Internal Server Error: \u{{1b}}[31mno");
    assert_fails(&mut asking(loud, &["locks"]), 1, &sentence);
    let circle = scripted(|_| (200, json!({"locks": [], "next": "a"}).to_string()));
    for line in ["locks", "locks --json"] {
        assert_fails(&mut asking(circle, &words(line)), 123, &foreign(circle, "its listing does not go on"));
    }
    let nobody = Nobody::new();
    let ended = outcome(&mut asking(nobody.address, &["locks"]));
    assert_eq!(ended.status, 123);
    assert!(
        ended.stderr.starts_with(&format!("monolock: no admin API is reached at {}: ", nobody.address)),
        "{}",
        ended.stderr
    );
}

/// So many locks as the API lists them, from number `from` on.
fn locks_from(from: usize, number: usize) -> Vec<Value> {
    let lock = |number: usize| {
        let session = json!({"identity": "", "remote_addr": "10.0.0.1:1", "lease_ms": 9, "lease_remaining_ms": 8, "session": number});
        let mut holder = session.clone();
        holder["since"] = "2026-11-29T16:21:58.185Z".into();
        holder["token"] = (1_883_210_323_591_168_u64 + number as u64).into();
        json!({"name": format!("{number:05}"), "holder": holder, "waiters": []})
    };
    (from..from + number).map(lock).collect()
}

fn many(number: usize) -> Vec<Value> {
    locks_from(0, number)
}

#[test]
fn fifteen_thousand_locks_come_page_by_page() {
    const PAGE: usize = 1000;
    let at = scripted(|target| {
        let from = target.split_once("after=").map_or(0, |(_, name)| name.parse::<usize>().unwrap() + 1);
        let locks = locks_from(from, PAGE);
        let next = locks.last().unwrap()["name"].clone();
        let page = if from + PAGE < 15_000 { json!({"locks": locks, "next": next}) } else { json!({"locks": locks}) };
        (200, page.to_string())
    });
    let table = said(&mut asking(at, &["locks"]));
    assert_eq!(table.lines().count(), 15_001);
    let row = cells(table.lines().last().unwrap());
    assert_eq!([row[0], row[5]], ["14999", "1883210323606167"]);
    let json: Value = serde_json::from_str(&said(&mut asking(at, &["locks", "--json"]))).unwrap();
    assert_eq!(json["locks"].as_array().unwrap(), &many(15_000));
}

/// A server whose every answer the test says, by the target that is asked for.
pub(crate) fn scripted(answer: impl Fn(&str) -> (u16, String) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let Some(target) = target(&stream) else { continue };
            let (status, body) = answer(&target);
            let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            // Whoever has read enough closes.
            let _ = (&stream).write_all((head + &body).as_bytes());
        }
    });
    address
}

/// What is asked for.
pub(crate) fn target(stream: &TcpStream) -> Option<String> {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let first = lines.next()?;
    lines.find(String::is_empty)?;
    first.split(' ').nth(1).map(str::to_owned)
}

#[test]
fn a_container_is_healthy_where_the_server_is_ready() {
    let server = Server::start_with(monolock(words("--listen 127.0.0.1:0 --ops-listen 127.0.0.1:0")));
    let ops = logged_address(&server.process.stderr_line("serving the ops endpoints"));
    let ready = |line: &str| said(&mut monolock(words(&format!("healthcheck {line}")))) == "ready\n";
    assert!(ready(&format!("--ops {ops}")));
    assert!(ready(&format!("--ops-listen :{}", ops.port())));
    assert!(ready(&format!("-ops-listen 0.0.0.0:{} -ops={ops}", ops.port())));
    assert_eq!(said(monolock(["healthcheck"]).env("MONOLOCK_OPS_LISTEN_ADDRESS", ops.to_string())), "ready\n");
    assert_eq!(said(monolock(["healthcheck"]).env("MONOLOCK_OPS_ADDRESS", ops.to_string())), "ready\n");

    let stopping = scripted(|_| (503, "stopping\n".to_owned()));
    let line = format!("healthcheck --ops {stopping}");
    let sentence = format!("not ready: {stopping}: 503 Service Unavailable: stopping");
    assert_fails(&mut monolock(words(&line)), 1, &sentence);
    let ended = outcome(&mut monolock(words("healthcheck --ops 127.0.0.1:1")));
    assert_eq!(ended.status, 1);
    assert!(ended.stderr.starts_with("monolock: not ready: 127.0.0.1:1: "), "{}", ended.stderr);
    let unknown = "healthcheck needs the address of the server's --ops-listen: say it with --ops";
    assert_fails(&mut monolock(["healthcheck"]), 2, unknown);
    let any = "the server's --ops-listen takes any free port, which its log alone knows: say it with --ops";
    assert_fails(&mut monolock(words("healthcheck --ops-listen :0")), 2, any);
}

#[test]
fn completions_and_manual_pages_know_the_commands_that_are_for_people() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let text = said(&mut monolock(["completions", shell]));
        assert!(text.contains("release") && text.contains("admin-token-file"), "{shell}");
        assert!(!text.contains("__exec") && !text.contains("__demo-worker"), "{shell}");
    }
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    said(&mut monolock(["man", pages.to_str().unwrap()]));
    let page = |name: &str| fs::read_to_string(pages.join(name)).unwrap();
    assert!(page("monolock.1").contains("monolock\\-release(1)"));
    assert!(page("monolock.1").contains("MONOLOCK_LISTEN_ADDRESS"));
    assert!(page("monolock-release.1").contains("MONOLOCK_RELEASE_TOKEN"));
    assert!(!fs::exists(pages.join("monolock-__exec.1")).unwrap());
}
