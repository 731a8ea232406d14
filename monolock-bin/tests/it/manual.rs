//! The manual as a whole: its order, its pictures, and what its pages on errors and clients say, held against the
//! program and the clients.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use monolock_core::wire::{ServerFrame, decode_server};
use nix::sys::signal::Signal;

use crate::docs::{Names, page, rows, section};
use crate::operator::Administered;
use crate::stage::{has_extension, pages, root};
use crate::support::{PATIENCE, Server, acquire, http, monolock, outcome, words};

/// The pages in the order in which they are to be read. Pages that are not named here may stand anywhere among them.
const ORDER: [&str; 21] = [
    "quick-start.md",
    "how-it-works.md",
    "fencing.md",
    "guarantees.md",
    "protocol.md",
    "error-codes.md",
    "configuration.md",
    "deployment.md",
    "tls.md",
    "access-control.md",
    "admin-api.md",
    "audit.md",
    "observability.md",
    "operating.md",
    "clients.md",
    "writing-a-client.md",
    "embedding.md",
    "performance.md",
    "comparisons.md",
    "architecture.md",
    "testing.md",
];

/// The links of a list, as text, target and what follows.
fn listed(text: &str) -> Vec<(String, String, String)> {
    let links = text.lines().filter_map(|line| {
        let (title, rest) = line.trim_start().strip_prefix("- [")?.split_once("](")?;
        let (target, note) = rest.split_once(')')?;
        Some((title.to_owned(), target.to_owned(), note.trim_start_matches(": ").to_owned()))
    });
    links.collect()
}

#[test]
fn the_summary_lists_each_page_once_by_its_title_and_in_order() {
    let summary = listed(&page("SUMMARY.md"));
    let in_folder: BTreeSet<String> = fs::read_dir(root().join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| has_extension(name, "md") && name != "SUMMARY.md")
        .collect();
    let names: Vec<&str> = summary.iter().map(|(_, name, _)| name.as_str()).collect();
    let once: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(once, in_folder, "what the summary lists, and what is in the folder");
    assert_eq!(names.len(), once.len(), "something is listed twice: {names:?}");
    for (title, name, _) in &summary {
        assert_eq!(page(name).lines().next(), Some(&*format!("# {title}")), "{name}");
    }
    let ordered: Vec<&str> = names.into_iter().filter(|name| ORDER.contains(name)).collect();
    let expected: Vec<&str> = ORDER.into_iter().filter(|name| in_folder.contains(*name)).collect();
    assert_eq!(ordered, expected);
}

#[test]
fn llms_txt_has_each_page_with_what_it_is_for() {
    let text = fs::read_to_string(root().join("llms.txt")).unwrap();
    assert!(text.starts_with("# monolock\n\n> "), "the title, and then the summary");
    let of_the_manual: Vec<(String, String)> = listed(&text)
        .into_iter()
        .inspect(|(title, _, note)| assert!(!note.is_empty(), "what is {title} for?"))
        .filter_map(|(title, target, _)| Some((title, target.strip_prefix("docs/")?.to_owned())))
        .collect();
    let summary: Vec<(String, String)> =
        listed(&page("SUMMARY.md")).into_iter().map(|(title, name, _)| (title, name)).collect();
    assert_eq!(of_the_manual, summary, "llms.txt and the summary");
}

#[test]
fn each_picture_is_shown_says_what_it_shows_and_is_legible_on_light_and_dark() {
    let pages = pages();
    for entry in fs::read_dir(root().join("docs/images")).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if name.starts_with('.') {
            continue;
        }
        assert!(pages.values().any(|page| page.contains(&format!("images/{name}"))), "no page shows {name}");
        if has_extension(entry.path(), "svg") {
            let picture = fs::read_to_string(entry.path()).unwrap();
            for part in ["<title", "<desc", "prefers-color-scheme: dark", "role=\"img\""] {
                assert!(picture.contains(part), "{name} has no {part}");
            }
        }
    }
    for (path, page) in pages {
        assert!(!page.contains("![]("), "{path}: a picture without a word on what it shows");
    }
}

#[test]
fn the_map_of_the_code_has_each_package_and_no_file_that_is_not_there() {
    let map = page("architecture.md");
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = manifest.split_once("members = [").unwrap().1.split_once(']').unwrap().0;
    for member in members.split('"').skip(1).step_by(2) {
        assert!(map.contains(&format!("`{member}`")), "{member} is not on the map");
    }
    let files = map.split('`').skip(1).step_by(2).filter(|span| !span.contains(' ') && has_extension(span, "rs"));
    let folders =
        ["monolock-bin/src", "monolock-bin/tests/it", "monolock-client/src", "monolock-core/src", "monolock-net/src"];
    for file in files {
        assert!(folders.iter().any(|folder| root().join(folder).join(file).exists()), "there is no {file}");
    }
}

