//! Whether the catalogue still fits the sources: each patch applies, and each finder is there.
//!
//! It asks the test programs that `cargo xtask test` has built, so it costs next to nothing after them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use cargo_metadata::{Message, Metadata, MetadataCommand};

use super::catalogue::{Mutant, Test, TestTarget};
use super::finder::SIMULATOR_PACKAGE;
use super::scratch;
use crate::parts;

/// Where the programs of tests are, by their packages and names.
type Programs = BTreeMap<(String, String), PathBuf>;

/// Checks these mutants.
///
/// # Errors
/// All that is wrong, a line each.
pub(crate) fn check(mutants: &[&Mutant]) -> Result<(), String> {
    let metadata = MetadataCommand::new().cargo_path(parts::cargo()).no_deps().exec();
    let metadata = metadata.map_err(|error| error.to_string())?;
    let mut wrong: Vec<String> = mutants.iter().filter_map(|mutant| scratch::check(mutant).err()).collect();
    let has_simulator = metadata.packages.iter().any(|package| package.name == SIMULATOR_PACKAGE);
    if !has_simulator && mutants.iter().any(|mutant| mutant.simulator) {
        wrong.push(format!("there is no package {SIMULATOR_PACKAGE}"));
    }
    let mut targets: BTreeMap<&TestTarget, Vec<&Test>> = BTreeMap::new();
    for test in mutants.iter().filter_map(|mutant| mutant.test.as_ref()) {
        targets.entry(&test.target).or_default().push(test);
    }
    let mut programs: BTreeMap<Vec<String>, Programs> = BTreeMap::new();
    for (target, tests) in targets {
        let TestTarget { package, name, features } = target;
        let features: Vec<_> = features.iter().map(|feature| format!("{package}/{feature}")).collect();
        if !programs.contains_key(&features) {
            programs.insert(features.clone(), build(&metadata, &features)?);
        }
        let Some(program) = programs[&features].get(&(package.clone(), name.clone())) else {
            wrong.push(format!("there are no tests {target}"));
            continue;
        };
        let known = tests_in(program)?;
        let absent = tests.into_iter().filter(|test| !known.contains(&test.path));
        wrong.extend(absent.map(|test| format!("there is no test {test}")));
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// Builds the programs of tests of the whole workspace, as the parts of `cargo xtask test` do.
fn build(metadata: &Metadata, features: &[String]) -> Result<Programs, String> {
    let mut command = Command::new(parts::cargo());
    command.args(["test", "--workspace", "--lib", "--tests", "--no-run", "--locked"]);
    command.args(["--message-format", "json-render-diagnostics"]);
    if !features.is_empty() {
        command.args(["--features", &features.join(",")]);
    }
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| format!("{command:?}: {error}"))?;
    let output = BufReader::new(child.stdout.take().expect("its output was asked for"));
    let mut programs = Programs::new();
    for message in Message::parse_stream(output) {
        if let Message::CompilerArtifact(artifact) = message.map_err(|error| error.to_string())?
            && let Some(program) = artifact.executable
            && artifact.profile.test
        {
            let name = if artifact.target.is_lib() { "lib".to_owned() } else { artifact.target.name };
            programs.insert((metadata[&artifact.package_id].name.to_string(), name), program.into());
        }
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    if status.success() { Ok(programs) } else { Err("the tests do not build".to_owned()) }
}

/// What a program of tests has.
fn tests_in(program: &PathBuf) -> Result<BTreeSet<String>, String> {
    let output = Command::new(program).args(["--list", "--format", "terse"]).output();
    let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
    let list = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(list.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}
