//! The binary where there is nothing else: a root folder with it alone, a file that names hosts, and /proc.
//!
//! So it is in a container made from scratch. It serves, is asked whether it is ready, runs itself under a lock, and
//! stops in order.

use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::{env, fs, thread};

use rustix::process::{Pid, Signal, geteuid, kill_process};

use super::{copy, make_folder, write};
use crate::parts::{output, target};

/// What the server says when it opens the door for locks, and that for questions about itself.
const DOORS: [&str; 2] = ["listening", "serving the ops endpoints"];

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

    let mut serving = inside(&root);
    serving.args(["serve", "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--log-format", "json"]);
    serving.stdin(Stdio::null()).stderr(Stdio::piped());
    let mut server = serving.spawn().map_err(|error| format!("cannot start {serving:?}: {error}"))?;
    let tried = use_it(&root, &mut server);
    let stopped = stop(server);
    tried.and(stopped)?;
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

fn use_it(root: &Path, server: &mut Child) -> Result<(), String> {
    let said = server.stderr.take().expect("it is piped");
    let mut lines = BufReader::new(said);
    let [locks, operations] = addresses(&mut lines)?;
    // What it says later is read as well, so that it never waits for a reader.
    thread::spawn(move || lines.read_to_end(&mut Vec::new()));
    output(inside(root).args(["healthcheck", "--ops", &operations]))?;
    let port = locks.rsplit(':').next().unwrap_or_default();
    let server = format!("server.test:{port}");
    let (said, _) = output(inside(root).args(["run", "--server", &server, "nightly", "--", "/monolock", "--version"]))?;
    if said.starts_with("monolock ") { Ok(()) } else { Err(format!("the command under the lock said {said:?}")) }
}

/// Where the server says it can be reached: for locks, and for questions about itself.
fn addresses(lines: &mut impl BufRead) -> Result<[String; 2], String> {
    let mut said = String::new();
    let mut found = DOORS.map(|_| None);
    while found.iter().any(Option::is_none) {
        let mut line = String::new();
        match lines.read_line(&mut line) {
            Ok(1..) => {}
            Ok(0) | Err(_) => return Err(format!("the server ended without saying where it listens: {said}")),
        }
        said.push_str(&line);
        let told: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        let at = DOORS.iter().position(|door| told["message"] == *door);
        if let (Some(at), Some(address)) = (at, told["address"].as_str()) {
            found[at] = Some(address.to_owned());
        }
    }
    Ok(found.map(Option::unwrap_or_default))
}

/// Tells the server to stop, and sees it do so.
fn stop(mut server: Child) -> Result<(), String> {
    let process = i32::try_from(server.id()).ok().and_then(Pid::from_raw).expect("a child has a process");
    kill_process(process, Signal::TERM).map_err(|error| format!("cannot stop the server: {error}"))?;
    let status = server.wait().map_err(|error| format!("cannot wait for the server: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("the server ended with {status}")) }
}
