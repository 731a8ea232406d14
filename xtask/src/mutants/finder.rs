//! Who finds a mutant: a test of its own, or the simulator.

use std::fmt;
use std::time::Duration;

use super::catalogue::{Mutant, Simulator, Test, TestTarget};
use super::child::{self, End};
use super::scratch::Scratch;

/// How long a build may take: the first one compiles everything.
const BUILD_LIMIT: Duration = Duration::from_hours(1);

/// How long a test may take before it is said to hang. None that passes comes near it.
const TEST_LIMIT: Duration = Duration::from_mins(2);

/// How long the simulator may take for all its seeds.
const SIMULATOR_LIMIT: Duration = Duration::from_mins(10);

/// How much of the words of a program is shown where it ended unexpectedly.
const SHOWN_LINES: usize = 40;

pub(crate) const SIMULATOR_PACKAGE: &str = "monolock-sim";

/// One that looks for a mutant.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Finder<'a> {
    Test(&'a Test),
    Simulator,
}

/// What came of looking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// All is well, as far as the finder sees: the mutant lives.
    Nothing,
    /// The test failed.
    Failed,
    /// The simulation of a seed violated an oracle, after so many seeds.
    Violated { oracle: String, seeds: u64 },
    /// The program ended in the middle.
    Died,
    /// The program was killed when its time was up.
    Hung,
}

impl<'a> Finder<'a> {
    /// All who are to find this mutant.
    pub(crate) fn all_of(mutant: &'a Mutant) -> impl Iterator<Item = Self> {
        let simulator = mutant.simulator.then_some(Finder::Simulator);
        mutant.test.as_ref().map(Finder::Test).into_iter().chain(simulator)
    }

    /// Builds the mutant that is planted, and looks for it.
    ///
    /// # Errors
    /// The mutant does not build, or the finder does not run.
    pub(crate) fn hunt(self, scratch: &Scratch, simulator: &Simulator) -> Result<Finding, String> {
        match self {
            Self::Test(Test { target, path }) => {
                let (end, said) = run_tests(scratch, target, &[path])?;
                test_finding(end, &said).ok_or_else(|| unexpected("the test did not run", &said))
            }
            Self::Simulator => {
                let (end, said) = simulate(scratch, simulator)?;
                simulator_finding(end, &said, simulator.from)
                    .ok_or_else(|| unexpected("the simulator did not run", &said))
            }
        }
    }
}

impl Finding {
    pub(crate) const fn is_find(&self) -> bool {
        !matches!(self, Self::Nothing)
    }

    /// How many seeds the simulator needed.
    pub(crate) const fn seeds(&self) -> Option<u64> {
        match self {
            Self::Violated { seeds, .. } => Some(*seeds),
            Self::Nothing | Self::Failed | Self::Died | Self::Hung => None,
        }
    }
}

impl fmt::Display for Finder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Test(test) => test.fmt(f),
            Self::Simulator => f.write_str("simulator"),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("LIVES"),
            Self::Failed => f.write_str("found"),
            Self::Violated { oracle, .. } => write!(f, "found: {oracle}"),
            Self::Died => f.write_str("found: it died"),
            Self::Hung => f.write_str("found: it hung"),
        }
    }
}

/// Runs tests of one target where there is nothing to find.
///
/// # Errors
/// One of them fails, or is not there.
pub(crate) fn expect_tests_pass(scratch: &Scratch, target: &TestTarget, paths: &[&str]) -> Result<(), String> {
    let (end, said) = run_tests(scratch, target, paths)?;
    match (end, tally(&said)) {
        (End::Success, Some(Tally { passed, failed: 0 })) if passed == paths.len() => Ok(()),
        (End::Success | End::Failure | End::TimeIsUp, _) => {
            Err(unexpected("not all of these tests are there and pass", &said))
        }
    }
}

/// Runs the simulator where there is nothing to find.
///
/// # Errors
/// It found something.
pub(crate) fn expect_simulator_is_content(scratch: &Scratch, simulator: &Simulator) -> Result<(), String> {
    match simulate(scratch, simulator)? {
        (End::Success, _) => Ok(()),
        (End::Failure | End::TimeIsUp, said) => Err(unexpected("the simulator is not content", &said)),
    }
}

fn run_tests(scratch: &Scratch, target: &TestTarget, paths: &[&str]) -> Result<(End, String), String> {
    let arguments: Vec<_> = ["test"].into_iter().chain(target.arguments()).collect();
    build(scratch, &[&arguments, &["--no-run"][..]].concat())?;
    let mut command = scratch.cargo(&arguments);
    command.args(["--", "--exact"]).args(paths);
    child::run(&mut command, TEST_LIMIT, &scratch.log())
}

