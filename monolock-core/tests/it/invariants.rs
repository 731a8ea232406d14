//! What holds for the sources of the crate.

use std::fs;
use std::path::{Path, PathBuf};

fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn source(module: &str) -> String {
    let flat = crate_dir().join(format!("src/{module}.rs"));
    fs::read_to_string(&flat).unwrap_or_else(|error| panic!("{}: {error}", flat.display()))
}

fn modules() -> Vec<String> {
    let entries = fs::read_dir(crate_dir().join("src")).unwrap();
    let paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    let stems: Vec<_> = paths.iter().map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    assert!(paths.iter().all(|path| path.extension().is_some_and(|end| end == "rs")), "modules are flat: {paths:?}");
    stems
}

/// The code without its comments and without its unit tests.
fn code(module: &str) -> String {
    let source = source(module);
    let (code, _tests) = source.split_once("#[cfg(test)]\nmod tests").unwrap_or((&source, ""));
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn mentions(module: &str, word: &str) -> bool {
    code(module).split(|c: char| !c.is_alphanumeric() && c != '_').any(|found| found == word)
}

#[test]
fn hashbrown_is_the_only_dependency() {
    let manifest = fs::read_to_string(crate_dir().join("Cargo.toml")).unwrap();
    let (_, after) = manifest.split_once("\n[dependencies]\n").expect("there is a section of dependencies");
    let section = after.split("\n[").next().unwrap();
    let names: Vec<_> =
        section.lines().filter_map(|line| line.split(['.', ' ', '=']).next()).filter(|name| !name.is_empty()).collect();
    assert_eq!(names, ["hashbrown"]);
    assert!(!manifest.contains("[target.") && !manifest.contains("[build-dependencies]"));
}

#[test]
fn the_crate_has_no_standard_library() {
    let lib = source("lib");
    assert!(lib.contains("\n#![no_std]\n"));
    assert!(lib.contains("#[cfg(test)]\nextern crate std;"), "the standard library is there for unit tests alone");
    for module in modules().iter().filter(|module| *module != "lib") {
        assert!(!mentions(module, "std"), "{module} mentions std");
    }
}

#[test]
fn the_engine_and_the_wire_do_not_know_each_other() {
    let engine = ["engine", "deadlines", "slab", "effect", "view"];
    for module in engine {
        assert!(!mentions(module, "wire"), "{module} mentions wire");
    }
    for word in engine.into_iter().chain(["LockEngine", "SessionId", "Effect", "Effects", "ReleaseReason"]) {
        assert!(!mentions("wire", word), "wire mentions {word}");
    }
    for shared in ["lease", "name", "token", "glob", "time"] {
        assert!(engine.iter().chain(&["wire"]).all(|room| !mentions(shared, room)), "{shared} is vocabulary");
    }
    let known = engine.into_iter().chain(["wire", "lease", "name", "token", "glob", "time", "lib"]);
    let known: Vec<_> = known.collect();
    assert!(modules().iter().all(|module| known.contains(&module.as_str())), "say here where a new module belongs");
}

#[test]
fn nothing_in_the_crate_is_unsafe() {
    assert!(modules().iter().all(|module| !mentions(module, "unsafe")));
}
