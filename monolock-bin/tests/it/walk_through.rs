//! The page on operating: its commands, run in their order against a real server.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::operator::{Administered, asking};
use crate::stage::put_program;
use crate::support::{Ended, Frame, outcome};

/// The blocks of a page in this language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    page.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// A folder with a `jq` in it, of which the page needs to take one number out of a document.
fn number_picker() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let script = "#!/bin/sh\ncase $1 in\n\
                  .holder.token) sed 's/.*\"token\":\\([0-9]*\\).*/\\1/' ;;\n\
                  '.waiters[0].session') sed 's/.*\"waiters\":\\[{[^}]*\"session\":\\([0-9]*\\).*/\\1/' ;;\n\
                  *) echo \"what is $1?\" >&2; exit 1 ;;\nesac\n";
    put_program(&folder.path().join("jq"), script);
    folder
}

#[test]
fn the_commands_of_the_page_answer_the_four_questions() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = fs::read_to_string(root.join("docs/operating.md")).unwrap();
    let administered = Administered::start();
    let server = &administered.server;
    let mut first = server.hold("nightly/import");
    let mut waiters = [server.queue("nightly/import"), server.queue("nightly/import")];
    let _other = server.hold("other");
    let picker = number_picker();
    let program = Path::new(env!("CARGO_BIN_EXE_monolock")).parent().unwrap();
    let own_path = env::var_os("PATH").unwrap();
    let path = [picker.path().to_owned(), program.to_owned()].into_iter().chain(env::split_paths(&own_path));
    let path = env::join_paths(path).unwrap();

    let blocks = blocks(&page, "sh");
    let holder = first.stream.local_addr().unwrap().to_string();
    let said = blocks.iter().map(|block| {
        let environment = asking(administered.admin, &[]);
        let mut shell = Command::new("sh");
        for (variable, value) in environment.get_envs() {
            match value {
                Some(value) => shell.env(variable, value),
                None => shell.env_remove(variable),
            };
        }
        let Ended { status, stdout, stderr } = outcome(shell.args(["-euc", block]).env("PATH", &path));
        assert_eq!((status, stderr.as_str()), (0, ""), "{block}");
        stdout
    });
    let said: Vec<String> = said.collect();
    let expected: [&[&str]; 6] = [
        &["nightly/import", &holder, "other"],
        &["nightly/import"],
        &["held by  ", &holder, "2 wait:"],
        &["released \"nightly/import\", which ", &holder],
        &["removed ", "from the queue of \"nightly/import\""],
        &["monolock ", "sessions"],
    ];
    assert_eq!(said.len(), expected.len());
    for (said, expected) in said.iter().zip(expected) {
        crate::support::assert_in_order(said, expected);
    }
    assert!(!said[1].contains("other"), "{}", said[1]);
    first.expect(Frame::Error(0x02));
    waiters[0].expect_acquired();
    waiters[1].expect(Frame::Error(0x02));
}

/// What a line begins with, before anything that differs from run to run.
fn heads(text: &str) -> Vec<String> {
    let word =
        |line: &str| line.split("  ").map(str::trim).find(|word| !word.is_empty()).unwrap_or_default().to_owned();
    text.lines().map(word).collect()
}

#[test]
fn what_the_page_shows_looks_like_what_is_printed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = fs::read_to_string(root.join("docs/operating.md")).unwrap();
    let shown = blocks(&page, "text");
    let administered = Administered::start();
    let server = &administered.server;
    let _holder = server.hold("nightly/import");
    let _waiters = [server.queue("nightly/import"), server.queue("nightly/import")];
    let _other = server.hold("other");
    let locks = outcome(&mut administered.monolock("locks")).stdout;
    assert_eq!(heads(&locks), heads(&shown[0]));
    let lock = outcome(&mut administered.monolock("lock nightly/import")).stdout;
    assert_eq!(heads(&lock), heads(&shown[1]));
}
