//! The fuzz targets' functions, with every input that is kept in `fuzz/`.
//!
//! What a fuzzer finds is put into `fuzz/regressions`, and from then on every test run looks at it.

mod seeds;

use std::any::Any;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use monolock_fuzzing::TARGETS;

#[test]
fn acl() {
    replay("acl");
}

#[test]
fn admin_path() {
    replay("admin_path");
}

#[test]
fn client() {
    replay("client");
}

#[test]
fn engine() {
    replay("engine");
}

#[test]
fn session() {
    replay("session");
}

#[test]
fn token_file() {
    replay("token_file");
}

#[test]
fn wire() {
    replay("wire");
}

/// A target without its function, a function without its target or a corpus that nobody replays would prove nothing.
#[test]
fn every_target_is_one_line_over_its_function() {
    let names: BTreeSet<_> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).expect("fuzz/ has a manifest");
    for name in &names {
        let source = fuzz().join("fuzz_targets").join(format!("{name}.rs"));
        let source = fs::read_to_string(&source).unwrap_or_else(|error| panic!("{}: {error}", source.display()));
        let line = format!("libfuzzer_sys::fuzz_target!(|bytes: &[u8]| monolock_fuzzing::{name}(bytes));");
        assert_eq!(source, format!("#![no_main]\n\n{line}\n"));
        assert!(
            manifest.contains(&format!("[[bin]]\nname = \"{name}\"\npath = \"fuzz_targets/{name}.rs\"\n")),
            "{name}"
        );
    }
    assert_eq!(manifest.matches("[[bin]]").count(), names.len());
    for folder in ["fuzz_targets", "corpus", "regressions"].map(|folder| fuzz().join(folder)) {
        let strangers: Vec<_> = entries_if_any(&folder)
            .into_iter()
            .filter(|path| !path.file_stem().and_then(OsStr::to_str).is_some_and(|stem| names.contains(stem)))
            .collect();
        assert!(strangers.is_empty(), "of no target: {strangers:?}");
    }
}

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a folder can be read").path()).collect();
    paths.sort();
    paths
}

/// Of what is not there as long as nothing was found.
fn entries_if_any(folder: &Path) -> Vec<PathBuf> {
    if folder.exists() { entries(folder) } else { Vec::new() }
}

/// Calls a target's function with its corpus and with what was once found; names the files with which it fails.
fn replay(name: &str) {
    let (_, check) = TARGETS.iter().find(|(other, _)| *other == name).expect("it is a target");
    let corpus = entries(&fuzz().join("corpus").join(name));
    assert!(!corpus.is_empty(), "fuzz/corpus/{name} is empty");
    let regressions = entries_if_any(&fuzz().join("regressions").join(name));
    let failed: Vec<_> = corpus
        .iter()
        .chain(&regressions)
        .filter_map(|path| {
            let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let panic = catch_unwind(|| check(&bytes)).err()?;
            let place = path.strip_prefix(fuzz()).unwrap_or(path);
            Some(format!("fuzz/{}: {}", place.display(), message(&*panic)))
        })
        .collect();
    assert!(
        failed.is_empty(),
        "{} of {} files:\n{}",
        failed.len(),
        corpus.len() + regressions.len(),
        failed.join("\n")
    );
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words")
}
