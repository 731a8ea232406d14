//! Whether the catalogue still fits the sources: each patch applies, and each finder is there.
//!
//! It asks the test programs that `cargo xtask test` has built, so it costs next to nothing after them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use cargo_metadata::{Message, Metadata, MetadataCommand, Package};

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
    let tests = mutants.iter().filter_map(|mutant| mutant.test.as_ref());
    let apart = built_apart(&metadata);
    let mut tests_by_build: BTreeMap<(Vec<String>, Option<&str>), Vec<&Test>> = BTreeMap::new();
    for test in tests {
        let TestTarget { package, features, .. } = &test.target;
        let features = features.iter().map(|feature| format!("{package}/{feature}")).collect();
        let alone = apart.iter().find(|apart| *apart == package).map(String::as_str);
        tests_by_build.entry((features, alone)).or_default().push(test);
    }
    for ((features, alone), tests) in tests_by_build {
        let of = alone.map_or(Of::AllBut(&apart), Of::Package);
        let programs = build(&metadata, of, &features, &tests)?;
        let mut known: BTreeMap<&TestTarget, BTreeSet<String>> = BTreeMap::new();
        for test in tests {
            let target = &test.target;
            if !known.contains_key(target) {
                let program = programs.get(&(target.package.clone(), target.name.clone()));
                known.insert(target, program.map(tests_in).transpose()?.unwrap_or_default());
            }
            if !known[target].contains(&test.path) {
                wrong.push(format!("there is no test {test}"));
            }
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// The packages whose library is no program of tests, and which a build of all libraries' tests has to leave out.
fn built_apart(metadata: &Metadata) -> Vec<String> {
    let is_apart = |package: &&Package| package.targets.iter().any(|target| target.is_lib() && !target.test);
    metadata.packages.iter().filter(is_apart).map(|package| package.name.to_string()).collect()
}

/// Which packages' tests are built.
#[derive(Clone, Copy)]
enum Of<'a> {
    Package(&'a str),
    AllBut(&'a [String]),
}

/// Builds the programs of these tests as the parts of `cargo xtask test` do, for the whole workspace where that can be:
/// for one package the features of its dependencies may be others, and all would be built again.
fn build(metadata: &Metadata, of: Of<'_>, features: &[String], tests: &[&Test]) -> Result<Programs, String> {
    let mut command = Command::new(parts::cargo());
    command.args(["test", "--no-run", "--locked", "--message-format", "json-render-diagnostics"]);
    match of {
        Of::Package(package) => command.args(["--package", package]),
        Of::AllBut(others) => command.arg("--workspace").args(others.iter().flat_map(|other| ["--exclude", other])),
    };
    for name in tests.iter().map(|test| test.target.name.as_str()).collect::<BTreeSet<_>>() {
        command.args(TestTarget::kind_arguments(name));
    }
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
