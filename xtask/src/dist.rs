//! `cargo xtask dist`: what is handed out of a release, made from one commit.
//!
//! The same commit, the same compiler and the same C library make the same bytes, in whatever folder and at whatever
//! time: paths are told to the compilers under other names, and every time is that of the commit. Everything that is
//! made is looked at before it counts as made.

mod build;
mod check;
mod completions;
mod empty_root;
mod licences;
mod packed;
mod reproduce;
mod sbom;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use self::build::{Build, Place, Release};
use crate::parts;

/// Makes a release.
#[derive(Args, Debug)]
pub(crate) struct Dist {
    /// Where it is put: the binary, the archive, the SBOM and the checksums.
    #[arg(long, value_name = "DIR", default_value_os_t = parts::target().join("dist"))]
    out: PathBuf,
    /// Tries the binary in a root in which there is nothing else, which takes the rights to make one.
    #[arg(long)]
    check: bool,
    /// Makes everything a second time, in another folder and with another home of cargo, and compares byte for byte.
    #[arg(long)]
    check_reproducible: bool,
    /// Tells nothing but the path of the binary.
    #[arg(long)]
    print_binary: bool,
}

impl Dist {
    /// Makes what is asked for.
    ///
    /// # Errors
    /// What cannot be made, or is not as it has to be.
    pub(crate) fn run(&self) -> Result<(), String> {
        let Self { out, check, check_reproducible, print_binary } = self;
        let release = Release::of_checkout()?;
        let place = Place::own()?;
        let files = make(&release, &place, out)?;
        check::look_at(&release, &place, &files)?;
        if *check {
            empty_root::try_in(&files.binary)?;
        }
        if *check_reproducible {
            reproduce::check(&release, &place, &files)?;
        }
        if *print_binary {
            println!("{}", files.binary.display());
        } else {
            files.tell();
        }
        Ok(())
    }
}

/// What others make packages of.
#[derive(Debug)]
pub(crate) struct Made {
    /// The folder that is in the archive.
    pub(crate) tree: PathBuf,
    /// The binary, where cargo has put it.
    pub(crate) built: PathBuf,
    pub(crate) target: String,
    /// The commit's time, in seconds of Unix time.
    pub(crate) epoch: u64,
}

/// Makes a release, for those who pack it in their own way.
///
/// # Errors
/// What cannot be made, or is not as it has to be.
pub(crate) fn made(out: &Path) -> Result<Made, String> {
    let release = Release::of_checkout()?;
    let place = Place::own()?;
    let files = make(&release, &place, out)?;
    check::look_at(&release, &place, &files)?;
    let Release { target, epoch, .. } = release;
    let Files { tree, built, .. } = files;
    Ok(Made { tree, built, target, epoch })
}

/// Which release the sources make.
#[derive(Debug)]
pub(crate) struct Named {
    /// The commit, and a remark where the sources differ from it; nothing outside a checkout.
    pub(crate) commit: String,
    /// The commit's time, in seconds of Unix time.
    pub(crate) epoch: u64,
    /// The same, as RFC 3339 writes it.
    pub(crate) time: String,
}

/// Which release the sources in the current folder would make.
///
/// # Errors
/// That cannot be told.
pub(crate) fn named() -> Result<Named, String> {
    let release = Release::of_checkout()?;
    let time = release.time();
    let Release { commit, epoch, .. } = release;
    Ok(Named { commit, epoch, time })
}

/// What a release is made of.
#[derive(Debug)]
struct Files {
    /// The binary, where cargo has put it.
    built: PathBuf,
    /// The folder of all others.
    folder: PathBuf,
    binary: PathBuf,
    /// The folder that is in the archive.
    tree: PathBuf,
    archive: PathBuf,
    sbom: PathBuf,
    sums: PathBuf,
}

impl Files {
    fn tell(&self) {
        for file in [&self.binary, &self.archive, &self.sbom, &self.sums] {
            let size = fs::metadata(file).map_or(0, |about| about.len());
            println!("{:>10} {}", size, file.display());
        }
    }
}

/// Builds what lies at `place`, and puts down in `out` what is handed out.
fn make(release: &Release, place: &Place, out: &Path) -> Result<Files, String> {
    let Build { binary: built, linked } = build::build(release, place)?;
    let name = format!("monolock-{}-{}", release.version, release.target);
    let files = Files {
        built,
        folder: out.to_owned(),
        binary: out.join("monolock"),
        tree: out.join(&name),
        archive: out.join(format!("{name}.tar.gz")),
        sbom: out.join(format!("{name}.cdx.json")),
        sums: out.join("SHA256SUMS"),
    };
    make_folder(out)?;
    copy(&files.built, &files.binary)?;
    write(&files.sbom, &sbom::sbom(release, &linked)?)?;

    if files.tree.exists() {
        fs::remove_dir_all(&files.tree).map_err(|error| format!("{}: {error}", files.tree.display()))?;
    }
    make_folder(&files.tree)?;
    copy(&files.binary, &files.tree.join("monolock"))?;
    copy(&files.sbom, &files.tree.join("monolock.cdx.json"))?;
    make_folder(&files.tree.join("systemd"))?;
    for unit in ["systemd/monolock.service", "systemd/monolock.socket"] {
        copy(&place.sources.join("deploy").join(unit), &files.tree.join(unit))?;
    }
    for document in ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        copy(&place.sources.join(document), &files.tree.join(document))?;
    }
    write(&files.tree.join("THIRD-PARTY-LICENSES.txt"), &licences::licences(&linked)?)?;
    completions::write(&files.binary, &files.tree)?;

    packed::pack(release, &files.tree, &files.archive)?;
    packed::sum(&files)?;
    Ok(files)
}

fn make_folder(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

/// Puts a copy down beside where it belongs and moves it there: whoever runs what lies there is not disturbed.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let mut beside = to.as_os_str().to_owned();
    beside.push(".new");
    let copied = fs::copy(from, &beside).and_then(|_| fs::rename(&beside, to));
    copied.map_err(|error| format!("cannot copy {} to {}: {error}", from.display(), to.display()))
}
