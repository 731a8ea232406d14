//! What the run calls that is not its own.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::Arguments;
use crate::run::Result;

/// How packets are made to vanish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    Nft,
    Iptables,
}

/// Programs, each of them there.
#[derive(Clone, Debug)]
pub(crate) struct Tools {
    pub(crate) monolock: PathBuf,
    pub(crate) worker: PathBuf,
    pub(crate) python: String,
    /// The Go client's worker, where it was built.
    pub(crate) go_worker: Option<PathBuf>,
    pub(crate) node: Option<String>,
    /// Where the workers are that are not compiled.
    pub(crate) scripts: PathBuf,
    pub(crate) filter: Filter,
    /// What makes the server's wall clock another.
    pub(crate) wall_clock: PathBuf,
}

impl Tools {
    /// Looks for all of them.
    ///
    /// # Errors
    /// What lacks, and what installs it.
    pub(crate) fn find(arguments: &Arguments) -> Result<Self> {
        let Arguments { python, go_worker, node, .. } = arguments;
        let beside = |name: &str, package: &str| {
            let program = env::current_exe().map_err(|error| format!("where this program is: {error}"))?;
            let path = program.with_file_name(name);
            let lacks = || format!("{} is missing: `cargo build --package {package}` makes it", path.display());
            if path.is_file() { Ok(path.clone()) } else { Err(lacks()) }
        };
        need("ip", &["-V"], "iproute2")?;
        need(python, &["--version"], "python3")?;
        let filter = if works("nft", &["list", "ruleset"]) {
            Filter::Nft
        } else if works("iptables", &["-n", "-L"]) {
            Filter::Iptables
        } else {
            return Err("neither nft nor iptables works here: `apt-get install nftables` installs the first".to_owned());
        };
        if let Some(node) = node {
            need(node, &["--version"], "nodejs")?;
        }
        if let Some(worker) = go_worker.as_ref().filter(|worker| !worker.is_file()) {
            return Err(format!("--go-worker {}: there is no such file", worker.display()));
        }
        Ok(Self {
            monolock: beside("monolock", "monolock-bin")?,
            worker: beside("chaos-worker", "monolock-chaos")?,
            python: python.clone(),
            go_worker: go_worker.clone(),
            node: node.clone(),
            scripts: env!("CARGO_MANIFEST_DIR").into(),
            filter,
            wall_clock: wall_clock()?,
        })
    }
}

fn works(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn need(program: &str, arguments: &[&str], package: &str) -> Result<()> {
    if works(program, arguments) {
        return Ok(());
    }
    Err(format!("{program} is missing: `apt-get install {package}` installs it"))
}

/// Builds the library of the server's wall clock, beside this program.
fn wall_clock() -> Result<PathBuf> {
    let program = env::current_exe().map_err(|error| format!("where this program is: {error}"))?;
    let library = program.with_file_name("wall_clock.so");
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../wall_clock/wall_clock.c");
    call(Command::new(compiler).args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source), "")?;
    Ok(library)
}

/// Runs a program to its end; `input` goes to its standard input.
///
/// # Errors
/// What was called, and what it said.
pub(crate) fn call(command: &mut Command, input: &str) -> Result<String> {
    use std::io::Write as _;

    let called = format!("{command:?}");
    let failed = |error| format!("cannot run {called}: {error}");
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that does not read says by its status what is wrong.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{called} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
    }
}
