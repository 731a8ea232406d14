//! `cargo xtask chaos`: builds the server and its clients, and puts them under faults.
//!
//! The run looks for the tools that it calls itself, and says what lacks. Clients in Go and Node.js are taken along
//! where those are installed.

use std::env;
use std::ffi::OsString;
use std::process::Command;

use crate::parts::{self, GO, NODE};

/// Builds what is needed and hands `arguments` to the run; `--release` among them is about the building.
///
/// # Errors
/// What was called and how it ended.
pub(crate) fn chaos(arguments: &[String]) -> Result<(), String> {
    let (of_building, of_run): (Vec<&String>, Vec<&String>) =
        arguments.iter().partition(|argument| *argument == "--release");
    build_and_run(!of_building.is_empty(), &of_run)
}

fn build_and_run(in_release: bool, arguments: &[&String]) -> Result<(), String> {
    let mut build = Command::new(parts::cargo());
    build.args(["build", "--locked", "--quiet", "--package", "monolock-bin", "--package", "monolock-chaos", "--bins"]);
    let profile = if in_release { "release" } else { "debug" };
    if in_release {
        build.arg("--release");
    }
    parts::run(&mut build)?;

    let target = parts::target();
    let mut run = Command::new(target.join(profile).join("monolock-chaos"));
    run.arg("--folder").arg(target.join("chaos"));
    if GO.is_met() {
        let worker = target.join("chaos-worker-go");
        let mut build = Command::new("go");
        build.current_dir("testing/chaos/worker-go").args(["build", "-o"]).arg(&worker).arg(".");
        parts::run(&mut build)?;
        run.arg("--go-worker").arg(worker);
    }
    if NODE.is_met() {
        run.args(["--node", "node"]);
    }
    run.args(arguments).env("PATH", search_path());
    parts::run(&mut run)
}

/// Where programs are looked for: also where Debian has those for root.
fn search_path() -> OsString {
    let mut path = env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    path
}
