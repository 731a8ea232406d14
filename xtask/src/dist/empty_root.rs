//! The binary where there is nothing else: a root folder with it alone, a file that names hosts, and /proc.
//!
//! So it is in a container made from scratch. It serves, is asked whether it is ready, runs itself under a lock, and
//! stops in order.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use rustix::process::geteuid;

use super::{copy, make_folder, write};
use crate::parts::{output, target};
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
    // Containers have this file. Names are looked up by what is linked statically, without the libraries of a system.
    write(&root.join("etc/hosts"), "127.0.0.1 server.test\n")?;

    let serving = Serving::start(inside(&root))?;
    output(inside(&root).args(["healthcheck", "--ops", &serving.operations]))?;
    let port = serving.address.rsplit(':').next().unwrap_or_default();
    let server = format!("server.test:{port}");
    let (said, _) =
        output(inside(&root).args(["run", "--server", &server, "nightly", "--", "/monolock", "--version"]))?;
    if !said.starts_with("monolock ") {
        return Err(format!("the command under the lock said {said:?}"));
    }
    serving.stop()?;
    println!("in an empty root: it serves, answers, runs a command under a lock, and stops in order");
    fs::remove_dir_all(&root).map_err(|error| format!("{}: {error}", root.display()))
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
