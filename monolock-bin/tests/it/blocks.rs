//! The rule for fenced blocks: each shell block of the manual is run by a test, or says in a comment before it why not.
//!
//! A block without a comment is run here, so a new one cannot be forgotten.

use std::fs;

use crate::certificates::make_certificates;
use crate::docs::{commands, flags, section, tests};
use crate::stage::{Block, Marker, Stage, blocks, pages, root};
use crate::support::Ended;

/// Pages whose shell blocks have a test of their own, and which.
const ELSEWHERE: [(&str, &str); 3] = [
    ("docs/deployment.md", "the_commands_of_the_page_run"),
    ("docs/operating.md", "the_commands_of_the_page_answer_the_four_questions"),
    ("docs/tls.md", "the_commands_of_the_page_make_certificates_serve_and_rotate"),
];

/// What a fence may say: a forge and the book highlight these.
const LANGUAGES: [&str; 18] = [
    "console",
    "csv",
    "dockerfile",
    "go",
    "ini",
    "js",
    "json",
    "mermaid",
    "nginx",
    "python",
    "rust",
    "sh",
    "sql",
    "text",
    "toml",
    "ts",
    "xml",
    "yaml",
];

/// Certificates, and what else the commands of the pages name.
fn furnish(stage: &Stage) {
    make_certificates(&stage.path(""));
    stage.put("admin.token", "correct-horse-battery-staple-correct-horse\n");
    let access = fs::read_to_string(root().join("docs/access-control.md")).unwrap();
    let list = blocks(&access).into_iter().find(|block| block.language == "json").expect("the page shows a list");
    stage.put("acl.json", &list.text);
}

fn is_run_here(page: &str, block: &Block) -> bool {
    block.language == "sh" && block.marker.is_none() && !ELSEWHERE.iter().any(|(elsewhere, _)| *elsewhere == page)
}

#[test]
fn the_shell_blocks_of_the_pages_run() {
    let mut count = 0;
    for (path, page) in pages() {
        let here: Vec<Block> = blocks(&page).into_iter().filter(|block| is_run_here(&path, block)).collect();
        count += here.len();
        if here.is_empty() {
            continue;
        }
        let stage = Stage::start();
        furnish(&stage);
        for block in &here {
            stage.expect_success(&path, block);
        }
    }
    assert!(count > 5, "only {count} blocks were run");
}

#[test]
fn each_block_names_its_language_and_what_is_not_run_says_why() {
    let tests = tests();
    for (page, test) in ELSEWHERE {
        assert!(tests.contains(test), "{page} is run by {test}, which is no test");
    }
    for (path, page) in pages() {
        let is_marker =
            |line: &&str| ["<!-- not run:", "<!-- run by:"].iter().any(|start| line.trim_start().starts_with(start));
        let mut markers = page.lines().filter(is_marker).count();
        for Block { line, language, marker, .. } in blocks(&page) {
            assert!(LANGUAGES.contains(&&*language), "{path}:{line}: the language is {language:?}");
            markers -= usize::from(marker.is_some());
            match marker {
                None => {}
                Some(_) if language != "sh" => panic!("{path}:{line}: only shell blocks are run"),
                Some(Marker::NotRun(reason)) => assert!(!reason.is_empty(), "{path}:{line}: why is it not run?"),
                Some(Marker::RunBy(test)) => assert!(tests.contains(&test), "{path}:{line}: {test} is no test"),
            }
        }
        assert_eq!(markers, 0, "{path}: a comment on running stands before no block");
    }
}

/// Commands and what they print, of a block that shows both.
fn transcript(block: &Block) -> Vec<(String, String)> {
    let mut said: Vec<(String, String)> = Vec::new();
    for line in block.text.lines() {
        match (line.strip_prefix("$ "), said.last_mut()) {
            (Some(command), _) => said.push((command.to_owned(), String::new())),
            (None, Some((_, output))) => output.extend([line, "\n"]),
            (None, None) => return Vec::new(),
        }
    }
    said
}

/// Commands that say the same wherever they are run.
const REPEATABLE: [&str; 4] = [
    "monolock acl check ",
    "monolock --max-sessions 0",
    "MONOLOCK_IO_TIMEOUT=soon monolock",
    "monolock --admin-listen 0.0.0.0:7071",
];

