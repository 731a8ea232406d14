//! How many instructions an operation takes, against what it took when the baseline was made.
//!
//! Valgrind counts them, so the machine's load does not matter and a change of a few per cent shows. Each case runs
//! twice, with different numbers of operations; the difference is that of the operations alone. Another compiler makes
//! other instructions: then the figures are shown and nothing fails.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::parts::{cargo, output, run, target};

const BASELINE: &str = "testing/instructions/baseline.tsv";

/// By what share an operation may take more than the baseline says.
const TOLERANCE: f64 = 0.03;

/// And by how many instructions in any case: the C library copies memory in different ways on different processors.
const SLACK: f64 = 5.0;

/// Takes the choice among most of those ways away.
const TUNABLES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX2,-AVX,-ERMS,-FSRM");

/// Operations of the two runs of a case.
const COUNTS: [u32; 2] = [10_000, 20_000];

const HEADER: &str =
    "# Instructions of one operation, of valgrind's count. `cargo xtask instructions --bless` writes this file.\n";

/// Counts and compares, or writes the baseline anew.
///
/// # Errors
/// An operation takes more than it may, or something cannot be run.
pub(crate) fn instructions(bless: bool) -> Result<(), String> {
    run(Command::new(cargo()).args(["build", "--release", "--locked", "--package", "monolock-instructions"]))?;
    let program = target().join("release/monolock-instructions");
    let cases = output(&mut Command::new(&program))?.0;
    let mut counted = Counts { compiler: compiler()?, instructions: BTreeMap::new() };
    for case in cases.lines() {
        counted.instructions.insert(case.to_owned(), count(&program, case)?);
    }
    if bless {
        fs::write(BASELINE, counted.to_text()).map_err(|error| format!("{BASELINE}: {error}"))?;
        println!("written: {BASELINE}");
        return Ok(());
    }
    let baseline = fs::read_to_string(BASELINE).map_err(|error| format!("{BASELINE}: {error}"))?;
    let comparison = compare(&Counts::parse(&baseline)?, &counted);
    println!("{}", comparison.text);
    if comparison.failures.is_empty() { Ok(()) } else { Err(comparison.failures.join("; ")) }
}

/// Instructions of one operation of a case.
fn count(program: &Path, case: &str) -> Result<f64, String> {
    let [fewer, more] = COUNTS;
    let run = |operations: u32| {
        let mut command = Command::new("valgrind");
        command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).env(TUNABLES.0, TUNABLES.1);
        let (_, said) = output(command.arg(program).args([case, &operations.to_string()]))?;
        collected(&said).ok_or_else(|| format!("valgrind did not say how much it collected of {case}: {said}"))
    };
    Ok((run(more)? - run(fewer)?) / f64::from(more - fewer))
}

/// What callgrind says in the end: `==1234== Collected : 5678`.
fn collected(said: &str) -> Option<f64> {
    said.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok())
}

/// What else decides on the instructions: the compiler, the machine that it compiles for, and the C library.
fn compiler() -> Result<String, String> {
    let (said, _) = output(Command::new("rustc").args(["--version", "--verbose"]))?;
    let line = |start: &str| said.lines().find_map(|line| line.strip_prefix(start)).unwrap_or("unknown").to_owned();
    let (library, _) = output(Command::new("getconf").arg("GNU_LIBC_VERSION")).unwrap_or_default();
    Ok(format!("rustc {} {} {}", line("release: "), line("host: "), library.trim()))
}

/// Instructions by case, and of which compiler's making they are.
#[derive(Debug, PartialEq)]
struct Counts {
    compiler: String,
    instructions: BTreeMap<String, f64>,
}

impl Counts {
    fn parse(text: &str) -> Result<Self, String> {
        let mut lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let compiler = lines.next().and_then(|line| line.strip_prefix("compiler\t"));
        let compiler = compiler.ok_or_else(|| format!("{BASELINE} does not begin with its compiler"))?.to_owned();
        let parse = |line: &str| {
            let (case, count) = line.split_once('\t')?;
            Some((case.to_owned(), count.parse().ok().filter(|count| *count > 0.0)?))
        };
        let instructions = lines.map(|line| parse(line).ok_or_else(|| format!("{BASELINE}: what is {line:?}?")));
        Ok(Self { compiler, instructions: instructions.collect::<Result<_, _>>()? })
    }

