//! Calls of `cargo xtask` that are written down, in workflows and in documents, are calls that there are.

use std::path::{Path, PathBuf};
use std::{env, fs};

use clap::Parser as _;
use yaml_rust2::{Yaml, YamlLoader};

use crate::Xtask;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|its| its == extension)).collect()
}

/// The calls in a text, one for each that begins with `cargo xtask`; a call ends with its line, or where a shell's
/// does.
fn calls(text: &str) -> Vec<String> {
    let starts = text.match_indices("cargo xtask ").map(|(at, _)| &text[at..]);
    starts.map(|rest| rest.split(['\n', '`', ';', '&', '|', '#', '>']).next().unwrap().trim().to_owned()).collect()
}

fn assert_is_a_call(call: &str, path: &Path) {
    // The program does so first.
    env::set_current_dir(root()).unwrap();
    // What stands for something, in shells and in documents.
    let words = call.split_whitespace().skip(1);
    let words = words.map(|word| word.trim_matches('"').replace("$GITHUB_REF_NAME", "v1.2.3"));
    let words: Vec<String> = words.map(|word| word.trim_matches(['[', ']']).to_owned()).collect();
    if let Err(error) = Xtask::try_parse_from(&words) {
        assert!(!error.use_stderr(), "{}: {call:?}\n{error}", path.display());
    }
}

#[test]
fn workflows_call_what_there_is() {
    let mut seen = 0;
    for path in files(".github/workflows", "yml") {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.display();
        let documents = YamlLoader::load_from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let [workflow] = &documents[..] else { panic!("{name} is not one document") };
        assert_eq!(workflow["permissions"]["contents"].as_str(), Some("read"), "{name} may do more than it needs");
        assert_eq!(workflow["permissions"].as_hash().unwrap().len(), 1, "{name} may do more than it needs");
        for (job, steps) in workflow["jobs"].as_hash().unwrap() {
            let job = job.as_str().unwrap();
            for step in steps["steps"].as_vec().unwrap_or_else(|| panic!("{name}: {job} has no steps")) {
                seen += assert_step(step, &path);
            }
        }
    }
    assert!(seen >= 8, "only {seen} calls were found");
}

/// How many calls there are in a step.
fn assert_step(step: &Yaml, path: &Path) -> usize {
    if let Some(action) = step["uses"].as_str() {
        let (_, version) = action.split_once('@').unwrap_or_default();
        let is_whole = version.starts_with('v') && version.split('.').count() == 3;
        assert!(is_whole, "{}: {action} is not of one version", path.display());
        let keeps = step["with"]["persist-credentials"].as_bool();
        assert!(!action.starts_with("actions/checkout@") || keeps == Some(false), "{}: {step:?}", path.display());
        return 0;
    }
    let script = step["run"].as_str().unwrap_or_else(|| panic!("{}: a step does nothing", path.display()));
    // What others may choose, as the title of a change, is handed over in variables and never put into a script.
    assert!(!script.contains("${{"), "{}: {script}", path.display());
    if script.contains(".ci/run") {
        assert!(root().join(".ci/run").is_file());
    }
    let calls = calls(script);
    for call in &calls {
        assert_is_a_call(call, path);
    }
    calls.len()
}

#[test]
fn documents_tell_of_what_there_is() {
    let pages = ["README.md", "CONTRIBUTING.md"].map(|name| root().join(name));
    for path in pages.into_iter().chain(files("docs", "md")) {
        let text = fs::read_to_string(&path).unwrap();
        // Code alone: what stands between the marks, and in blocks.
        for call in text.split('`').flat_map(calls) {
            assert_is_a_call(&call, &path);
        }
    }
}

#[test]
fn a_call_ends_where_the_shells_does() {
    assert_eq!(
        calls("x; cargo xtask dist --check && true\ncargo xtask test fmt # y"),
        ["cargo xtask dist --check", "cargo xtask test fmt"]
    );
}
