//! Tells the program what it was built from and for (`monolock --version` says it), and keeps modules out of a static one.
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
    if is_static_with_glibc() {
        keep_modules_out();
    }
}

fn is_static_with_glibc() -> bool {
    let said = |what: &str| env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    said("OS") == "linux" && said("ENV") == "gnu" && said("FEATURE").split(',').any(|feature| feature == "crt-static")
}

/// A static program must not load the system's modules for names of hosts; `names.c` says why.
fn keep_modules_out() {
    const SOURCE: &str = "static/names.c";
    println!("cargo::rerun-if-changed={SOURCE}");
    // Nothing calls it, so the linker would leave it out.
    cc::Build::new().file(SOURCE).link_lib_modifier("+whole-archive").compile("names");
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
