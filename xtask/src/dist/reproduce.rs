//! Whether the same sources make the same bytes in another place.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Files, Place, Release, make, make_folder};
use crate::parts::run;

/// Makes the release again of a copy of the sources, and compares.
///
/// # Errors
/// It cannot be made, or is not the same.
pub(super) fn check(release: &Release, place: &Place, files: &Files) -> Result<(), String> {
    let folder = place.target.join("reproduced/in-another-folder");
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let other =
        Place { sources: folder.join("sources"), target: folder.join("built"), cargo_home: folder.join("home") };
    make_folder(&other.cargo_home)?;
    copy_sources(&place.sources, &other.sources)?;
    // The packages are the same ones by another path: nothing is fetched again.
    for shelf in ["registry", "git"] {
        let (from, to) = (place.cargo_home.join(shelf), other.cargo_home.join(shelf));
        if from.exists() {
            symlink(&from, &to).map_err(|error| format!("cannot link {}: {error}", to.display()))?;
        }
    }
    let again = make(release, &other, &folder.join("made"))?;
    for (one, another) in [(&files.binary, &again.binary), (&files.sbom, &again.sbom), (&files.archive, &again.archive)]
    {
        let read = |path: &Path| fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
        if read(one)? != read(another)? {
            return Err(format!("{} and {} differ", one.display(), another.display()));
        }
    }
    println!("made twice, in two folders: the same, byte for byte");
    fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))
}

/// Copies what git knows of, as it is now.
fn copy_sources(from: &Path, to: &Path) -> Result<(), String> {
    make_folder(to)?;
    let copying =
        "git ls-files -z | tar --create --null --files-from=- --file=- | tar --extract --file=- --directory \"$0\"";
    run(Command::new("sh").arg("-c").arg(copying).arg(to).current_dir(from).stdin(Stdio::null()))
}
