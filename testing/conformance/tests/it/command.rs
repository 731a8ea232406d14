//! The command: its lines, its summary and its exit status.

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use monolock_conformance::cases;
use rustix::process::{Pid, Signal, kill_process};

fn conformance(arguments: &[&str], bug: &str) -> Output {
    start(arguments, bug).wait_with_output().expect("the command ends")
}

fn start(arguments: &[&str], bug: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_monolock-conformance"))
        .args(arguments)
        .env("MONOLOCK_CONFORMANCE_BUG", bug)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs")
}

const SPECIMEN: &str = env!("CARGO_BIN_EXE_specimen");

#[test]
fn a_client_that_passes_is_said_so() {
    let Output { status, stdout, .. } = conformance(&["--only", "try_free", "--repeat", "2", "--", SPECIMEN], "");
    let stdout = String::from_utf8_lossy(&stdout);
    assert_eq!(stdout.lines().filter(|line| line.starts_with("pass  try_free")).count(), 2, "{stdout}");
    assert_eq!(stdout.lines().last(), Some("2 passed, 0 failed"), "{stdout}");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_client_that_fails_is_told_what_was_expected_and_what_came() {
    let Output { status, stdout, .. } = conformance(&["--only", "b59_tokens", SPECIMEN], "token_is_a_double");
    let stdout = String::from_utf8_lossy(&stdout);
    let line = stdout.lines().next().unwrap_or_default();
    assert!(line.starts_with("FAIL  b59_tokens_beyond_a_double"), "{stdout}");
    assert!(line.contains("expected token \"9007199254740993\"; came"), "{stdout}");
    assert!(stdout.contains("driver <- {"), "the transcript stands under it: {stdout}");
    assert_eq!(stdout.lines().last(), Some("0 passed, 1 failed"), "{stdout}");
    assert_eq!(status.code(), Some(1));
}

#[test]
fn a_failure_while_the_machine_stood_still_is_not_judged() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let (begun, fail) = (folder.path().join("begun"), folder.path().join("fail"));
    let driver = "touch \"$0/begun\"; until [ -e \"$0/fail\" ]; do sleep 0.01; done; exit 1";
    let mut command =
        start(&["--only", "try_free", "--brief", "sh", "-c", driver, &folder.path().display().to_string()], "");
    while !begun.exists() {
        assert!(matches!(command.try_wait(), Ok(None)), "it starts the driver");
        thread::sleep(Duration::from_millis(10));
    }
    kill_process(Pid::from_child(&command), Signal::STOP).expect("it waits for the driver");
    thread::sleep(Duration::from_millis(300));
    kill_process(Pid::from_child(&command), Signal::CONT).expect("it has been waited for by nobody");
    fs::write(fail, "").expect("there is room for a file");
    let Output { status, stdout, .. } = command.wait_with_output().expect("the command ends");
    let stdout = String::from_utf8_lossy(&stdout);
    let line = stdout.lines().next().unwrap_or_default();
    assert!(line.starts_with("FAIL  try_free"), "{stdout}");
    assert!(line.ends_with("not judged: the machine stood still]"), "{stdout}");
    assert_eq!(status.code(), Some(1));
}

#[test]
fn a_driver_that_does_not_start_fails_every_case() {
    let Output { status, stdout, .. } = conformance(&["--only", "try_free", "no/such/driver"], "");
    assert!(String::from_utf8_lossy(&stdout).contains("cannot start no/such/driver"));
    assert_eq!(status.code(), Some(1));
}

#[test]
fn the_list_names_every_case_once() {
    let stdout = String::from_utf8_lossy(&conformance(&["--list"], "").stdout).into_owned();
    let names: Vec<&str> = cases().map(|case| case.name).collect();
    for name in &names {
        assert_eq!(stdout.lines().filter(|line| line == name).count(), 1, "{name}");
    }
    assert_eq!(stdout.lines().filter(|line| !line.starts_with(' ')).count(), names.len());
}

#[test]
fn a_pattern_that_names_nothing_is_an_error() {
    assert_eq!(conformance(&["--only", "no such case", SPECIMEN], "").status.code(), Some(2));
}
