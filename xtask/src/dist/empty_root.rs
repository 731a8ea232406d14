//! The binary where there is nothing else: a root folder with it alone, a file that names hosts, and /proc.
//!
//! So it is in a container made from scratch. It serves, is asked whether it is ready, runs itself under a lock, and
//! stops in order. It does so too where the system has modules for the lookup of names: a static program must not load
//! them, for they are made for another version of the C library.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use rustix::process::geteuid;

use super::{copy, make_folder, write};
use crate::parts::{output, run, target};
use crate::serving::Serving;

/// Tries the binary.
///
/// # Errors
/// What did not go as it has to.
pub(super) fn try_in(binary: &Path) -> Result<(), String> {
    let root = target().join("empty-root");
    if root.exists() {
        fs::remove_dir_all(&root).map_err(|error| format!("{}: {error}", root.display()))?;
    }
    make_folder(&root.join("etc"))?;
    make_folder(&root.join("proc"))?;
    copy(binary, &root.join("monolock"))?;
    // Containers have this file.
    write(&root.join("etc/hosts"), "127.0.0.1 server.test\n")?;
    use_it(&root)?;
    set_trap(&root)?;
    use_it(&root)?;
    println!("in an empty root: it serves, answers, runs a command under a lock, and stops in order");
    fs::remove_dir_all(&root).map_err(|error| format!("{}: {error}", root.display()))
}

/// Puts a module for the lookup of names there, which ends whoever loads it.
fn set_trap(root: &Path) -> Result<(), String> {
    let source = root.join("trap.c");
    write(&source, "__attribute__((constructor)) static void spring(void) { __builtin_trap(); }\n")?;
    let module = root.join("lib/libnss_trap.so.2");
    make_folder(&root.join("lib"))?;
    // It needs no other library, so nothing can keep it from being loaded.
    run(Command::new("cc").args(["-shared", "-fPIC", "-nostdlib", "-o"]).args([&module, &source]))?;
    write(&root.join("etc/nsswitch.conf"), "hosts: trap files dns\n")
}

fn use_it(root: &Path) -> Result<(), String> {
    let serving = Serving::start(inside(root))?;
    output(inside(root).args(["healthcheck", "--ops", &serving.operations]))?;
    let port = serving.address.rsplit(':').next().unwrap_or_default();
    let server = format!("server.test:{port}");
    let (said, _) = output(inside(root).args(["run", "--server", &server, "nightly", "--", "/monolock", "--version"]))?;
    if !said.starts_with("monolock ") {
        return Err(format!("the command under the lock said {said:?}"));
    }
    serving.stop()
}

/// The binary, with this folder as its root.
fn inside(root: &Path) -> Command {
    let mut command = Command::new("unshare");
    if !geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    // It finds itself through /proc, to run a command.
    let there = "mount --rbind /proc \"$0/proc\" && exec chroot \"$0\" /monolock \"$@\"";
    command.args(["--mount", "sh", "-c", there]).arg(root);
    let path = env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    // No setting of whoever calls this is meant.
    command.env_clear().env("PATH", path);
    command
}