#[test]
fn what_says_the_same_everywhere_says_what_the_page_shows() {
    let stage = Stage::start();
    furnish(&stage);
    let mut met = REPEATABLE.map(|_| false);
    for (path, page) in pages() {
        for (command, output) in blocks(&page).iter().flat_map(transcript) {
            let Some(at) = REPEATABLE.iter().position(|start| command.starts_with(start)) else { continue };
            met[at] = true;
            let Ended { stdout, stderr, .. } = stage.run(&command);
            assert_eq!(stdout + &stderr, output, "{path}: {command}");
        }
    }
    assert_eq!(met, REPEATABLE.map(|_| true), "each is shown on a page: {REPEATABLE:?}");
}

/// The commands of the shell blocks and transcripts of all pages, each with where it stands.
fn all_commands() -> Vec<(String, Vec<String>)> {
    let mut all = Vec::new();
    for (path, page) in pages() {
        for block in blocks(&page).iter().filter(|block| ["sh", "console", "text"].contains(&&*block.language)) {
            let shown = block.language != "sh";
            let text = block.text.replace("\\\n", " ");
            for line in text.lines().filter_map(|line| if shown { line.strip_prefix("$ ") } else { Some(line) }) {
                all.extend(commands(line).into_iter().map(|command| (format!("{path}:{}", block.line), command)));
            }
        }
    }
    all
}

#[test]
fn no_command_of_a_block_has_a_flag_that_is_not_there() {
    let flags = flags();
    let mut count = 0;
    for (place, command) in all_commands() {
        if command.first().is_none_or(|program| program != "monolock" && !program.ends_with("/monolock")) {
            continue;
        }
        for word in command.iter().take_while(|word| *word != "--").filter(|word| word.starts_with("--")) {
            let flag = word.split('=').next().unwrap();
            assert!(flags.contains(flag), "{place}: {command:?}: there is no {flag}");
            count += 1;
        }
    }
    assert!(count > 20, "only {count} flags were met");
}

#[test]
fn what_cargo_is_told_to_do_is_there() {
    let source = fs::read_to_string(root().join("xtask/src/main.rs")).unwrap();
    let tasks = source.split_once("enum Task {\n").unwrap().1.split_once("\n}\n").unwrap().0;
    let tasks: Vec<String> = tasks
        .lines()
        .filter_map(|line| line.strip_prefix("    ").filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase())))
        .map(|line| line.split(|c: char| !c.is_alphanumeric()).next().unwrap().to_lowercase())
        .collect();
    let parts = fs::read_to_string(root().join("xtask/src/parts.rs")).unwrap();
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = manifest.split_once("members = [").unwrap().1.split_once(']').unwrap().0;
    let packages: Vec<String> = members
        .split('"')
        .skip(1)
        .step_by(2)
        .map(|member| fs::read_to_string(root().join(member).join("Cargo.toml")).unwrap())
        .map(|manifest| manifest.split("name = \"").nth(1).unwrap().split('"').next().unwrap().to_owned())
        .collect();
    let mut count = 0;
    for (place, command) in all_commands() {
        let Some(at) = command.iter().position(|word| word == "cargo") else { continue };
        let words: Vec<&str> = command[at + 1..].iter().map(String::as_str).collect();
        if let ["xtask", task, rest @ ..] = &words[..] {
            assert!(tasks.iter().any(|there| *there == task.replace('-', "")), "{place}: there is no task {task}");
            if let ("test", [part, ..]) = (*task, rest)
                && !part.starts_with("--")
            {
                assert!(parts.contains(&format!("name: \"{part}\"")), "{place}: there is no part {part}");
            }
            count += 1;
        }
        for pair in
            words.windows(2).take_while(|pair| pair[0] != "--").filter(|pair| ["-p", "--package"].contains(&pair[0]))
        {
            assert!(packages.iter().any(|package| package == pair[1]), "{place}: there is no package {}", pair[1]);
            count += 1;
        }
    }
    assert!(count > 20, "only {count} were met");
}

#[test]
fn a_block_is_found_with_its_place_its_language_and_its_comment() {
    let page =
        "a\n\n<!-- not run: why -->\n```sh\nfirst\n```\n\n- b\n\n  ```rust,no_run\n  second\n      third\n  ```\n";
    let found = blocks(page);
    let [first, second] = &found[..] else { panic!("{found:?}") };
    assert_eq!((first.line, &*first.language, &*first.text), (4, "sh", "first\n"));
    assert!(matches!(&first.marker, Some(Marker::NotRun(reason)) if reason == "why"));
    assert_eq!((second.line, &*second.language, &*second.text), (10, "rust", "second\n    third\n"));
    assert!(second.marker.is_none());
    assert_eq!(section("\n## a\nb\n## c\n", "## a"), "b");
}
