//! `monolock run`: its statuses, its signals, and what becomes of the command when the lock or the wrapper goes.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use nix::pty::openpty;
use nix::sys::signal::Signal;

use crate::certificates::make_certificates;
use crate::support::{
    Ended, Frame, Nobody, PATIENCE, Process, ScriptedServer, Server, assert_fails, is_ignored, monolock, outcome, words,
};

/// `monolock run` with flags, against a server, for a lock `jobs`, running a command.
fn run(address: SocketAddr, flags: &str, command: &[&str]) -> std::process::Command {
    let address = address.to_string();
    let mut line = vec!["run", "--server", &address];
    line.extend(words(flags));
    line.extend(["jobs", "--"]);
    line.extend(command);
    monolock(line)
}

fn said(status: i32, stdout: &str) -> Ended {
    Ended { status, stdout: stdout.to_owned(), stderr: String::new() }
}

#[test]
fn b69_a_loss_ends_the_whole_process_group_before_the_lease() {
    // The command is told to end at 0.8 leases and killed at 0.9. What is between that and the lease is for a busy
    // machine.
    const LEASE: Duration = Duration::from_secs(30);
    let scripts = [
        "echo ready; sleep 1000 & wait",
        // One that does not listen, and one that outlives its parent.
        "trap '' TERM; echo ready; sleep 1000 & wait; sleep 1000",
        "(trap '' TERM; echo ready; sleep 1000; sleep 1000) & wait",
    ];
    let servers = scripts.map(|_| Server::start());
    let starting = scripts.iter().zip(&servers).map(|(script, server)| {
        let wrapper = Process::start(&mut run(server.address, "--lease 30s", &["sh", "-c", script]));
        assert_eq!(wrapper.line(), "ready");
        wrapper
    });
    let wrappers: Vec<Process> = starting.collect();

    let silent_since = Instant::now();
    for server in &servers {
        server.process.signal(Signal::SIGSTOP);
    }
    for (mut wrapper, script) in wrappers.into_iter().zip(scripts) {
        // Every process of the group has this pipe.
        wrapper.expect_stdout_closed_within(LEASE + PATIENCE);
        assert!(silent_since.elapsed() < LEASE, "{script}: {:?}", silent_since.elapsed());
        assert_eq!(wrapper.status(), 121);
        let sentence = r#"lost lock "jobs" while the command ran, and ended the command"#;
        assert!(wrapper.stderr_line("monolock").contains(sentence));
    }
}

#[test]
fn b69_any_loss_ends_the_command() {
    for how in [&[0x11][..], &[0x13, 0x02, 0], &[0x7f], &[]] {
        let server = ScriptedServer::new();
        let mut wrapper = Process::start(&mut run(server.address, "", &["sh", "-c", "echo ready; sleep 1000 & wait"]));
        let mut claimant = server.expect_claim("jobs");
        claimant.acquired();
        assert_eq!(wrapper.line(), "ready");
        claimant.send(how);
        drop(claimant);
        wrapper.expect_stdout_closed();
        assert_eq!(wrapper.status(), 121, "{how:?}");
    }
}

#[test]
fn b69_a_wrapper_that_stood_still_for_longer_than_the_lease_ends_the_command() {
    let server = Server::start();
    let script = "echo ready; sleep 1000 & wait";
    let mut wrapper = Process::start(&mut run(server.address, "--lease 8s", &["sh", "-c", script]));
    assert_eq!(wrapper.line(), "ready");
    let mut next = server.queue("jobs");
    wrapper.signal(Signal::SIGSTOP);
    next.expect_acquired();
    wrapper.signal(Signal::SIGCONT);
    wrapper.expect_stdout_closed();
    assert_eq!(wrapper.status(), 121);
}

#[test]
#[cfg(target_os = "linux")]
fn a_wrapper_that_is_stopped_stops_the_command_and_goes_on_with_it() {
    let server = Server::start();
    let script = "echo $$; read x; exit 3";
    let mut wrapper = Process::start(&mut run(server.address, "--lease 1m", &["sh", "-c", script]));
    let command = wrapper.line();
    wrapper.signal(Signal::SIGTSTP);
    crate::support::expect_stopped(wrapper.pid);
    crate::support::expect_stopped(command);
    wrapper.signal(Signal::SIGCONT);
    wrapper.tell("now");
    assert_eq!(wrapper.status(), 3);
}

