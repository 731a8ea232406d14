//! The load: `monolock bench`, called as a program, and what it says.

use std::io;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde::Deserialize;

use crate::process::Kept;
use crate::target::{Kind, Programs, Target};

/// What the load generator reports. Times are in the unit that their name ends in.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Load {
    pub(crate) elapsed_s: f64,
    pub(crate) operations: f64,
    pub(crate) operations_per_second: f64,
    pub(crate) failures: Failures,
    pub(crate) latency_us: Latency,
    pub(crate) server_process: ServerProcess,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Failures {
    pub(crate) total: f64,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    #[serde(rename = "p99.9")]
    pub(crate) p99_9: f64,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ServerProcess {
    pub(crate) processor_us_per_operation: f64,
    pub(crate) resident_before_bytes: f64,
    pub(crate) resident_at_end_bytes: f64,
    pub(crate) resident_after_bytes: f64,
}

/// Puts load on a server: the arguments are those of `monolock bench`, split at spaces.
///
/// # Errors
/// The generator's own sentence.
pub(crate) fn load(programs: &Programs, target: &Target, arguments: &str) -> io::Result<Load> {
    let Output { status, stdout, stderr } = command(programs, target, arguments).stdin(Stdio::null()).output()?;
    if !status.success() {
        let said = String::from_utf8_lossy(&stderr);
        return Err(io::Error::other(format!("bench {arguments} of {}: {}", target.kind, said.trim())));
    }
    serde_json::from_slice(&stdout).map_err(io::Error::from)
}

/// The same in the background, until what is returned is dropped.
pub(crate) fn background_load(programs: &Programs, target: &Target, arguments: &str) -> io::Result<Kept> {
    let mut command = command(programs, target, arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().map(Kept)
}

fn command(programs: &Programs, target: &Target, arguments: &str) -> Command {
    let Programs { monolock, certificates } = programs;
    let mut command = Command::new(monolock);
    command.arg("bench").args(arguments.split(' ')).arg("--json");
    command.args(["--server", &target.address.socket.to_string(), "--server-pid", &target.pid().to_string()]);
    if target.kind.is_tls() {
        command.arg("--tls-ca").arg(certificates.authority_file());
    }
    if target.kind == Kind::MutualTls {
        command.arg("--tls-cert").arg(certificates.client_certificate_file());
        command.arg("--tls-key").arg(certificates.client_key_file());
    }
    without_own_variables(&mut command);
    command
}

/// Variables of whoever runs this are no part of the measurement.
pub(crate) fn without_own_variables(command: &mut Command) {
    for (variable, _) in std::env::vars_os() {
        if variable.as_encoded_bytes().starts_with(b"MONOLOCK_") {
            command.env_remove(variable);
        }
    }
}

/// Where the released program lies beside this one, as cargo builds them.
pub(crate) fn released_program() -> io::Result<std::path::PathBuf> {
    let own = std::env::current_exe()?;
    let beside = own.parent().unwrap_or_else(|| Path::new(".")).join("monolock");
    if beside.is_file() {
        return Ok(beside);
    }
    Err(io::Error::other(format!(
        "there is no {}: `cargo xtask bench` builds it, or name one with --monolock",
        beside.display()
    )))
}
