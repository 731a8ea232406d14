//! Flags, variables, defaults, and what is said about wrong ones.

use crate::support::{Process, assert_fails, assert_in_order, monolock, outcome, words};

/// The `listening` line of a server that was started so.
fn listening(line: &str, variables: &[(&str, &str)]) -> String {
    let mut command = monolock(words(line));
    let process = Process::start(command.envs(variables.iter().copied()));
    process.stderr_line("listening")
}

#[test]
fn a_flag_wins_over_its_variable_and_the_variable_over_the_default() {
    let variables = [("MONOLOCK_LISTEN_ADDRESS", "127.0.0.1:0"), ("MONOLOCK_IO_TIMEOUT", "3s")];
    assert!(listening("serve --listen 127.0.0.1:0", &[]).contains("io_timeout=5s"));
    assert!(listening("serve", &variables).contains("io_timeout=3s"));
    assert!(listening("serve --io-timeout 1m30s", &variables).contains("io_timeout=90s"));
    assert!(listening("serve", &variables).contains("address=127.0.0.1:"));
    assert!(listening("serve --listen localhost:0 --listen 127.0.0.2:0", &variables).contains("address=127.0.0.2:"));

    let json = ("MONOLOCK_LOG_FORMAT", "json");
    assert!(listening("--listen 127.0.0.1:0", &[json]).starts_with("{\"timestamp\":\""));
    assert!(listening("--listen 127.0.0.1:0 --log-format text", &[json]).contains(" INFO listening address="));
    // At the level `error` there would be no such line.
    listening("--listen 127.0.0.1:0 --log-level info", &[("MONOLOCK_LOG_LEVEL", "error")]);
}

#[test]
fn an_empty_variable_counts_as_unset() {
    let empty = [("MONOLOCK_IO_TIMEOUT", ""), ("MONOLOCK_LOG_LEVEL", ""), ("MONOLOCK_LOG_FORMAT", "")];
    assert!(listening("--listen 127.0.0.1:0", &empty).contains("io_timeout=5s"));
}

#[test]
fn flags_stand_before_or_after_the_command_and_have_one_dash_or_two() {
    for line in [
        "--listen 127.0.0.1:0 --io-timeout 2s",
        "serve --listen 127.0.0.1:0 --io-timeout 2s",
        "--listen 127.0.0.1:0 serve --io-timeout 2s",
        "--listen=127.0.0.1:0 --io-timeout=2s serve",
        "-listen 127.0.0.1:0 -io-timeout 2s",
        "-listen=127.0.0.1:0 -io-timeout=2s",
        "-listen 127.0.0.1:0 serve -io-timeout=2s",
    ] {
        let event = listening(line, &[]);
        assert!(event.contains("address=127.0.0.1:") && event.contains("io_timeout=2s"), "{line}: {event}");
    }
}

#[test]
fn addresses_are_taken_as_names_and_numbers_and_ports_alone() {
    assert!(listening("--listen localhost:0", &[]).contains("address="));
    assert!(listening("--listen :0", &[]).contains("address="));
    if std::net::TcpListener::bind("[::1]:0").is_ok() {
        assert!(listening("--listen [::1]:0", &[]).contains("address=[::1]:"));
    }
}

