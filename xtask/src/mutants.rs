//! `cargo xtask mutants`: plants each bug of the catalogue by itself and has its finders look for it.
//!
//! A finder that passes on the unharmed sources and fails on the harmed ones is one that looks. So the finders run
//! first on sources without a bug; and a mutant that does not build, or a finder that does not run, is an error of the
//! catalogue and never a find.

mod catalogue;
mod check;
mod child;
mod finder;
mod scratch;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use tabled::Table;
use tabled::builder::Builder;
use tabled::settings::object::Columns;
use tabled::settings::{Alignment, Style};

use self::catalogue::{Catalogue, Mutant, TestTarget};
use self::finder::{Finder, Finding};
use self::scratch::Scratch;

/// Where the catalogue and its patches lie, from the root of the repository.
const FOLDER: &str = "testing/mutants";

/// What is asked for.
#[derive(Debug, clap::Args)]
pub(crate) struct Mutants {
    /// Which mutants to look at; all without it.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Lists them and does nothing.
    #[arg(long)]
    list: bool,
    /// Only checks that each patch applies and that each finder exists.
    #[arg(long, conflicts_with = "list")]
    check: bool,
}

impl Mutants {
    pub(crate) fn run(&self) -> ExitCode {
        let outcome = Catalogue::load(Path::new(FOLDER)).and_then(|catalogue| {
            let mutants = catalogue.choose(&self.names)?;
            if self.list {
                list(&mutants);
                return Ok(ExitCode::SUCCESS);
            }
            if self.check {
                check::check(&mutants)?;
                println!("{} mutants: each patch applies, and each finder is there", mutants.len());
                return Ok(ExitCode::SUCCESS);
            }
            hunt(&catalogue, &mutants)
        });
        outcome.unwrap_or_else(|error| {
            eprintln!("{error}");
            ExitCode::FAILURE
        })
    }
}

fn list(mutants: &[&Mutant]) {
    for mutant in mutants {
        println!("{}\n    {}", mutant.name(), mutant.bug);
        for finder in Finder::all_of(mutant) {
            println!("    found by {finder}");
        }
    }
}

/// Has every mutant looked for, tells each as it goes, and prints the table of all.
fn hunt(catalogue: &Catalogue, mutants: &[&Mutant]) -> Result<ExitCode, String> {
    let begun = Instant::now();
    child::pass_interrupts_on().map_err(|error| format!("cannot heed interrupts: {error}"))?;
    let scratch = Scratch::prepare()?;
    expect_unharmed(catalogue, &scratch, mutants)?;

    let mut rows = Vec::new();
    for (number, mutant) in mutants.iter().enumerate() {
        println!("== {}/{} {}", number + 1, mutants.len(), mutant.name());
        scratch.apply(mutant)?;
        for finder in Finder::all_of(mutant) {
            let start = Instant::now();
            let found = finder.hunt(&scratch, &catalogue.simulator);
            let seconds = start.elapsed().as_secs_f64();
            match &found {
                Ok(finding) => println!("   {finder}: {finding} ({seconds:.1} s)"),
                Err(error) => println!("   {finder}: {error}"),
            }
            rows.push(Row { mutant: mutant.name(), finder, found, seconds });
        }
        scratch.sync()?;
    }
    println!("\n{}\n", table(&rows));
    let is_found = |mutant: &&&Mutant| rows.iter().filter(|row| row.mutant == mutant.name()).all(Row::is_found);
    let found = mutants.iter().filter(is_found).count();
    println!("{found} of {} mutants found in {:.0?}", mutants.len(), begun.elapsed());
    for row in rows.iter().filter(|row| !row.is_found()) {
        println!("{} lives: {} did not find it", row.mutant, row.finder);
    }
    Ok(if found == mutants.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs each finder once where there is nothing to find: all tests of one target together, and the simulator once.
fn expect_unharmed(catalogue: &Catalogue, scratch: &Scratch, mutants: &[&Mutant]) -> Result<(), String> {
    let mut targets: BTreeMap<&TestTarget, Vec<&str>> = BTreeMap::new();
    for test in mutants.iter().filter_map(|mutant| mutant.test.as_ref()) {
        targets.entry(&test.target).or_default().push(&test.path);
    }
    for (target, mut paths) in targets {
        paths.sort_unstable();
        paths.dedup();
        println!("== unharmed: {} of {target}", counted(paths.len(), "test"));
        finder::expect_tests_pass(scratch, target, &paths)?;
    }
    if mutants.iter().any(|mutant| mutant.simulator) {
        println!("== unharmed: {} of the simulator", counted(catalogue.simulator.seeds, "seed"));
        finder::expect_simulator_is_content(scratch, &catalogue.simulator)?;
    }
    Ok(())
}

/// What one finder made of one mutant.
struct Row<'a> {
    mutant: &'a str,
    finder: Finder<'a>,
    /// The error is one of the catalogue.
    found: Result<Finding, String>,
    seconds: f64,
}

impl Row<'_> {
    fn is_found(&self) -> bool {
        self.found.as_ref().is_ok_and(Finding::is_find)
    }
}

fn table(rows: &[Row<'_>]) -> Table {
    let mut table = Builder::new();
    table.push_record(["bug", "finder", "verdict", "seeds", "seconds"]);
    let mut last = "";
    for Row { mutant, finder, found, seconds } in rows {
        let name = if *mutant == last { "" } else { mutant };
        last = mutant;
        let (verdict, seeds) = match found {
            Ok(finding) => (finding.to_string(), finding.seeds().map_or("—".to_owned(), |seeds| seeds.to_string())),
            Err(_) => ("error of the catalogue".to_owned(), "—".to_owned()),
        };
        table.push_record([name, &finder.to_string(), &verdict, &seeds, &format!("{seconds:.1}")]);
    }
    let mut table = table.build();
    table.with(Style::markdown()).modify(Columns::new(3..), Alignment::right());
    table
}

fn counted(count: impl Display, what: &str) -> String {
    let count = count.to_string();
    let plural = if count == "1" { "" } else { "s" };
    format!("{count} {what}{plural}")
}
