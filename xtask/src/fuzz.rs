//! `cargo xtask fuzz`: the fuzz targets, one after the other, and a table of what came of it.
//!
//! Finds go into `target/fuzz`, where the next run goes on with them; the committed corpus in `fuzz/corpus` changes
//! only where that is asked for. A crash leaves its input in `fuzz/artifacts`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Args;

use crate::parts;

const TARGETS: &str = "fuzz/fuzz_targets";

/// What fuzz targets are made with. Without a sanitizer: there is no unsafe code of ours for one to look at, and the
/// fuzzer tries twice as much in the same time.
const FLAGS: [&str; 2] = ["--sanitizer", "none"];

/// The longest input, in bytes: all that a session, a name or a list needs.
const MAX_LEN: u32 = 1024;

/// How long one input may take, in seconds, before it counts as found.
const TIMEOUT_SECONDS: u32 = 20;

/// How many lines of a fuzzer that found something are shown: from the panic on, or the last ones.
const LINES_SHOWN: usize = 24;

/// Runs the fuzz targets.
#[derive(Args, Debug)]
pub(crate) struct Fuzz {
    /// Which targets to run; all without it.
    #[arg(value_name = "TARGET", value_parser = find)]
    targets: Vec<String>,
    /// How long each target is run.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Builds the targets and runs none.
    #[arg(long, conflicts_with = "seconds")]
    check: bool,
    /// Afterwards adds to fuzz/corpus what reaches more than is reached by what is there.
    #[arg(long, conflicts_with = "check")]
    keep: bool,
}

/// What came of one target.
#[derive(Debug, Default)]
struct Outcome {
    lasted: Duration,
    executions: u64,
    found: usize,
    /// The inputs at which it stopped.
    crashes: Vec<String>,
    /// How it failed without naming an input.
    failure: Option<String>,
}

impl Fuzz {
    /// Runs what is asked for.
    pub(crate) fn run(self) -> ExitCode {
        let targets = if self.targets.is_empty() { names() } else { self.targets };
        match Tools::find().and_then(|()| parts::run(cargo_fuzz("build").args(FLAGS))) {
            Ok(()) if self.check => return ExitCode::SUCCESS,
            Ok(()) => {}
            Err(failure) => {
                eprintln!("{failure}");
                return ExitCode::FAILURE;
            }
        }
        let mut outcomes = BTreeMap::new();
        for target in targets {
            println!("== {target}: {} s", self.seconds);
            let outcome = fuzz(&target, self.seconds).and_then(|outcome| {
                if self.keep {
                    keep(&target)?;
                }
                Ok(outcome)
            });
            outcomes.insert(target, outcome.unwrap_or_else(Outcome::failed));
        }
        print(&outcomes);
        let is_clean = outcomes.values().all(|outcome| outcome.crashes.is_empty() && outcome.failure.is_none());
        if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// What must be installed, beyond what the tests need.
struct Tools;

impl Tools {
    /// # Errors
    /// What is missing and what installs it.
    fn find() -> Result<(), String> {
        let missing = |tool, install| Err(format!("{tool} is needed and not installed; `{install}` installs it"));
        if !parts::succeeds(nightly().args(["cargo", "--version"])) {
            return missing("a nightly toolchain", "rustup toolchain install nightly --profile minimal");
        }
        if !parts::succeeds(&mut cargo_fuzz("--version")) {
            return missing("cargo-fuzz", "cargo install cargo-fuzz --locked");
        }
        Ok(())
    }
}

impl Outcome {
    fn failed(failure: String) -> Self {
        Self { failure: Some(failure), ..Self::default() }
    }
}

/// The target of this name.
///
/// # Errors
/// Names the targets that there are.
fn find(name: &str) -> Result<String, String> {
    let names = names();
    if names.iter().any(|other| other == name) {
        Ok(name.to_owned())
    } else {
        Err(format!("there are the targets {}", names.join(", ")))
    }
}

/// All targets: a file each.
fn names() -> Vec<String> {
    let entries = fs::read_dir(TARGETS).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".rs")?.to_owned())).collect();
    names.sort();
    names
}