fn simulate(scratch: &Scratch, Simulator { from, seeds }: &Simulator) -> Result<(End, String), String> {
    build(scratch, &["build", "--release", "--package", SIMULATOR_PACKAGE])?;
    let mut command = scratch.cargo(&["run", "--release", "--package", SIMULATOR_PACKAGE]);
    command.args(["--", "--seeds", &seeds.to_string(), "--from", &from.to_string(), "--stop-at-first", "--no-marks"]);
    child::run(&mut command, SIMULATOR_LIMIT, &scratch.log())
}

fn build(scratch: &Scratch, arguments: &[&str]) -> Result<(), String> {
    match child::run(&mut scratch.cargo(arguments), BUILD_LIMIT, &scratch.log())? {
        (End::Success, _) => Ok(()),
        (End::Failure | End::TimeIsUp, said) => Err(unexpected("it does not build", &said)),
    }
}

/// What the run of one test comes to; `None` where it did not run.
fn test_finding(end: End, said: &str) -> Option<Finding> {
    if !said.lines().any(|line| line == "running 1 test") {
        return None;
    }
    match (end, tally(said)) {
        (End::TimeIsUp, _) => Some(Finding::Hung),
        (End::Success, Some(Tally { passed: 1, failed: 0 })) => Some(Finding::Nothing),
        (End::Failure, Some(Tally { passed: 0, failed: 1 })) => Some(Finding::Failed),
        (End::Failure, None) => Some(Finding::Died),
        (End::Success | End::Failure, _) => None,
    }
}

/// What a run of the simulator comes to; `None` where it did not run.
fn simulator_finding(end: End, said: &str, from: u64) -> Option<Finding> {
    match end {
        End::Success => Some(Finding::Nothing),
        End::TimeIsUp => Some(Finding::Hung),
        End::Failure => {
            let (seed, oracle) = said.lines().find_map(|line| {
                let (seed, rest) = line.strip_prefix("seed ")?.split_once(": violation of ")?;
                let oracle = rest.split_once(": ").map_or(rest, |(oracle, _)| oracle);
                Some((seed.parse::<u64>().ok()?, oracle))
            })?;
            Some(Finding::Violated { oracle: oracle.to_owned(), seeds: seed.checked_sub(from)? + 1 })
        }
    }
}

/// What the last line of a test program says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tally {
    passed: usize,
    failed: usize,
}

fn tally(said: &str) -> Option<Tally> {
    let (_, counts) = said.lines().rev().find_map(|line| line.strip_prefix("test result: ")?.split_once(". "))?;
    let count = |what: &str| counts.split("; ").find_map(|part| part.strip_suffix(what)?.trim().parse().ok());
    Some(Tally { passed: count(" passed")?, failed: count(" failed")? })
}

fn unexpected(what: &str, said: &str) -> String {
    let lines: Vec<_> = said.lines().collect();
    let last = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
    format!("{what}:\n{}", last.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::{End, Finding, simulator_finding, test_finding};

    const RUNNING: &str = "     Running tests/it/main.rs (target/debug/deps/it-0123)\n\nrunning 1 test\n";

    fn after(rest: &str) -> String {
        format!("{RUNNING}{rest}")
    }

    #[test]
    fn a_test_finds_by_failing_and_by_nothing_less() {
        let passed = after(
            "test laws::x ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out; finished in 0.0s\n",
        );
        let failed = after(
            "test laws::x ... FAILED\n\ntest result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 9 filtered out; finished in 0.0s\n",
        );
        let ignored = after("test laws::x ... ignored\n\ntest result: ok. 0 passed; 0 failed; 1 ignored\n");
        let absent = "running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 10 filtered out\n";
        assert_eq!(test_finding(End::Success, &passed), Some(Finding::Nothing));
        assert_eq!(test_finding(End::Failure, &failed), Some(Finding::Failed));
        assert_eq!(test_finding(End::Failure, RUNNING), Some(Finding::Died));
        assert_eq!(test_finding(End::TimeIsUp, RUNNING), Some(Finding::Hung));
        assert_eq!(test_finding(End::Success, &ignored), None);
        assert_eq!(test_finding(End::Success, absent), None);
        assert_eq!(test_finding(End::Failure, "error: could not compile `core`\n"), None);
        assert_eq!(test_finding(End::TimeIsUp, ""), None);
    }

    #[test]
    fn the_simulator_finds_by_a_violation_and_by_nothing_less() {
        let said = "1000 seeds\nseed 12: violation of order: b before a\n";
        let found = Finding::Violated { oracle: "order".to_owned(), seeds: 3 };
        assert_eq!(simulator_finding(End::Failure, said, 10), Some(found));
        assert_eq!(simulator_finding(End::Success, "", 10), Some(Finding::Nothing));
        assert_eq!(simulator_finding(End::TimeIsUp, "", 10), Some(Finding::Hung));
        assert_eq!(simulator_finding(End::Failure, "error: unexpected argument\n", 10), None);
    }
}