#[test]
#[cfg(target_os = "linux")]
fn a_command_has_the_signal_mask_of_its_caller() {
    let mask = |status: &str| status.lines().find(|line| line.starts_with("SigBlk:")).map(str::to_owned);
    let server = Server::start();
    let ended = outcome(&mut run(server.address, "", &["cat", "/proc/self/status"]));
    assert_eq!(mask(&ended.stdout), mask(&std::fs::read_to_string("/proc/self/status").unwrap()));
}

#[test]
fn b70_a_signal_while_waiting_leaves_the_queue() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
        if is_ignored(signal) {
            continue;
        }
        let server = ScriptedServer::new();
        let mut wrapper = Process::start(&mut run(server.address, "", &["echo", "ran"]));
        let mut claimant = server.expect_claim("jobs");
        claimant.waiting();
        wrapper.signal(signal);
        claimant.expect_end();
        wrapper.expect_stdout_closed();
        assert_eq!(wrapper.status(), 128 + signal as i32);
    }
}

#[test]
fn b70_a_signal_while_running_is_passed_on_and_the_lock_is_held_until_the_command_is_gone() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1] {
        if is_ignored(signal) {
            continue;
        }
        let name = signal.as_str().strip_prefix("SIG").unwrap();
        // A read that a trap interrupts fails; the next one waits for the line.
        let script =
            format!("trap 'echo caught' {name}; echo ready; read x; while [ -z \"$x\" ]; do read x; done; exit 9");
        let server = Server::start();
        let mut wrapper = Process::start(&mut run(server.address, "", &["sh", "-c", &script]));
        assert_eq!(wrapper.line(), "ready");
        let mut next = server.queue("jobs");

        wrapper.signal(signal);
        // Some shells run a trap only after the read.
        if name != "USR1" || cfg!(target_os = "linux") {
            assert_eq!(wrapper.line(), "caught");
        }
        next.heartbeat();
        next.expect(Frame::Waiting);
        wrapper.tell("now");
        assert_eq!(wrapper.status(), 9);
        next.expect_acquired();
    }
}

#[test]
fn b70_a_command_that_a_signal_ends_is_reported_as_a_shell_does() {
    let server = Server::start();
    let mut wrapper = Process::start(&mut run(server.address, "", &["sh", "-c", "echo ready; sleep 1000 & wait"]));
    assert_eq!(wrapper.line(), "ready");
    wrapper.signal(Signal::SIGTERM);
    wrapper.expect_stdout_closed();
    assert_eq!(wrapper.status(), 143);
}