/// Runs one target.
///
/// # Errors
/// The fuzzer cannot be started.
fn fuzz(target: &str, seconds: u32) -> Result<Outcome, String> {
    let finds = finds(target)?;
    let before = count(&finds);
    let mut command = cargo_fuzz("run");
    command.args(FLAGS).arg(target).arg(&finds).args(kept(target)).arg("--").args([
        format!("-max_total_time={seconds}"),
        format!("-max_len={MAX_LEN}"),
        format!("-timeout={TIMEOUT_SECONDS}"),
        "-print_final_stats=1".to_owned(),
    ]);
    let start = Instant::now();
    let said = listen(&mut command)?;
    let number = |name: &str| {
        said.lines.iter().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or_default()
    };
    let crashes: Vec<_> =
        said.lines.iter().filter_map(|line| Some(line.split_once("Test unit written to ")?.1.to_owned())).collect();
    if !said.is_success {
        let shown = said.lines.iter().position(|line| line.contains("panicked at"));
        let shown = shown.unwrap_or(said.lines.len().saturating_sub(LINES_SHOWN));
        said.lines[shown..].iter().take(LINES_SHOWN).for_each(|line| println!("   {line}"));
    }
    Ok(Outcome {
        lasted: start.elapsed(),
        executions: number("stat::number_of_executed_units:"),
        found: count(&finds).saturating_sub(before),
        failure: (!said.is_success && crashes.is_empty()).then(|| "the fuzzer failed".to_owned()),
        crashes,
    })
}

/// Adds to the committed corpus what reaches more than is reached by it.
///
/// # Errors
/// The fuzzer cannot be started, or fails.
fn keep(target: &str) -> Result<(), String> {
    let mut command = cargo_fuzz("run");
    command.args(FLAGS).arg(target).args(kept(target)).arg(finds(target)?);
    let said = listen(command.args(["--", "-merge=1", &format!("-max_len={MAX_LEN}")]))?;
    if said.is_success { Ok(()) } else { Err(format!("its finds cannot be merged into {}", corpus(target).display())) }
}

/// Where finds go that are not committed.
///
/// # Errors
/// The folder cannot be made.
fn finds(target: &str) -> Result<PathBuf, String> {
    let folder = parts::target().join("fuzz").join(target);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

fn corpus(target: &str) -> PathBuf {
    PathBuf::from("fuzz/corpus").join(target)
}

/// What is committed: the corpus, and the inputs that were once found to be wrong.
fn kept(target: &str) -> impl Iterator<Item = PathBuf> {
    let regressions = PathBuf::from("fuzz/regressions").join(target);
    [corpus(target), regressions].into_iter().filter(|folder| folder.exists())
}

fn count(folder: &PathBuf) -> usize {
    fs::read_dir(folder).map_or(0, Iterator::count)
}

fn print(outcomes: &BTreeMap<String, Outcome>) {
    println!(
        "{:<12} {:>8} {:>12} {:>9} {:>7} {:>8}",
        "target", "seconds", "executions", "a second", "found", "crashes"
    );
    for (target, Outcome { lasted, executions, found, crashes, .. }) in outcomes {
        let seconds = lasted.as_secs().max(1);
        let rate = executions / seconds;
        println!("{target:<12} {seconds:>8} {executions:>12} {rate:>9} {found:>7} {:>8}", crashes.len());
    }
    for (target, Outcome { crashes, failure, .. }) in outcomes {
        for crash in crashes {
            println!("{target} stopped at {crash}; to repeat it:");
            println!("  rustup run nightly cargo fuzz run {} {target} {crash}", FLAGS.join(" "));
            println!("or copy it into fuzz/regressions/{target} and run `cargo test -p monolock-fuzzing {target}`");
        }
        if let Some(failure) = failure {
            println!("{target}: {failure}");
        }
    }
}

/// What a program said, and whether it was content.
struct Said {
    lines: Vec<String>,
    is_success: bool,
}

/// Runs a command and keeps what it says instead of showing it.
///
/// # Errors
/// It cannot be started or listened to.
fn listen(command: &mut Command) -> Result<Said, String> {
    let called = format!("{command:?}");
    let fail = |error: io::Error| format!("cannot run {called}: {error}");
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(fail)?;
    let mut lines = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        // A fuzzer may print what it was given, which is no text.
        for line in BufReader::new(stderr).split(b'\n') {
            lines.push(String::from_utf8_lossy(&line.map_err(fail)?).into_owned());
        }
    }
    Ok(Said { lines, is_success: child.wait().map_err(fail)?.success() })
}

fn cargo_fuzz(task: &str) -> Command {
    let mut command = nightly();
    command.args(["cargo", "fuzz", task]);
    command
}

fn nightly() -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly"]);
    command
}
