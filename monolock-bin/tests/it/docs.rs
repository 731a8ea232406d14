//! The manual says what the program does: every setting, metric, field and route is in it, and none that is not there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::stage::{self, root};
use crate::support::{Server, http, http_get, logged_address, monolock, outcome, words};

pub(crate) type Names = BTreeSet<String>;

pub(crate) fn page(name: &str) -> String {
    fs::read_to_string(root().join("docs").join(name)).unwrap()
}

/// All pages that a user reads, by their paths from the root.
fn pages() -> BTreeMap<PathBuf, String> {
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let pages =
        pages.chain(["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"].map(|name| root().join(name)));
    pages.map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// What the program is run by, by its path.
fn deployed() -> BTreeMap<PathBuf, String> {
    let files = ["Containerfile", "compose.yaml", "systemd/monolock.service", "systemd/monolock.socket"];
    let paths = files.map(|file| root().join("deploy").join(file)).into_iter();
    paths.map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// What stands below a heading, down to the next of its rank or above.
pub(crate) fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("there is no {heading:?}"));
    let rank = heading.find(' ').unwrap();
    let ends = (1..=rank).filter_map(|rank| rest.find(&format!("\n{} ", "#".repeat(rank))));
    &rest[..ends.min().unwrap_or(rest.len())]
}

/// The rows of its tables whose first cell is code, cell by cell, without the marks of code.
pub(crate) fn rows(text: &str) -> Vec<Vec<String>> {
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let cells = |row: &str| {
        let row = row.trim_matches('|').replace("\\|", "\u{0}");
        row.split('|').map(|cell| cell.trim().replace('`', "").replace('\u{0}', "|")).collect()
    };
    rows.map(cells).collect()
}

/// The words of a text that begin so and go on in these characters.
fn words_beginning_with(text: &str, start: &str, goes_on: impl Fn(char) -> bool) -> Names {
    let is_at_a_word = |at: usize| !text[..at].ends_with(|c: char| c.is_alphanumeric() || "_-./".contains(c));
    let found = text.match_indices(start).filter(|(at, _)| is_at_a_word(*at));
    found
        .map(|(at, _)| {
            let rest = &text[at + start.len()..];
            let end = rest.find(|c| !goes_on(c)).unwrap_or(rest.len());
            format!("{start}{}", &rest[..end])
        })
        .collect()
}

/// What a command's help says of its flags: with its value's name, the variable and the default.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Setting {
    flag: String,
    pub(crate) variable: String,
    pub(crate) default: Option<String>,
}

pub(crate) fn settings(command: &str) -> BTreeSet<Setting> {
    let help = outcome(&mut monolock(words(command).into_iter().chain(["--help"]))).stdout;
    let mut settings: Vec<Setting> = Vec::new();
    for line in help.lines() {
        let said = |what: &str| line.trim().strip_prefix(what)?.strip_suffix(']').map(str::to_owned);
        // What is set further in is prose.
        if line.starts_with("      --") {
            let flag = line.trim().replace(['<', '>'], "");
            settings.push(Setting { flag, variable: String::new(), default: None });
        } else if let Some(variable) = said("[env: ") {
            settings.last_mut().unwrap().variable = variable;
        } else if let Some(default) = said("[default: ") {
            settings.last_mut().unwrap().default = Some(default);
        }
    }
    settings.into_iter().collect()
}

/// The commands, and the headings below which their settings stand.
const COMMANDS: [(&str, &[&str]); 13] = [
    ("serve", &["## monolock serve"]),
    ("run", &["## monolock run"]),
    ("bench", &["## monolock bench"]),
    ("demo", &["## monolock demo"]),
    ("info", &["### All of them"]),
    ("locks", &["### All of them"]),
    ("lock", &["### All of them"]),
    ("release", &["### All of them", "### monolock release"]),
    ("kick", &["### All of them"]),
    ("watch", &["### All of them"]),
    ("top", &["### monolock top"]),
    ("healthcheck", &["## monolock healthcheck"]),
    ("acl check", &["## monolock acl check"]),
];

#[test]
fn each_setting_stands_on_the_page_with_its_variable_and_its_default() {
    let configuration = page("configuration.md");
    for (command, headings) in COMMANDS {
        let written: BTreeSet<Setting> = headings
            .iter()
            .flat_map(|heading| rows(section(&configuration, heading)))
            .map(|row| {
                let [flag, variable, default, _what, ..] = &row[..] else { panic!("a short row: {row:?}") };
                let default = Some(default.clone()).filter(|default| default != "off" && default != "required");
                Setting { flag: flag.clone(), variable: variable.clone(), default }
            })
            .collect();
        let real = settings(command);
        assert!(!real.is_empty());
        assert_eq!(written, real, "{command}: the page and the help");
    }
}

