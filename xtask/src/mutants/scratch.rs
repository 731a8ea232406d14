//! A copy of the sources to plant bugs in, with a target folder of its own, so that builds are incremental and nothing
//! that a person works on is touched.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use walkdir::WalkDir;

use super::catalogue::Mutant;
use crate::parts;

/// The copy.
#[derive(Debug)]
pub(crate) struct Scratch {
    root: PathBuf,
    folder: PathBuf,
}

impl Scratch {
    /// Copies the sources of the working tree that lies in the current folder.
    ///
    /// # Errors
    /// What could not be read or written.
    pub(crate) fn prepare() -> Result<Self, String> {
        let root = env::current_dir().map_err(|error| format!("the current folder: {error}"))?;
        let folder = parts::target().join("mutants");
        fs::create_dir_all(folder.join("tree")).map_err(|error| format!("{}: {error}", folder.display()))?;
        let folder = folder.canonicalize().map_err(|error| format!("{}: {error}", folder.display()))?;
        let scratch = Self { root, folder };
        scratch.sync()?;
        Ok(scratch)
    }

    /// Makes the copy what the working tree is. What is the same already is not touched, so it is not built again.
    ///
    /// # Errors
    /// What could not be read or written.
    pub(crate) fn sync(&self) -> Result<(), String> {
        let sources = self.sources()?;
        let tree = self.tree();
        for entry in WalkDir::new(&tree) {
            let entry = entry.map_err(|error| error.to_string())?;
            let name = entry.path().strip_prefix(&tree).expect("a walk stays within its folder");
            if !entry.file_type().is_dir() && !sources.contains(name) {
                fs::remove_file(entry.path()).map_err(|error| format!("{}: {error}", entry.path().display()))?;
            }
        }
        for name in &sources {
            copy_changed(&self.root.join(name), &tree.join(name))
                .map_err(|error| format!("{}: {error}", name.display()))?;
        }
        Ok(())
    }

    /// Plants a bug in the copy.
    ///
    /// # Errors
    /// Its patch does not apply.
    pub(crate) fn apply(&self, mutant: &Mutant) -> Result<(), String> {
        let mut command = Command::new("git");
        // The copy lies within a repository, and must not be taken for a part of it.
        command.current_dir(self.tree()).env("GIT_CEILING_DIRECTORIES", &self.folder);
        command.arg("apply").arg(self.root.join(&mutant.patch));
        call(&mut command).map(drop).map_err(|error| format!("{}: {error}", mutant.patch.display()))
    }

    /// A call of cargo in the copy.
    pub(crate) fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(parts::cargo());
        command.current_dir(self.tree()).args(arguments).arg("--locked");
        command.env("CARGO_TARGET_DIR", self.folder.join("target"));
        command.env("CARGO_TERM_COLOR", "never");
        // Most of the time goes into linking and optimizing; nobody debugs a mutant or measures it.
        command.env("CARGO_PROFILE_DEV_DEBUG", "none");
        command.envs([("CARGO_PROFILE_RELEASE_LTO", "off"), ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")]);
        command.env("CARGO_PROFILE_RELEASE_INCREMENTAL", "true");
        command
    }

    /// Where the words of what runs last are put down.
    pub(crate) fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    fn tree(&self) -> PathBuf {
        self.folder.join("tree")
    }

    /// What belongs to the working tree: what git tracks, and what it would.
    fn sources(&self) -> Result<BTreeSet<PathBuf>, String> {
        let mut command = Command::new("git");
        command.current_dir(&self.root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let names = call(&mut command)?;
        let names = names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from);
        Ok(names.filter(|name| self.root.join(name).is_file()).collect())
    }
}

/// Checks that a patch applies to the working tree in the current folder.
///
/// # Errors
/// What git says.
pub(crate) fn check(mutant: &Mutant) -> Result<(), String> {
    let mut command = Command::new("git");
    command.args(["apply", "--check"]).arg(&mutant.patch);
    call(&mut command).map(drop).map_err(|error| format!("{}: {error}", mutant.patch.display()))
}

fn copy_changed(from: &Path, to: &Path) -> io::Result<()> {
    if fs::read(to).is_ok_and(|there| fs::read(from).is_ok_and(|here| here == there)) {
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::copy(from, to).map(drop)
}

/// What a program says that succeeds.
fn call(command: &mut Command) -> Result<String, String> {
    let program: OsString = command.get_program().to_owned();
    let output = command.output().map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim_end().to_owned());
    }
    String::from_utf8(output.stdout).map_err(|error| format!("{}: {error}", program.display()))
}