#[test]
fn the_frames_are_the_same_on_both_pages() {
    let frames = |name: &str, heading: &str| {
        let page = page(name);
        table(section(&page, heading)).into_iter().take(6).collect::<Vec<_>>()
    };
    assert_eq!(frames("protocol.md", "## Frames"), frames("writing-a-client.md", "## The frames"));
}

/// The rows of the tables in a section, whatever their first cells are.
fn table(text: &str) -> Vec<Vec<String>> {
    let rows = text
        .lines()
        .filter(|line| line.starts_with("| "))
        .map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>());
    rows.collect()
}

/// What the server sends before the end, after these bytes: the code of its `ERROR` in hexadecimal, and the reason.
fn error(address: SocketAddr, bytes: &[u8], then: impl FnOnce()) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut said = Vec::new();
    let mut then = Some(then);
    loop {
        match decode_server(&said).unwrap() {
            Some((ServerFrame::Error { code, reason }, _)) => {
                return (format!("{:02x}", code.0), String::from_utf8(reason.to_vec()).unwrap());
            }
            Some((_, length)) => {
                said.drain(..length);
                if let Some(then) = then.take() {
                    then();
                }
            }
            None => {
                let mut more = [0; 300];
                let count = stream.read(&mut more).unwrap();
                assert!(count > 0, "the end came before an ERROR");
                said.extend_from_slice(&more[..count]);
            }
        }
    }
}

fn codes_and_reasons() -> BTreeMap<String, String> {
    let page = page("error-codes.md");
    rows(section(&page, "## On the wire")).into_iter().map(|row| (row[0].clone(), row[1].clone())).collect()
}

#[test]
fn the_page_has_each_code_of_the_wire_and_no_other() {
    let source = fs::read_to_string(root().join("monolock-core/src/wire.rs")).unwrap();
    let codes = source.split(": Self = Self(0x").skip(1).map(|rest| rest[..2].to_owned());
    assert_eq!(codes_and_reasons().into_keys().collect::<Names>(), codes.collect::<Names>());
    let meanings = |page: &str| -> BTreeMap<String, String> {
        rows(page).into_iter().map(|row| (row[0].clone(), row[1].clone())).collect()
    };
    let ours = codes_and_reasons();
    for (code, meaning) in meanings(section(&page("protocol.md"), "## Errors")) {
        assert_eq!(ours[&code], meaning, "{code}: the page on errors and the page on the protocol");
    }
}

#[test]
fn the_server_sends_the_codes_with_the_reasons_of_the_page() {
    let written = codes_and_reasons();
    let jobs = acquire("jobs", 60_000);
    let long_name: &[u8] = b"\x01\x01\x00\x00\x03\xe8\x01\x00";
    let limited = Server::start_with(monolock(words("--listen 127.0.0.1:0 --max-sessions 1 --max-lease 1m")));
    let _holder = {
        let mut holder = limited.connect();
        holder.acquire("other", 60_000);
        holder.expect_acquired();
        holder
    };
    let administered = Administered::start();
    let plain = administered.server.address;
    let nothing = || ();
    let mut said = vec![
        error(plain, b"\x01\x02", nothing),
        error(plain, b"\x02", nothing),
        error(plain, &[&acquire("twice", 60_000)[..], b"\x01"].concat(), nothing),
        error(plain, b"\x7f", nothing),
        error(plain, b"\x01\x01\x00\x00\x03\xe8\x00\x00", nothing),
        error(plain, long_name, nothing),
        error(plain, b"\x01\x01\x00\x00\x03\xe8\x00\x01\xff", nothing),
        error(plain, b"\x01\x01\x00\x00\x00\x00", nothing),
        error(limited.address, &jobs, nothing),
        error(limited.address, &acquire("jobs", 60_001), nothing),
    ];
    let release = || drop(http(administered.admin, "POST", "/api/locks/jobs/release"));
    said.push(error(plain, &jobs, release));
    said.push(error(plain, &acquire("another", 60_000), || administered.server.process.signal(Signal::SIGTERM)));
    for (code, reason) in &said {
        assert!(reason.starts_with(&written[code]), "{code}: {reason:?}, but the page has {:?}", written[code]);
    }
    let said: Names = said.into_iter().map(|(code, _)| code).collect();
    // That one wants mutual TLS; the tests of access control see it.
    let expected: Names = written.into_keys().filter(|code| code != "18").collect();
    assert_eq!(said, expected);
}

