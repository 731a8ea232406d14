//! Whether what was made is what was meant.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::completions::COMPLETIONS;
use super::{Files, Place, Release};
use crate::parts::{output, run};

/// The binary stays below it, in bytes.
const MOST: u64 = 8 << 20;

/// Looks at all that was made.
///
/// # Errors
/// The first thing that is not as it has to be.
pub(super) fn look_at(release: &Release, place: &Place, files: &Files) -> Result<(), String> {
    look_at_binary(release, place, &files.binary)?;
    look_at_sbom(release, place, &files.sbom)?;
    look_at_archive(&files.tree, &files.archive)?;
    look_at_sums(files)
}

/// The checksums are those of the files, and none is without.
fn look_at_sums(files: &Files) -> Result<(), String> {
    let text = fs::read_to_string(&files.sums).map_err(|error| format!("{}: {error}", files.sums.display()))?;
    let listed: BTreeSet<&str> = text.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    for file in [&files.binary, &files.archive, &files.sbom] {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        if !listed.contains(&*name) {
            return Err(format!("{} lacks {name}", files.sums.display()));
        }
    }
    run(Command::new("sha256sum").args(["--check", "--strict", "--quiet", "SHA256SUMS"]).current_dir(&files.folder))
}

fn look_at_binary(release: &Release, place: &Place, binary: &Path) -> Result<(), String> {
    let name = binary.display();
    let bytes = fs::read(binary).map_err(|error| format!("{name}: {error}"))?;
    let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if size >= MOST {
        return Err(format!("{name} has {size} bytes, and is to have less than {MOST}"));
    }
    // It tells a static program by its words alone: of some it fails, of others it does not.
    let said = Command::new("ldd").arg(binary).env("LC_ALL", "C").output();
    let said = said.map_err(|error| format!("cannot start ldd: {error}"))?;
    let said = [said.stdout, said.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    if !said.contains("statically linked") && !said.contains("not a dynamic executable") {
        return Err(format!("{name} is not static: {said}"));
    }
    let holds = |what: &[u8]| bytes.windows(what.len()).any(|part| part == what);
    if holds(b"\0.symtab\0") {
        return Err(format!("{name} has symbols"));
    }
    let Place { sources, target, cargo_home } = place;
    for folder in [sources.join("monolock-bin"), target.join(&release.target), cargo_home.join("registry")] {
        if holds(folder.as_os_str().as_encoded_bytes()) {
            return Err(format!("{name} tells of the folder {}", folder.display()));
        }
    }
    let (said, _) = output(Command::new(binary).arg("--version"))?;
    let wanted = format!("monolock {} ({}, {})\n", release.version, release.commit_shown(), release.target);
    if said != wanted {
        return Err(format!("{name} --version says {said:?} instead of {wanted:?}"));
    }
    Ok(())
}

/// The bill names what cargo's own tree of dependencies has, no more and no less.
fn look_at_sbom(release: &Release, place: &Place, sbom: &Path) -> Result<(), String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", sbom.display());
    let text = fs::read_to_string(sbom).map_err(|error| wrong(&error))?;
    let bill: Value = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
    let components = bill["components"].as_array().ok_or_else(|| wrong(&"it has no components"))?;
    let of_cargo = components.iter().filter(|component| component["purl"].is_string());
    let named = |component: &Value| Some(format!("{} {}", component["name"].as_str()?, component["version"].as_str()?));
    let written: BTreeSet<String> = of_cargo.filter_map(named).collect();

    let mut tree = place.cargo();
    tree.args(["tree", "--locked", "--package", "monolock-bin", "--target", &release.target, "--prefix", "none"]);
    let (tree, _) = output(tree.args(["--edges", "normal,no-proc-macro", "--format", "{p}"]))?;
    // A line is `name v1.2.3`, and more.
    let linked = tree.lines().filter_map(|line| {
        let mut words = line.split(' ');
        Some(format!("{} {}", words.next()?, words.next()?.strip_prefix('v')?))
    });
    let linked: BTreeSet<String> = linked.filter(|package| package.split(' ').next() != Some("monolock-bin")).collect();
    if written != linked {
        let missing: Vec<_> = linked.difference(&written).collect();
        let unused: Vec<_> = written.difference(&linked).collect();
        return Err(wrong(&format_args!("it lacks {missing:?}, and has {unused:?} that are not linked")));
    }
    Ok(())
}

/// The archive holds all that it is to hold, and what it is made of.
fn look_at_archive(tree: &Path, archive: &Path) -> Result<(), String> {
    let (listed, _) = output(Command::new("tar").args(["--list", "--force-local", "--file"]).arg(archive))?;
    let name = tree.file_name().unwrap_or_default().to_string_lossy();
    let listed: BTreeSet<&str> = listed.lines().filter_map(|line| line.strip_prefix(&format!("{name}/"))).collect();
    let completions = COMPLETIONS.map(|(_, name)| format!("completions/{name}"));
    let wanted = [
        "monolock",
        "man/monolock.1",
        "man/monolock-run.1",
        "systemd/monolock.service",
        "monolock.cdx.json",
        "THIRD-PARTY-LICENSES.txt",
    ];
    let wanted = wanted.iter().map(ToString::to_string).chain(completions);
    let missing: Vec<String> = wanted.filter(|file| !listed.contains(file.as_str())).collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("{} lacks {}", archive.display(), missing.join(", "))) }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    /// Builds a program that says what it is told to, by these arguments of the compiler, and looks at it.
    fn look(said: &str, arguments: &[&str]) -> Result<(), String> {
        let folder = tempfile::tempdir().unwrap();
        let (source, binary) = (folder.path().join("it.c"), folder.path().join("it"));
        fs::write(&source, format!("#include <stdio.h>\nint main(void) {{ puts(\"{said}\"); return 0; }}\n")).unwrap();
        run(Command::new("cc").args(arguments).arg("-o").args([&binary, &source])).unwrap();
        let release = Release {
            version: "1.2.3".to_owned(),
            target: "here".to_owned(),
            commit: "0123456789abcdef-changed".to_owned(),
            epoch: 0,
            compiler: String::new(),
        };
        let place = Place { sources: "/sources".into(), target: "/target".into(), cargo_home: "/home/cargo".into() };
        look_at_binary(&release, &place, &binary)
    }

    #[test]
    fn a_binary_is_static_stripped_of_its_version_and_of_no_place() {
        let said = "monolock 1.2.3 (commit 0123456789ab-changed, here)";
        let looked = [
            look(said, &["-static", "-s"]),
            look(said, &["-static-pie", "-s"]),
            look(said, &["-s"]),
            look(said, &["-static"]),
            look("monolock 1.2.3 (unknown commit, here)", &["-static", "-s"]),
            look("/home/cargo/registry/src/some/lib.rs", &["-static", "-s"]),
        ];
        let wanted = ["", "", "is not static", "has symbols", "--version says", "tells of the folder"];
        for (looked, wanted) in looked.into_iter().zip(wanted) {
            let is_as_wanted = match &looked {
                Ok(()) => wanted.is_empty(),
                Err(error) => !wanted.is_empty() && error.contains(wanted),
            };
            assert!(is_as_wanted, "{wanted:?}: {looked:?}");
        }
    }
}
