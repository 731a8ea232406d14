//! `cargo xtask`: everything CI runs, runnable anywhere.
//!
//! A part is a row of the table in [`parts`]; what CI runs and what a person runs are the same row.

mod book;
mod chaos;
mod deb;
mod dist;
mod fuzz;
mod image;
mod instructions;
mod mutants;
mod packages;
mod parts;
mod serving;
#[cfg(test)]
mod written;

use std::env;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use clap::{Parser, Subcommand};

use crate::mutants::Mutants;
use crate::parts::{PARTS, Part};

/// Checks and builds of this repository.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", max_term_width = 100)]
struct Xtask {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Runs every check of the repository, or the named ones.
    ///
    /// Each part is named as it starts. A part whose tool is not installed is skipped, and what would install it is
    /// said; with CI=true nothing is skipped, and it fails instead.
    Test {
        /// Which parts to run; all without it.
        #[arg(value_name = "PART", value_parser = parts::find)]
        parts: Vec<&'static Part>,
        /// Lists the parts and does nothing.
        #[arg(long)]
        list: bool,
    },
    /// Plants each bug of the catalogue in `testing/mutants` by itself, and has its finders look for it.
    ///
    /// A finder is a test or the simulator. All run first where there is nothing to find. Ends with a table of what was
    /// found, and fails if a mutant lives.
    Mutants(Mutants),
    /// Counts the instructions of core operations with valgrind, and compares them with a baseline.
    Instructions {
        /// Writes the baseline anew.
        #[arg(long)]
        bless: bool,
    },
    /// Measures monolock beside its goals, the physical floor and its peers: needs a quiet machine.
    ///
    /// What follows `bench` is handed to the benchmark; `cargo xtask bench --help` tells.
    #[command(disable_help_flag = true)]
    Bench {
        /// Arguments of the benchmark.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Runs the fuzz targets, which needs a nightly toolchain and cargo-fuzz, and prints what came of it.
    Fuzz(fuzz::Fuzz),
    /// Lets links of the book lead to the repository where they leave it; mdBook calls this.
    #[command(hide = true)]
    BookLinks(book::BookLinks),
    /// Builds the container image with podman or docker, of the binary of `cargo xtask dist`.
    Image(image::Image),
    /// Puts the real server and real clients under faults, in network namespaces, and checks what they say happened.
    ///
    /// Ten minutes, unless `--minutes` says otherwise. What follows `chaos` is handed to the run; `cargo xtask chaos
    /// --help` tells. `--release` builds so.
    #[command(disable_help_flag = true)]
    Chaos {
        /// Arguments of the run.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Makes what is handed out of a release: a static binary, an archive, an SBOM and checksums.
    ///
    /// The archive holds the binary, manual pages, completions and the licences of all that is in it.
    Dist(dist::Dist),
    /// Makes the Debian package, of the binary that `dist` makes.
    Deb(deb::Deb),
    /// Makes and looks at what goes to the registries of Rust, Go, Node.js and Python; publishes nothing.
    Packages(packages::Packages),
}

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the workspace's root");
    if let Err(error) = env::set_current_dir(root) {
        eprintln!("cannot enter {}: {error}", root.display());
        return ExitCode::FAILURE;
    }
    match Xtask::parse().task {
        Task::Test { list: true, .. } => list(),
        Task::Test { parts, list: false } => test(&parts),
        Task::Mutants(mutants) => mutants.run(),
        Task::Bench { arguments } => ended(bench(&arguments)),
        Task::BookLinks(links) => ended(links.run()),
        Task::Fuzz(fuzz) => fuzz.run(),
        Task::Image(image) => ended(image.run()),
        Task::Chaos { arguments } => ended(chaos::chaos(&arguments)),
        Task::Deb(deb) => ended(deb.run()),
        Task::Packages(packages) => ended(packages.run()),
        Task::Dist(dist) => ended(dist.run()),
        Task::Instructions { bless } => ended(instructions::instructions(bless)),
    }
}

fn list() -> ExitCode {
    for part in PARTS {
        println!("{:<12} {}", part.name, part.about);
    }
    ExitCode::SUCCESS
}

fn test(chosen: &[&'static Part]) -> ExitCode {
    let parts: Vec<&Part> = if chosen.is_empty() { PARTS.iter().collect() } else { chosen.to_vec() };
    let mut skipped = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        println!("== {}/{} {}: {}", number + 1, parts.len(), part.name, part.about);
        if let Some(missing) = part.needs.iter().find(|need| !need.is_met()) {
            println!(
                "== {} cannot run: {} is not installed; `{}` installs it",
                part.name, missing.tool, missing.install
            );
            skipped.push(part.name);
            continue;
        }
        let start = Instant::now();
        if let Err(failure) = part.run() {
            println!("== {} failed: {failure}", part.name);
            return ExitCode::FAILURE;
        }
        println!("== {} passed in {:.0?}", part.name, start.elapsed());
    }
    match (skipped.as_slice(), env::var_os("CI").is_some_and(|ci| ci == "true")) {
        ([], _) => {
            println!("== all passed");
            ExitCode::SUCCESS
        }
        (skipped, true) => {
            println!("== not run, and with CI=true nothing may be skipped: {}", skipped.join(", "));
            ExitCode::FAILURE
        }
        (skipped, false) => {
            println!("== all others passed; not run: {}", skipped.join(", "));
            ExitCode::SUCCESS
        }
    }
}

/// Builds the released program and the benchmark, and runs it.
fn bench(arguments: &[String]) -> Result<(), String> {
    let packages = ["--package", "monolock-bin", "--package", "monolock-bench"];
    parts::run(Command::new(parts::cargo()).args(["build", "--release", "--locked", "--quiet"]).args(packages))?;
    parts::run(Command::new(parts::target().join("release/monolock-bench")).args(arguments))
}

fn ended(outcome: Result<(), String>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}