#[test]
fn a_wrong_flag_is_one_sentence_and_status_2() {
    for (line, sentence) in [
        ("--listen 7070", r#"--listen is "7070", but must be host:port, [v6]:port or :port, such as 0.0.0.0:7070"#),
        (
            "--listen ::1:7070",
            r#"--listen is "::1:7070", but must be host:port, [v6]:port or :port, such as 0.0.0.0:7070"#,
        ),
        ("--listen :70700", r#"--listen is ":70700", but must end in a port from 0 to 65535, such as 0.0.0.0:7070"#),
        ("-listen=x", r#"--listen is "x", but must be host:port, [v6]:port or :port, such as 0.0.0.0:7070"#),
        ("--listen", "--listen needs a value: see monolock serve --help"),
        ("--io-timeout 0s", r#"--io-timeout is "0s", but must be more than zero, such as 5s"#),
        ("--io-timeout 5", r#"--io-timeout is "5", but must be a duration, such as 5s, 250ms or 1m30s"#),
        ("--io-timeout -5s", r#"--io-timeout is "-5s", but must be a duration, such as 5s, 250ms or 1m30s"#),
        ("--io-timeout 99years", r#"--io-timeout is "99years", but must not be more than 4294967295ms (49.7 days)"#),
        ("--log-level loud", r#"--log-level is "loud", but must be error, warn, info, debug or trace"#),
        ("--log-format xml", r#"--log-format is "xml", but must be text or json"#),
        ("--max-sessions 0", r#"--max-sessions is "0", but must be a whole number from 1 up"#),
        ("--max-sessions-per-client -1", r#"--max-sessions-per-client is "-1", but must be a whole number from 1 up"#),
        ("--max-lease 0s", r#"--max-lease is "0s", but must be more than zero, such as 5s"#),
        ("--start-grace soon", r#"--start-grace is "soon", but must be a duration, such as 0s, 250ms or 1m30s"#),
        ("--audit-failure stop", r#"--audit-failure is "stop", but must be continue or exit"#),
        ("--audit-log=", r#"--audit-log is "", but must name a file"#),
        ("--token-file=", r#"--token-file is "", but must name a file"#),
        ("acl", "acl needs a command of its own: see monolock acl --help"),
        ("acl check", "--acl-file is missing: see monolock acl --help"),
        ("--lisen :0", "there is no flag --lisen: did you mean --listen?"),
        ("-lisen :0", "there is no flag --lisen: did you mean --listen?"),
        ("-x", "there is no flag -x: see monolock serve --help"),
        ("srve", r#"there is no command "srve": did you mean serve?"#),
        ("serve jobs", r#"there is no place for "jobs" here: see monolock serve --help"#),
        ("run", "NAME is missing: see monolock run --help"),
        ("run jobs", "COMMAND is missing: see monolock run --help"),
        ("run jobs ls", r#""ls" stands where only -- may: put -- between the lock's name and the command"#),
        (
            "run --server :7070 jobs -- ls",
            r#"--server is ":7070", but must be host:port or [v6]:port, such as 127.0.0.1:7070"#,
        ),
        ("run --lease 0s jobs -- ls", r#"--lease is "0s", but must be more than zero, such as 5s"#),
        ("run --lease 19ms jobs -- ls", r#"--lease is "19ms", but must be at least 20ms to be kept"#),
        ("run -lease 1us jobs -- ls", r#"--lease is "1us", but the lease must be a whole number of milliseconds"#),
        ("run --try --wait 1s jobs -- ls", "--try and --wait exclude each other: give one of them"),
        ("info --admin 7071", r#"--admin is "7071", but must be host:port or unix:PATH, such as 127.0.0.1:7071"#),
        (
            "info -admin unix:",
            r#"--admin is "unix:", but must name a path after unix:, such as unix:/run/monolock/admin.sock"#,
        ),
        ("locks --color sometimes", r#"--color is "sometimes", but must be auto, always or never"#),
        ("locks a b", r#"there is no place for "b" here: see monolock locks --help"#),
        ("lock", "NAME is missing: see monolock lock --help"),
        ("kick jobs", "WHO is missing: see monolock kick --help"),
        ("release jobs --token 0", r#"--token is "0", but must be a token, a whole number from 1 up"#),
        ("healthcheck --ops :7072", r#"--ops is ":7072", but must be host:port or [v6]:port, such as 127.0.0.1:7070"#),
        ("completions tcsh", r#"SHELL is "tcsh", but must be bash, elvish, fish, powershell or zsh"#),
        ("demo --lease never", r#"--lease is "never", but must be a duration, such as 5s, 250ms or 1m30s"#),
    ] {
        assert_fails(&mut monolock(words(line)), 2, sentence);
    }
    let long = "x".repeat(256);
    let sentence = format!("NAME is {long:?}, but must have at most 255 bytes");
    assert_fails(&mut monolock(["run", &long, "--", "ls"]), 2, &sentence);
    let long = "x".repeat(1025);
    let sentence = format!("GLOB is {long:?}, but must have at most 1024 bytes");
    assert_fails(&mut monolock(["locks", &long]), 2, &sentence);
    assert_fails(&mut monolock(["run", "", "--", "ls"]), 2, r#"NAME is "", but must not be empty"#);
}

#[test]
fn a_wrong_variable_is_named_itself() {
    for (line, variable, value, wanted) in [
        ("", "MONOLOCK_LISTEN_ADDRESS", "x", "must be host:port, [v6]:port or :port, such as 0.0.0.0:7070"),
        ("", "MONOLOCK_IO_TIMEOUT", "0ms", "must be more than zero, such as 5s"),
        ("", "MONOLOCK_LOG_LEVEL", "x", "must be error, warn, info, debug or trace"),
        ("", "MONOLOCK_LOG_FORMAT", "x", "must be text or json"),
        ("run jobs -- ls", "MONOLOCK_SERVER", "x", "must be host:port or [v6]:port, such as 127.0.0.1:7070"),
        ("run jobs -- ls", "MONOLOCK_LEASE", "x", "must be a duration, such as 5s, 250ms or 1m30s"),
        ("run jobs -- ls", "MONOLOCK_WAIT", "0s", "must be more than zero, such as 5s"),
        ("run jobs -- ls", "MONOLOCK_TRY", "perhaps", "must be true or false"),
        ("locks", "MONOLOCK_ADMIN_ADDRESS", ":1", "must be host:port or unix:PATH, such as 127.0.0.1:7071"),
        ("locks", "MONOLOCK_JSON", "perhaps", "must be true or false"),
        ("locks", "MONOLOCK_COLOR", "perhaps", "must be auto, always or never"),
        ("release jobs", "MONOLOCK_RELEASE_TOKEN", "x", "must be a token, a whole number from 1 up"),
        ("release jobs", "MONOLOCK_YES", "perhaps", "must be true or false"),
        ("healthcheck", "MONOLOCK_OPS_ADDRESS", "x", "must be host:port or [v6]:port, such as 127.0.0.1:7070"),
    ] {
        let sentence = format!("{variable} is {value:?}, but {wanted}");
        assert_fails(monolock(words(line)).env(variable, value), 2, &sentence);
    }
    let mut both = monolock(words("run jobs -- ls"));
    both.envs([("MONOLOCK_TRY", "yes"), ("MONOLOCK_WAIT", "1s")]);
    assert_fails(&mut both, 2, "MONOLOCK_TRY and MONOLOCK_WAIT exclude each other: unset one of them");
}

#[test]
fn another_commands_variable_is_no_matter() {
    // The server's variable is wrong, and nobody serves here: it is the address that cannot be reached.
    let mut command = monolock(words("run --server 127.0.0.1:1 jobs -- ls"));
    let ended = outcome(command.env("MONOLOCK_IO_TIMEOUT", "wrong"));
    assert_eq!(ended.status, 123, "{}", ended.stderr);
}

#[test]
fn help_names_every_flag_its_variable_and_its_default() {
    let own = outcome(&mut monolock(["--help"])).stdout;
    let serve = outcome(&mut monolock(["serve", "-help"])).stdout;
    for help in [&own, &serve] {
        let words: Vec<&str> = help.split_whitespace().collect();
        let help = words.join(" ");
        assert_in_order(
            &help,
            &[
                "--listen <ADDRESS>",
                "[env: MONOLOCK_LISTEN_ADDRESS] [default: 0.0.0.0:7070]",
                "--io-timeout <DURATION>",
                "[env: MONOLOCK_IO_TIMEOUT] [default: 5s]",
                "--log-level <LEVEL>",
                "[env: MONOLOCK_LOG_LEVEL] [default: info]",
                "--log-format <FORMAT>",
                "[env: MONOLOCK_LOG_FORMAT] [default: text]",
            ],
        );
    }
    assert!(!own.contains("__"), "hidden commands are shown:\n{own}");
    let run = outcome(&mut monolock(["run", "--help"])).stdout;
    assert_in_order(&run, &["MONOLOCK_SERVER", "MONOLOCK_LEASE", "MONOLOCK_WAIT", "MONOLOCK_TRY", "MONOLOCK_QUIET"]);
    let statuses =
        ["   2  ", " 120  ", " 121  ", " 122  ", " 123  ", " 124  ", " 125  ", " 126  ", " 127  ", "128+n  "];
    assert_in_order(&run, &statuses);
}

#[test]
fn the_version_is_the_programs_with_commit_and_target() {
    for line in ["--version", "-V", "-version", "serve --version", "run -V"] {
        let said = outcome(&mut monolock(words(line))).stdout;
        let version = format!("monolock {} (", env!("CARGO_PKG_VERSION"));
        let build = said.strip_prefix(&version).and_then(|rest| rest.strip_suffix(")\n"));
        let (commit, target) = build.and_then(|build| build.split_once(", ")).unwrap_or_else(|| panic!("{said:?}"));
        let is_a_commit = |commit: &str| commit.starts_with(|first: char| first.is_ascii_hexdigit());
        assert!(commit == "unknown commit" || commit.strip_prefix("commit ").is_some_and(is_a_commit), "{said:?}");
        assert!(target.starts_with(std::env::consts::ARCH) && target.split('-').count() >= 3, "{said:?}");
    }
}
