//! Tells the program what it was built from and for (`monolock --version` says it), sets its allocator up, and keeps
//! modules out of a static one.
//!
//! The commit comes from whoever builds a release (`cargo xtask dist`), or from the package that cargo made of one. An
//! ordinary build has none: git is not asked, since then every commit would build the program anew.

use std::path::PathBuf;
use std::{env, fs};

/// Which commit is built, as `cargo xtask dist` says it.
const COMMIT: &str = "MONOLOCK_BUILD_COMMIT";

/// Digits of a commit that are shown.
const SHOWN_DIGITS: usize = 12;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={COMMIT}");
    let target = env::var("TARGET").expect("cargo tells the target");
    let commit = env::var(COMMIT).ok().filter(|commit| !commit.is_empty()).or_else(commit_of_package);
    let commit = commit.map_or_else(|| "unknown commit".to_owned(), |commit| format!("commit {}", shortened(&commit)));
    println!("cargo::rustc-env=MONOLOCK_BUILD={commit}, {target}");
    println!("cargo::rustc-check-cfg=cfg(jemalloc)");
    if is_with_jemalloc() {
        println!("cargo::rustc-cfg=jemalloc");
        link("c/allocator.c", "allocator");
    }
    // A static program must not load the system's modules for names of hosts; the file says why.
    if is_static_with_glibc() {
        link("c/names.c", "names");
    }
}

/// Of the platform that is built for, as cargo names its parts.
fn said(what: &str) -> String {
    env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default()
}

/// As in `Cargo.toml`.
fn is_with_jemalloc() -> bool {
    env::var_os("CARGO_FEATURE_JEMALLOC").is_some() && said("OS") == "linux" && said("ARCH") == "x86_64"
}

fn is_static_with_glibc() -> bool {
    said("OS") == "linux" && said("ENV") == "gnu" && said("FEATURE").split(',').any(|feature| feature == "crt-static")
}

/// Nothing calls what lies in the source, so the linker would leave it out if it were not told.
fn link(source: &str, name: &str) {
    println!("cargo::rerun-if-changed={source}");
    cc::Build::new().file(source).link_lib_modifier("+whole-archive").compile(name);
}

/// What cargo put down when it made a package for the registry.
fn commit_of_package() -> Option<String> {
    let folder = env::var_os("CARGO_MANIFEST_DIR")?;
    let path = PathBuf::from(folder).join(".cargo_vcs_info.json");
    let text = fs::read_to_string(&path).ok()?;
    println!("cargo::rerun-if-changed={}", path.display());
    let (_, rest) = text.split_once("\"sha1\": \"")?;
    let (commit, _) = rest.split_once('"')?;
    Some(commit.to_owned())
}

/// The first digits, and what is said behind the last one.
fn shortened(commit: &str) -> String {
    let (digits, remark) = commit.split_at(commit.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(commit.len()));
    format!("{}{remark}", &digits[..digits.len().min(SHOWN_DIGITS)])
}