/// Every flag that some command has.
pub(crate) fn flags() -> Names {
    let all = COMMANDS.iter().flat_map(|(command, _)| settings(command));
    let flags = all.map(|setting| words(&setting.flag)[0].to_owned());
    flags.chain(["--help", "--version"].map(str::to_owned)).collect()
}

/// The commands of a line for a shell, in words.
pub(crate) fn commands(line: &str) -> Vec<Vec<String>> {
    let line = if line.trim_start().starts_with('#') { "" } else { line.split(" #").next().unwrap() };
    let simple = line.split(['|', ';', '&']).map(|command| {
        let words = words(command).into_iter().map(|word| word.trim_matches(['"', '\'']).to_owned());
        let is_assignment = |word: &String| {
            word.split_once('=').is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
        };
        words.skip_while(is_assignment).collect()
    });
    simple.filter(|command: &Vec<String>| !command.is_empty()).collect()
}

#[test]
fn no_page_knows_a_flag_or_a_variable_that_is_not_there() {
    let flags = flags();
    let all = COMMANDS.iter().flat_map(|(command, _)| settings(command));
    let mut variables: Names = all.map(|setting| setting.variable).collect();
    // What `run` tells its command.
    variables.extend(["MONOLOCK_LOCK", "MONOLOCK_TOKEN"].map(str::to_owned));
    // Pages about other programs: those that test this one.
    let others = ["docs/writing-a-client.md", "docs/testing.md", "docs/releasing.md", "CONTRIBUTING.md"]
        .map(|page| root().join(page));
    // They have the flags of container engines, and variables of this program.
    let of_engines = root().join("docs/deployment.md");
    for (path, text) in pages().into_iter().chain(deployed()).filter(|(path, _)| !others.contains(path)) {
        let written = words_beginning_with(&text, "MONOLOCK_", |c| c.is_ascii_uppercase() || c == '_');
        assert_eq!(written.difference(&variables).collect::<Vec<_>>(), [""; 0], "{}", path.display());
        if path == of_engines {
            continue;
        }
        // In fenced blocks stand the flags of other programs too.
        let spans = text.split('`').filter(|span| span.starts_with("--") && !span.contains('\n'));
        let written: Names =
            spans.map(|span| span.split([' ', '=']).next().unwrap().to_owned()).filter(|flag| flag != "--").collect();
        assert_eq!(written.difference(&flags).collect::<Vec<_>>(), [""; 0], "{}", path.display());
    }
}

/// A metric's name without what its type adds, its type and its labels.
type Metric = (String, String, Names);

fn exported(exposition: &str) -> BTreeSet<Metric> {
    let mut types: BTreeMap<&str, &str> = BTreeMap::new();
    let mut labels: BTreeMap<&str, Names> = BTreeMap::new();
    for line in exposition.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            types.insert(name, kind);
        } else if let Some((name, rest)) = line.split_once('{').filter(|_| !line.starts_with('#')) {
            let names = rest.split(',').filter_map(|label| label.split_once('=')).map(|(label, _)| label.to_owned());
            labels.entry(name.trim_end_matches("_bucket")).or_default().extend(names);
        }
    }
    let metric =
        |(name, kind): (&str, &str)| (name.to_owned(), kind.to_owned(), labels.get(name).cloned().unwrap_or_default());
    types.into_iter().map(metric).collect()
}

fn observed() -> (Server, String) {
    let server = Server::start_with(monolock(words("--listen 127.0.0.1:0 --ops-listen 127.0.0.1:0")));
    let ops = logged_address(&server.process.stderr_line("ops endpoints"));
    let exposition = http_get(ops, "/metrics");
    (server, exposition)
}

/// The values of a label.
fn values(exposition: &str, label: &str) -> Names {
    let start = format!("{label}=\"");
    let values = exposition.lines().filter_map(|line| Some(line.split_once(&start)?.1.split_once('"')?.0.to_owned()));
    values.collect()
}