#[test]
fn no_page_knows_a_code_that_is_not_there() {
    let codes = codes_and_reasons();
    let mut count = 0;
    for (path, page) in pages() {
        for before in ["code `", "codes `", "error `", "told `", "0x"] {
            for rest in page.split(before).skip(1) {
                let code: String = rest.chars().take_while(char::is_ascii_hexdigit).collect();
                let after = rest[code.len()..].chars().next();
                if code.len() == 2 && (before == "0x" || after == Some('`')) && !path.starts_with("testing/") {
                    // The one byte that stands for all that begin no frame.
                    assert!(code == "7f" || codes.contains_key(&code), "{path}: there is no code {code}");
                    count += 1;
                }
            }
        }
    }
    assert!(count > 10, "only {count} codes were met");
}

/// The statuses that a command's help explains.
fn explained(command: &str) -> Names {
    let help = outcome(&mut monolock(words(command).into_iter().chain(["--help"]))).stdout;
    let (_, statuses) = help.split_once("Exit status").unwrap();
    let statuses = statuses.lines().skip(1).take_while(|line| !line.trim().is_empty());
    statuses.map(|line| line.trim().split("  ").next().unwrap().to_owned()).collect()
}

#[test]
fn the_page_has_each_exit_status_that_the_help_explains_and_no_other() {
    let page = page("error-codes.md");
    let written = |heading: &str| -> Names {
        let rows = table(section(&page, heading)).into_iter().map(|row| row[0].clone());
        rows.filter(|status| status != "status").collect()
    };
    assert_eq!(written("### monolock run"), explained("run"));
    let of_operators = ["info", "locks", "lock", "release", "kick", "watch"].into_iter().flat_map(explained);
    assert_eq!(written("### Commands of an operator"), of_operators.collect());
    assert_eq!(written("### Others"), explained("healthcheck"));
}

/// The sources in which a client says what it is called.
fn sources(language: &str) -> String {
    let (folder, extension) = match language {
        "Go" => ("clients/go", "go"),
        "Python" => ("clients/python/src/monolock", "py"),
        "Node.js" => ("clients/node", "ts"),
        "Rust" => ("monolock-client/src", "rs"),
        other => panic!("a strange column: {other}"),
    };
    let files = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let readme = root().join(match language {
        "Rust" => "monolock-client/README.md".to_owned(),
        _ => format!("{}/README.md", folder.trim_end_matches("/src/monolock")),
    });
    files
        .filter(|file| has_extension(file, extension))
        .chain([readme])
        .map(|file| fs::read_to_string(file).unwrap())
        .collect()
}

#[test]
fn what_the_page_on_clients_calls_things_they_are_called() {
    let page = page("clients.md");
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut count = 0;
    for text in page.split("\n## ") {
        let table = table(text);
        let Some(header) = table.first() else { continue };
        for (at, language) in
            header.iter().enumerate().filter(|(_, cell)| !["", "kind", "default"].contains(&cell.as_str()))
        {
            let language = language.split(' ').next().unwrap();
            let sources = sources(language);
            let known: BTreeSet<&str> = sources.split(|c| !is_part(c)).collect();
            for row in &table[1..] {
                for span in row[at].split('`').skip(1).step_by(2) {
                    for word in span.split(|c| !is_part(c)).filter(|word| !word.is_empty()) {
                        assert!(known.contains(word), "{language} knows no {word:?}, of {span:?}");
                        count += 1;
                    }
                }
            }
        }
    }
    assert!(count > 100, "only {count} names were looked up");
}

#[test]
fn the_page_on_clients_has_the_kinds_and_the_defaults_that_they_have() {
    let kinds = rows(section(&page("error-codes.md"), "## In the clients"));
    let kinds: Names = kinds.into_iter().filter(|row| row.len() == 3).map(|row| row[0].clone()).collect();
    let of_the_suite = rows(section(&page("writing-a-client.md"), "## The rules"));
    let of_the_suite: Names = of_the_suite.into_iter().map(|row| row[0].clone()).collect();
    assert!(kinds.len() == 7 && kinds.is_subset(&of_the_suite), "{kinds:?}, {of_the_suite:?}");
    let on_the_page: Names =
        rows(section(&page("clients.md"), "## Errors")).into_iter().map(|row| row[0].clone()).collect();
    assert_eq!(on_the_page, kinds);
    for (file, defaults) in [
        ("clients/go/config.go", ["MinLease = 20 * time.Millisecond", "defaultConnectTimeout = 5 * time.Second"]),
        ("clients/node/lib/config.js", ["MIN_LEASE_MS = 20", "DEFAULT_CONNECT_TIMEOUT_MS = 5_000"]),
        ("clients/python/src/monolock/_config.py", ["MIN_LEASE_MS = 20", "timedelta(seconds=5)"]),
        ("monolock-client/src/config.rs", ["MIN_LEASE_MS: u32 = 20", "Duration::from_secs(5)"]),
    ] {
        let source = fs::read_to_string(root().join(file)).unwrap();
        for default in defaults {
            assert!(source.contains(default), "{file} has another default than {default:?}; see docs/clients.md");
        }
    }
}