    fn to_text(&self) -> String {
        let lines = self.instructions.iter().map(|(case, count)| format!("{case}\t{count:.1}\n"));
        format!("{HEADER}compiler\t{}\n{}", self.compiler, lines.collect::<String>())
    }
}

#[derive(Debug)]
struct Comparison {
    text: String,
    failures: Vec<String>,
}

fn compare(baseline: &Counts, counted: &Counts) -> Comparison {
    let is_judged = baseline.compiler == counted.compiler;
    let mut lines = vec![format!("{:<34} {:>10} {:>10} {:>8}", "instructions an operation", "baseline", "now", "")];
    let mut failures = Vec::new();
    for (case, now) in &counted.instructions {
        let Some(before) = baseline.instructions.get(case) else {
            lines.push(format!("{case:<34} {:>10} {now:>10.1}", "-"));
            failures.push(format!("{case} is not in the baseline: `cargo xtask instructions --bless` takes it in"));
            continue;
        };
        let change = now / before - 1.0;
        lines.push(format!("{case:<34} {before:>10.1} {now:>10.1} {:>+7.1}%", change * 100.0));
        let is_beyond = |more: f64| more > before * TOLERANCE + SLACK;
        if is_beyond(now - before) && is_judged {
            failures.push(format!("{case} takes {:.1}% more instructions than the baseline", change * 100.0));
        } else if is_beyond(before - now) && is_judged {
            lines.push("  fewer than the baseline: `cargo xtask instructions --bless` keeps it so".to_owned());
        }
    }
    for gone in baseline.instructions.keys().filter(|case| !counted.instructions.contains_key(*case)) {
        failures.push(format!("{gone} is in the baseline and is no case: `cargo xtask instructions --bless` drops it"));
    }
    if !is_judged {
        let (ours, theirs) = (&counted.compiler, &baseline.compiler);
        lines.push(format!("not judged: this is {ours}, and the baseline is of {theirs}"));
    }
    Comparison { text: lines.join("\n"), failures }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(compiler: &str, instructions: &[(&str, f64)]) -> Counts {
        let instructions = instructions.iter().map(|(case, count)| ((*case).to_owned(), *count)).collect();
        Counts { compiler: compiler.to_owned(), instructions }
    }

    #[test]
    fn what_takes_more_than_the_tolerance_fails_and_names_itself() {
        let baseline = counts("rustc 1", &[("beat", 1000.0), ("grant", 1000.0)]);
        assert!(compare(&baseline, &counts("rustc 1", &[("beat", 1034.9), ("grant", 600.0)])).failures.is_empty());
        let failures = compare(&baseline, &counts("rustc 1", &[("beat", 1035.1), ("grant", 1000.0)])).failures;
        assert_eq!(failures, ["beat takes 3.5% more instructions than the baseline"]);
    }

    #[test]
    fn another_compiler_is_told_and_not_judged() {
        let comparison = compare(&counts("rustc 1", &[("beat", 100.0)]), &counts("rustc 2", &[("beat", 200.0)]));
        assert!(comparison.failures.is_empty(), "{comparison:?}");
        assert!(
            comparison.text.contains("not judged: this is rustc 2, and the baseline is of rustc 1"),
            "{comparison:?}"
        );
    }

    #[test]
    fn a_case_that_came_or_went_fails_whatever_the_compiler() {
        let baseline = counts("rustc 1", &[("old", 1.0)]);
        let failures = compare(&baseline, &counts("rustc 2", &[("new", 1.0)])).failures;
        assert_eq!(failures.len(), 2, "{failures:?}");
        assert!(
            failures[0].starts_with("new is not in the baseline") && failures[1].starts_with("old is in the baseline")
        );
    }

    #[test]
    fn a_baseline_is_read_as_it_was_written() {
        let written = counts("rustc 1 x86_64", &[("beat", 17.5), ("grant", 301.0)]);
        assert_eq!(Counts::parse(&written.to_text()), Ok(written));
        assert!(Counts::parse("beat\t1").is_err());
        assert!(Counts::parse("compiler\trustc 1\nbeat\tfast").is_err());
    }

    #[test]
    fn what_callgrind_collected_stands_in_its_last_words() {
        let said = "==7== Events    : Ir\n==7== Collected : 123456\n==7== \n==7== I   refs:      123,456\n";
        assert_eq!(collected(said), Some(123_456.0));
        assert_eq!(collected("nothing"), None);
    }
}