#[test]
fn each_metric_stands_on_the_page_with_its_type_and_labels_and_no_other() {
    let (_server, exposition) = observed();
    let page = page("observability.md");
    let written: BTreeSet<Metric> = rows(section(&page, "## Metrics"))
        .into_iter()
        .map(|row| match &row[..] {
            // The gauges of the present have no column for labels.
            [name, kind, _what] => (name.clone(), kind.clone(), Names::new()),
            [name, kind, labels, _what] => {
                (name.clone(), kind.clone(), words(labels).into_iter().map(str::to_owned).collect())
            }
            row => panic!("a strange row: {row:?}"),
        })
        .collect();
    let real = exported(&exposition);
    let real: BTreeSet<Metric> =
        real.into_iter().filter(|(name, ..)| cfg!(target_os = "linux") || !name.starts_with("process_")).collect();
    assert_eq!(written, real);
    for (label, row) in [("reason", "monolock_releases_total"), ("result", "monolock_reloads_total")] {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{row}`"))).unwrap();
        for value in values(&exposition, label) {
            assert!(row.contains(&format!("`{value}`")), "{label} {value:?} is not in: {row}");
        }
    }
}

#[test]
fn no_page_knows_a_metric_that_is_not_there() {
    let (_server, exposition) = observed();
    let real: Names = exported(&exposition).into_iter().map(|(name, ..)| name).collect();
    for (path, text) in pages() {
        let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
        for start in ["monolock_", "process_"] {
            for word in words_beginning_with(&text, start, is_part) {
                let is_crate = ["monolock_client", "monolock_core", "monolock_net"].contains(&&*word);
                let bare = ["_bucket", "_sum", "_count"].into_iter().find_map(|suffix| word.strip_suffix(suffix));
                // The beginning of many names is said as such.
                let is_beginning = word == start || word == "monolock_start_grace";
                let is_there = real.contains(&word) || bare.is_some_and(|bare| real.contains(bare));
                assert!(is_there || is_crate || is_beginning, "{}: {word}", path.display());
            }
        }
    }
}

/// The names of all test functions in the tree: what stands after an attribute that makes one.
pub(crate) fn tests() -> Names {
    let mut folders = vec![root()];
    let mut tests = Names::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                let is_source = !["target", "node_modules"].iter().any(|other| name == *other);
                folders.extend(Some(path).filter(|_| is_source));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(path).unwrap();
                let marked = ["#[test]", "#[tokio::test"].into_iter().flat_map(|mark| text.split(mark).skip(1));
                tests.extend(marked.filter_map(|after| {
                    let (_, after) = after.split_once("fn ")?;
                    Some(after.split('(').next()?.to_owned())
                }));
            }
        }
    }
    tests
}

#[test]
fn each_test_that_holds_a_promise_is_there() {
    let tests = tests();
    let page = page("guarantees.md");
    let promises = section(&page, "## What is promised");
    let rows = promises.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| promise "));
    let mut count = 0;
    for row in rows {
        let held_by = row.trim_end_matches('|').rsplit('|').next().unwrap();
        let named = held_by.split('`').skip(1).step_by(2);
        count += named.clone().count();
        assert!(held_by.contains('`'), "nothing holds: {row}");
        for name in named {
            assert!(tests.contains(name), "{name} is no test, of: {row}");
        }
    }
    assert!(count > 30, "only {count} tests were named");
}

fn keys(object: &Value) -> Names {
    object.as_object().unwrap().keys().cloned().collect()
}

fn names<const N: usize>(names: [&str; N]) -> Names {
    names.map(str::to_owned).into()
}

/// The fields of each event, as the page has them.
fn written_events(page: &str) -> BTreeMap<String, Names> {
    let own: BTreeMap<String, Names> = rows(section(page, "## Events"))
        .into_iter()
        .map(|row| (row[0].clone(), row[2].split(", ").filter(|field| !field.is_empty()).map(str::to_owned).collect()))
        .collect();
    let described: Names =
        rows(section(page, "## Fields")).into_iter().filter(|row| row.len() == 3).map(|row| row[0].clone()).collect();
    let common: Names =
        described.iter().filter(|field| !own.values().any(|own| own.contains(*field))).cloned().collect();
    assert!(own.values().flatten().all(|field| described.contains(field)), "{described:?} lacks some of {own:?}");
    own.into_iter().map(|(event, own)| (event, &common | &own)).collect()
}

