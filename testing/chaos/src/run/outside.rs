//! From the machine's namespaces into ones of the run's own.

use std::convert::Infallible;
use std::env;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use crate::run::Result;

/// The namespaces: networks and mounts as well as processes, so that all of the run dies with its first process.
const NAMESPACES: [&str; 6] = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"];

/// Who is not root becomes it in a namespace of users, where the machine allows that.
const AS_ROOT: [&str; 2] = ["--user", "--map-root-user"];

/// Starts this program again inside, in its own place.
///
/// # Errors
/// The machine allows no namespaces, or has no `unshare`.
pub(crate) fn enter_namespaces(seed: u64) -> Result<Infallible> {
    let program = env::current_exe().map_err(|error| format!("where this program is: {error}"))?;
    let works = |users: &[&str]| {
        let mut probe = Command::new("unshare");
        probe.args(users).args(NAMESPACES).arg("true");
        let probe = probe.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        probe.map(|status| status.success())
    };
    let users: &[&str] = match (works(&[]), works(&AS_ROOT)) {
        (Ok(true), _) => &[],
        (_, Ok(true)) => &AS_ROOT,
        (Err(error), _) => return Err(format!("unshare: {error}; `apt-get install util-linux` installs it")),
        (Ok(false), _) => {
            return Err("the machine allows no namespaces: run as root, or allow unprivileged user namespaces \
                        (sysctl kernel.unprivileged_userns_clone=1, where there is such a thing)"
                .to_owned());
        }
    };
    let mut command = Command::new("unshare");
    command.args(users).args(NAMESPACES).arg(program).arg("--inside").args(env::args_os().skip(1));
    if !env::args().any(|argument| argument.starts_with("--seed")) {
        command.arg(format!("--seed={seed}"));
    }
    Err(format!("cannot start again in namespaces: {}", command.exec()))
}
