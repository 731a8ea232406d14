//! Building the program as it is handed out: static, stripped, and the same wherever it is built.

use std::collections::BTreeSet;
use std::env;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use cargo_metadata::{Message, Metadata, MetadataCommand, Package, TargetKind};

use crate::parts::{self, output};

/// What is released.
#[derive(Debug)]
pub(super) struct Release {
    pub(super) version: String,
    /// The platform that it runs on, and is built on: the program writes its own manual pages.
    pub(super) target: String,
    /// The commit, and a remark where the sources differ from it; nothing outside a checkout.
    pub(super) commit: String,
    /// When the commit was made, in seconds of Unix time: the time of every file.
    pub(super) epoch: u64,
    pub(super) compiler: String,
}

/// Where it is built. Nothing of it may show in what is built.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) sources: PathBuf,
    pub(super) target: PathBuf,
    pub(super) cargo_home: PathBuf,
}

/// What came of a build.
#[derive(Debug)]
pub(super) struct Build {
    pub(super) binary: PathBuf,
    pub(super) linked: Linked,
}

/// The packages that are in the binary, and what cargo knows of them.
#[derive(Debug)]
pub(super) struct Linked {
    pub(super) metadata: Metadata,
    /// Without those that only the compiler runs: build scripts and macros. In the order of names.
    pub(super) packages: Vec<Package>,
    pub(super) system: Vec<System>,
}

/// What is in the binary and no package of cargo's: what the compilers add, and C that a package brings along.
#[derive(Debug)]
pub(super) struct System {
    pub(super) name: &'static str,
    pub(super) version: String,
    /// As an expression of SPDX.
    pub(super) licence: &'static str,
    pub(super) website: &'static str,
}

impl Linked {
    /// Packages that are not monolock's own.
    pub(super) fn others(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.source.is_some())
    }
}

impl Release {
    /// The release that the sources in the current folder would make.
    pub(super) fn of_checkout() -> Result<Self, String> {
        let about = output(Command::new("rustc").arg("-vV"))?.0;
        let said = |what: &str| about.lines().find_map(|line| line.strip_prefix(what)).map(str::to_owned);
        let target = said("host: ").ok_or("rustc does not say which platform it runs on")?;
        if !target.ends_with("-linux-gnu") {
            return Err(format!("a release is built on Linux with the GNU C library, and this is {target}"));
        }
        let compiler = said("release: ").ok_or("rustc does not say its version")?;
        let (commit, epoch) = commit()?;
        Ok(Self { version: env!("CARGO_PKG_VERSION").to_owned(), target, commit, epoch, compiler })
    }

    /// What the program says of the commit: its first digits.
    pub(super) fn commit_shown(&self) -> String {
        let (digits, remark) = self.commit.split_at(self.commit.find('-').unwrap_or(self.commit.len()));
        if digits.is_empty() {
            return "unknown commit".to_owned();
        }
        format!("commit {}{remark}", &digits[..digits.len().min(12)])
    }

    /// The commit's time, as RFC 3339 writes it.
    pub(super) fn time(&self) -> String {
        humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(self.epoch)).to_string()
    }

    fn system(&self, packages: &[Package]) -> Result<Vec<System>, String> {
        let (library, _) = output(Command::new("getconf").arg("GNU_LIBC_VERSION"))?;
        let (gcc, _) = output(Command::new("cc").arg("-dumpfullversion"))?;
        let mut system = vec![
            System {
                name: "Rust standard library",
                version: self.compiler.clone(),
                licence: "MIT OR Apache-2.0",
                website: "https://www.rust-lang.org/",
            },
            System {
                name: "GNU C Library",
                version: library.trim().trim_start_matches("glibc ").to_owned(),
                licence: "LGPL-2.1-or-later",
                website: "https://www.gnu.org/software/libc/",
            },
            System {
                name: "libgcc",
                version: gcc.trim().to_owned(),
                licence: "GPL-3.0-or-later WITH GCC-exception-3.1",
                website: "https://gcc.gnu.org/",
            },
        ];
        // Its version is said behind that of the package.
        system.extend(packages.iter().filter(|package| package.name.as_str() == "tikv-jemalloc-sys").map(|package| {
            System {
                name: "jemalloc",
                version: package.version.build.to_string(),
                licence: "BSD-2-Clause",
                website: "https://jemalloc.net/",
            }
        }));
        Ok(system)
    }
}