#[test]
fn each_audit_event_has_the_fields_that_the_page_gives_it() {
    let page = page("audit.md");
    let written = written_events(&page);
    let real_names = names(["granted", "released", "denied", "force_release", "kick_waiter"]);
    assert_eq!(written.keys().cloned().collect::<Names>(), real_names);

    let flags = "--listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --audit-log -";
    let server = Server::start_with(monolock(words(flags)));
    let admin = logged_address(&server.process.stderr_line("admin API"));
    let _holder = server.hold("jobs");
    let waiter = server.queue("jobs");
    let waiter = waiter.stream.local_addr().unwrap();
    http(admin, "DELETE", &format!("/api/locks/jobs/waiters/{waiter}"));
    http(admin, "POST", "/api/locks/jobs/release");
    for expected in ["granted", "kick_waiter", "force_release", "released"] {
        let line: Value = serde_json::from_str(&server.process.line()).unwrap();
        assert_eq!(line["event"], expected);
        assert_eq!(keys(&line), written[expected], "{expected}");
    }

    let lines: Vec<Value> = page
        .lines()
        .filter(|line| line.starts_with("{\"time\""))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for line in &lines {
        assert_eq!(keys(line), written[line["event"].as_str().unwrap()], "an example of the page: {line}");
    }
    let shown: Names = lines.iter().map(|line| line["event"].as_str().unwrap().to_owned()).collect();
    assert_eq!(shown, real_names, "each event has an example");

    let reasons: Names =
        rows(section(&page, "## Fields")).into_iter().filter(|row| row.len() == 2).map(|row| row[0].clone()).collect();
    assert_eq!(reasons, values(&observed().1, "reason"));
}

#[test]
fn each_route_of_the_admin_api_stands_on_the_page_and_its_examples_have_the_real_fields() {
    let page = page("admin-api.md");
    let server = Server::start_with(monolock(words("--listen 127.0.0.1:0 --admin-listen 127.0.0.1:0")));
    let admin = logged_address(&server.process.stderr_line("admin API"));
    let description: Value = serde_json::from_str(&http_get(admin, "/api/openapi.json")).unwrap();
    let methods = ["get", "post", "put", "patch", "delete"];
    let real: Names = description["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, methods_there)| {
            let there = methods.into_iter().filter(|method| methods_there.get(method).is_some());
            there.map(move |method| format!("{} {path}", method.to_uppercase()))
        })
        .collect();
    let intro = page.split("\n## ").next().unwrap();
    let written: Names = rows(intro).into_iter().map(|row| row[0].clone()).collect();
    assert_eq!(written, real);

    let _holder = server.hold("jobs");
    let _waiter = server.queue("jobs");
    let examples: Vec<Value> = page
        .split("```")
        .filter(|block| block.starts_with("console\n"))
        .filter_map(|block| serde_json::from_str(&block[block.find("\n{\n")?..]).ok())
        .collect();
    let like = |name: &str| examples.iter().find(|example| example.get(name).is_some()).unwrap();
    let shape = |value: &Value| (keys(value), keys(&value["config"]));
    let info: Value = serde_json::from_str(&http_get(admin, "/api/info")).unwrap();
    assert_eq!(shape(like("uptime_ms")), shape(&info));
    let locks: Value = serde_json::from_str(&http_get(admin, "/api/locks")).unwrap();
    let shape = |value: &Value| {
        let lock = &value["locks"][0];
        (keys(value), keys(lock), keys(&lock["holder"]), keys(&lock["waiters"][0]))
    };
    let listed = examples.iter().find(|example| example["locks"].is_array()).unwrap();
    assert_eq!(shape(listed), shape(&locks));
}

/// What a heading is called in a link.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    heading
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// The anchors of a page's headings. A line of a block is none.
fn anchors(page: &str) -> Names {
    let is_heading = |inside: &mut bool, line: &str| {
        *inside ^= line.trim_start().starts_with("```");
        Some((!*inside && line.starts_with('#')).then(|| anchor(line)))
    };
    page.lines().scan(false, |inside, line| is_heading(inside, line)).flatten().collect()
}

#[test]
fn links_between_the_pages_lead_somewhere() {
    let mut pages = stage::pages();
    for path in ["CHANGELOG.md", "llms.txt"] {
        pages.insert(path.to_owned(), fs::read_to_string(root().join(path)).unwrap());
    }
    for (path, text) in &pages {
        let here = root().join(path);
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
        for target in targets.filter(|target| !target.contains("://")) {
            let (file, fragment) =
                target.split_once('#').map_or((target, None), |(file, fragment)| (file, Some(fragment)));
            let file = if file.is_empty() { here.clone() } else { here.parent().unwrap().join(file) };
            assert!(file.exists(), "{path}: {target}");
            if let Some(fragment) = fragment {
                let anchors = anchors(&fs::read_to_string(file).unwrap());
                assert!(anchors.contains(fragment), "{path}: {target}; there are {anchors:?}");
            }
        }
    }
}