#[test]
fn b71_the_commands_status_passes_through() {
    let server = Server::start();
    for (script, status) in [("exit 0", 0), ("exit 1", 1), ("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 137)] {
        assert_eq!(outcome(&mut run(server.address, "", &["sh", "-c", script])), said(status, ""));
    }
}

#[test]
fn b71_what_keeps_the_command_from_running_has_a_status_of_its_own() {
    let server = Server::start();
    let holder = server.hold("jobs");
    let run_echo = |flags| run(server.address, flags, &["echo", "ran"]);
    assert_fails(&mut run_echo("--try"), 120, r#"lock "jobs" is held by another"#);
    assert_fails(&mut run_echo("--wait 50ms"), 124, r#"lock "jobs" was not obtained within 50ms"#);
    drop(holder);

    let sentence = r#"cannot run "no-such-command": there is no such command"#;
    assert_fails(&mut run(server.address, "", &["no-such-command"]), 127, sentence);
    let ended = outcome(&mut run(server.address, "", &["/"]));
    assert_eq!((ended.status, ended.stderr.starts_with(r#"monolock: cannot run "/": "#)), (126, true), "{ended:?}");
}

#[test]
fn b71_a_refused_claim_has_a_status_of_its_own() {
    for flags in ["", "--try", "--wait 10s"] {
        for code in [0x18, 0x19] {
            let server = ScriptedServer::new();
            let mut wrapper = Process::start(&mut run(server.address, flags, &["echo", "ran"]));
            server.expect_claim("jobs").error(code);
            wrapper.expect_stdout_closed();
            assert_eq!(wrapper.status(), 122);
        }
    }
}

#[test]
fn b71_a_server_that_is_not_there_has_a_status_of_its_own() {
    let nobody = Nobody::new();
    for flags in ["", "--try", "--wait 10s"] {
        let ended = outcome(&mut run(nobody.address, flags, &["echo", "ran"]));
        assert_eq!((ended.status, ended.stdout.as_str(), ended.stderr.lines().count()), (123, "", 1), "{ended:?}");
        assert!(ended.stderr.contains("--server or MONOLOCK_SERVER"), "{ended:?}");
    }
}

#[test]
fn tls_is_spoken_and_who_the_command_runs_for_is_in_the_certificate() {
    let directory = tempfile::tempdir().unwrap();
    make_certificates(directory.path());
    let file = |name: &str| directory.path().join(name).display().to_string();
    // Whoever has an identity, and nobody else.
    let list = r#"{"rules": [{"identity": "?*", "locks": ["jobs"]}]}"#;
    std::fs::write(file("acl.json"), list).unwrap();
    let mut serve = monolock(words("--listen 127.0.0.1:0"));
    serve.args(["--tls-cert", &file("server.pem"), "--tls-key", &file("server.key")]);
    serve.args(["--tls-client-ca", &file("ca.pem"), "--acl-file", &file("acl.json")]);
    let server = Server::start_with(serve);
    let trusting = format!("--tls-ca {} --tls-server-name locks.example", file("ca.pem"));
    let shown = format!("{trusting} --tls-cert {} --tls-key {}", file("client.pem"), file("client.key"));

    let status = |flags: &str| outcome(&mut run(server.address, flags, &["sh", "-c", "exit 7"])).status;
    assert_eq!(status(&shown), 7);
    let mut by_variables = run(server.address, "", &["sh", "-c", "exit 7"]);
    for (variable, value) in [
        ("MONOLOCK_CLIENT_TLS_CA", file("ca.pem")),
        ("MONOLOCK_CLIENT_TLS_CERT", file("client.pem")),
        ("MONOLOCK_CLIENT_TLS_KEY", file("client.key")),
        ("MONOLOCK_CLIENT_TLS_SERVER_NAME", "locks.example".to_owned()),
    ] {
        by_variables.env(variable, value);
    }
    assert_eq!(outcome(&mut by_variables).status, 7);
    // Nobody is let in without a certificate, and nobody trusts a server of another name, or one that is not asked.
    assert_eq!(status(&trusting), 123);
    assert_eq!(status(&shown.replace("locks.example", "other.example")), 123);
    assert_eq!(status(""), 123);
}

#[test]
fn what_is_wrong_with_tls_is_said_before_anything_is_done() {
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    let files = [
        ("--tls-cert c.pem --tls-key c.key", 2, "--tls-cert needs --tls-ca"),
        ("--tls-server-name locks.example", 2, "--tls-server-name needs --tls-ca"),
        ("--tls-ca /dev/null", 125, "--tls-ca /dev/null: there is no certificate in it"),
    ];
    for (flags, status, sentence) in files {
        assert_fails(&mut run(address, flags, &["true"]), status, sentence);
    }
}

#[test]
fn a_place_in_the_queue_that_is_lost_is_sought_again_and_the_command_runs_once() {
    for flags in ["", "--wait 20s"] {
        let server = ScriptedServer::new();
        let mut wrapper = Process::start(&mut run(server.address, flags, &["echo", "ran"]));
        let mut claimant = server.expect_claim("jobs");
        claimant.waiting();
        claimant.error(0x01);
        server.expect_claim("jobs").error(0x01);
        let mut claimant = server.expect_claim("jobs");
        claimant.waiting();
        drop(claimant);
        let mut claimant = server.expect_claim("jobs");
        claimant.acquired();
        assert_eq!(wrapper.line(), "ran");
        claimant.expect_end();
        wrapper.expect_stdout_closed();
        assert_eq!(wrapper.status(), 0);
    }
}

#[test]
fn the_wait_limit_spans_all_attempts() {
    let server = ScriptedServer::new();
    let mut wrapper = Process::start(&mut run(server.address, "--wait 8s", &["echo", "ran"]));
    server.expect_claim("jobs").error(0x01);
    let mut claimant = server.expect_claim("jobs");
    claimant.waiting();
    claimant.expect_end();
    wrapper.expect_stdout_closed();
    assert_eq!(wrapper.status(), 124);
}

#[test]
fn a_flag_wins_over_the_other_ones_variable() {
    let server = Server::start();
    let _holder = server.hold("jobs");
    let status = |flags: &str, variables: &[(&str, &str)]| {
        outcome(run(server.address, flags, &["echo", "ran"]).envs(variables.iter().copied())).status
    };
    assert_eq!(status("", &[("MONOLOCK_TRY", "1")]), 120);
    assert_eq!(status("", &[("MONOLOCK_WAIT", "50ms")]), 124);
    assert_eq!(status("--try", &[("MONOLOCK_WAIT", "50ms")]), 120);
    assert_eq!(status("--wait 50ms", &[("MONOLOCK_TRY", "true")]), 124);
    assert_eq!(status("--wait 50ms", &[("MONOLOCK_WAIT", "1h")]), 124);
    assert_eq!(status("-wait=50ms", &[("MONOLOCK_TRY", "no")]), 124);

    let mut command = monolock(words("run --try jobs -- ls"));
    assert_eq!(outcome(command.env("MONOLOCK_SERVER", server.address.to_string())).status, 120);
}

#[test]
fn b72_the_command_has_its_arguments_as_given() {
    let server = Server::start();
    let arguments = ["", "two words", "*", "$HOME", "-listen", "--wait", "--", "'", "\\n", "z\u{e9}"];
    let mut command = vec!["printf", "[%s]"];
    command.extend(arguments);
    let stdout = arguments.map(|argument| format!("[{argument}]")).concat() + "\n";
    assert_eq!(outcome(&mut run(server.address, "", &command)), said(0, &stdout));
}

#[test]
fn b72_the_command_finds_name_and_token_in_its_environment() {
    let server = ScriptedServer::new();
    let script = r#"echo "$MONOLOCK_LOCK $MONOLOCK_TOKEN $MINE""#;
    let mut command = run(server.address, "", &["sh", "-c", script]);
    let mut wrapper = Process::start(command.env("MINE", "kept"));
    let mut claimant = server.expect_claim("jobs");
    claimant.acquired();
    assert_eq!(wrapper.line(), "jobs 41 kept");
    assert_eq!(wrapper.status(), 0);
}

#[test]
fn b73_a_wrapper_that_is_killed_takes_the_lock_with_it_and_the_command_is_told() {
    let server = Server::start();
    let script = "trap 'echo told' TERM; echo ready; read x; while [ -z \"$x\" ]; do read x; done; echo ended";
    let mut wrapper = Process::start(&mut run(server.address, "", &["sh", "-c", script]));
    assert_eq!(wrapper.line(), "ready");
    let mut next = server.queue("jobs");

    wrapper.signal(Signal::SIGKILL);
    // The command is alive, and has no part in the lock.
    next.expect_acquired();
    if cfg!(target_os = "linux") {
        assert_eq!(wrapper.line(), "told");
    }
    wrapper.tell("now");
    assert_eq!(wrapper.line(), "ended");
}

/// The system tells the command once for each thread that the wrapper's first one leaves behind.
#[cfg(target_os = "linux")]
#[test]
fn b73_the_wrapper_has_one_thread_so_its_death_is_told_once() {
    let server = Server::start();
    let by_name = format!("--server localhost:{}", server.address.port());
    let script = "until [ $(ls /proc/$PPID/task | wc -l) = 1 ]; do :; done; echo one";
    let wrapper = Process::start(&mut run(server.address, &by_name, &["sh", "-c", script]));
    assert_eq!(wrapper.line(), "one");
}

#[test]
fn a_wait_is_told_on_a_terminal_and_nowhere_else() {
    let server = Server::start();
    let _holder = server.hold("a\x1b[31mb\n");
    let start = |flags: &str| {
        let terminal = openpty(None, None).unwrap();
        let address = server.address.to_string();
        let mut line = vec!["run", "--server", &address];
        line.extend(words(flags));
        line.extend(["a\x1b[31mb\n", "--", "ls"]);
        let wrapper = Process::start_with_stderr(&mut monolock(line), terminal.slave);
        (wrapper, BufReader::new(std::fs::File::from(terminal.master)))
    };
    let first_line = |terminal: &mut BufReader<std::fs::File>| {
        let mut line = String::new();
        terminal.read_line(&mut line).unwrap();
        line
    };
    let (mut wrapper, mut terminal) = start("");
    let waiting = format!(r#"monolock: waiting for lock "a\u{{1b}}[31mb\n" at {}"#, server.address);
    assert!(first_line(&mut terminal).starts_with(&waiting));
    wrapper.signal(Signal::SIGTERM);
    assert_eq!(wrapper.status(), 143);

    let (mut wrapper, mut terminal) = start("--quiet --wait 1s");
    assert!(first_line(&mut terminal).starts_with("monolock: lock \"a\\u{1b}[31mb\\n\" was not obtained within 1s"));
    assert_eq!(wrapper.status(), 124);
}