/// The commit of the current folder and its time; `SOURCE_DATE_EPOCH` stands for the time where that is set.
fn commit() -> Result<(String, u64), String> {
    let said = |arguments: &[&str]| output(Command::new("git").args(arguments)).map(|(said, _)| said.trim().to_owned());
    let wanted = env::var("SOURCE_DATE_EPOCH").ok();
    let (commit, time) = match said(&["rev-parse", "HEAD"]) {
        Ok(commit) => {
            let is_changed = !said(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
            let time = said(&["log", "-1", "--format=%ct"])?;
            (if is_changed { format!("{commit}-changed") } else { commit }, time)
        }
        // Sources without git: those of an archive.
        Err(_) => (String::new(), "0".to_owned()),
    };
    let time = wanted.unwrap_or(time);
    let epoch = time.parse().map_err(|_| format!("the time {time:?} is no number of seconds"))?;
    Ok((commit, epoch))
}

impl Place {
    /// The repository's own folder.
    pub(super) fn own() -> Result<Self, String> {
        let sources = env::current_dir().map_err(|error| format!("cannot tell the current folder: {error}"))?;
        let home = || env::var_os("HOME").map(|home| Path::new(&home).join(".cargo"));
        let cargo_home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home);
        let cargo_home = cargo_home.ok_or("neither CARGO_HOME nor HOME is set")?;
        Ok(Self { sources, target: parts::target(), cargo_home })
    }

    /// Cargo, for the sources that lie here.
    pub(super) fn cargo(&self) -> Command {
        let mut cargo = Command::new(parts::cargo());
        cargo.current_dir(&self.sources);
        cargo.env("CARGO_HOME", &self.cargo_home).env("CARGO_TARGET_DIR", &self.target);
        cargo
    }

    fn metadata(&self, target: &str) -> Result<Metadata, String> {
        let mut asked = MetadataCommand::new();
        asked.cargo_path(parts::cargo()).current_dir(&self.sources).env("CARGO_HOME", &self.cargo_home);
        asked.other_options(["--locked", "--filter-platform", target].map(str::to_owned));
        asked.exec().map_err(|error| error.to_string())
    }

    /// Folders of this machine, and the names that stand for them in what is built.
    fn names(&self, metadata: &Metadata) -> Result<Vec<(PathBuf, &'static str)>, String> {
        let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?.0;
        let others = metadata.packages.iter().filter(|package| package.source.is_some());
        // The crate's folder bears its name and version; what it lies in depends on the machine.
        let shelves: BTreeSet<PathBuf> =
            others.filter_map(|package| Some(package.manifest_path.parent()?.parent()?.into())).collect();
        let mut names = vec![
            (PathBuf::from(sysroot.trim()), "/rust"),
            (self.cargo_home.clone(), "/cargo"),
            (self.sources.clone(), "/monolock"),
            // Inside the sources, mostly; the later name wins.
            (self.target.clone(), "/target"),
        ];
        names.extend(shelves.into_iter().map(|shelf| (shelf, "/crates")));
        Ok(names)
    }
}

/// Builds the program.
///
/// # Errors
/// What was called and how it ended.
pub(super) fn build(release: &Release, place: &Place) -> Result<Build, String> {
    let metadata = place.metadata(&release.target)?;
    let mut for_rust = vec!["-Ctarget-feature=+crt-static".to_owned(), "-Cstrip=symbols".to_owned()];
    let mut for_c = Vec::new();
    for (folder, name) in place.names(&metadata)? {
        let folder = folder.display();
        for_rust.push(format!("--remap-path-prefix={folder}={name}"));
        for_c.push(format!("'-ffile-prefix-map={folder}={name}'"));
    }
    let mut cargo = place.cargo();
    cargo.args(["build", "--release", "--locked", "--package", "monolock-bin", "--bin", "monolock"]);
    // With the platform said, the flags are for the program alone, and not for macros and build scripts.
    cargo.args(["--target", &release.target, "--message-format", "json-render-diagnostics"]);
    cargo.env("CARGO_ENCODED_RUSTFLAGS", for_rust.join("\u{1f}"));
    // The flags are quoted as a shell wants it: there may be a space in a folder's name.
    cargo.env("CFLAGS", for_c.join(" ")).env("CC_SHELL_ESCAPED_FLAGS", "1");
    cargo.env("SOURCE_DATE_EPOCH", release.epoch.to_string()).env("CARGO_INCREMENTAL", "0");
    cargo.env("MONOLOCK_BUILD_COMMIT", &release.commit);
    cargo.stdin(Stdio::null()).stdout(Stdio::piped());

    let called = "cargo build of the program";
    let mut running = cargo.spawn().map_err(|error| format!("cannot start {called}: {error}"))?;
    let said = running.stdout.take().expect("its output is piped");
    let folder = place.target.join(&release.target);
    let mut binary = None;
    let mut linked = BTreeSet::new();
    for message in Message::parse_stream(BufReader::new(said)) {
        let message = message.map_err(|error| format!("{called} said what is not understood: {error}"))?;
        let Message::CompilerArtifact(artifact) = message else { continue };
        if artifact.target.name == "monolock" && artifact.target.is_kind(TargetKind::Bin) {
            binary = artifact.executable.map(PathBuf::from);
        }
        if artifact.filenames.iter().any(|file| file.as_std_path().starts_with(&folder)) {
            linked.insert(artifact.package_id);
        }
    }
    let status = running.wait().map_err(|error| format!("cannot wait for {called}: {error}"))?;
    if !status.success() {
        return Err(format!("{called} ended with {status}"));
    }
    let binary = binary.ok_or_else(|| format!("{called} made no program"))?;
    let mut packages: Vec<Package> =
        metadata.packages.iter().filter(|package| linked.contains(&package.id)).cloned().collect();
    packages.sort_by(|one, other| (&one.name, &one.version).cmp(&(&other.name, &other.version)));
    let system = release.system(&packages)?;
    Ok(Build { binary, linked: Linked { metadata, packages, system } })
}
