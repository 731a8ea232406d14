//! The archive, and the checksums of all that is handed out.

use std::path::Path;
use std::process::{Command, Stdio};

use super::{Files, Release, write};
use crate::parts::{output, run};

/// Packs a folder: in the order of names, of no owner, and of the commit's time.
pub(super) fn pack(release: &Release, tree: &Path, archive: &Path) -> Result<(), String> {
    let [folder, name] = [tree.parent(), tree.file_name().map(Path::new)].map(|part| part.expect("it has a name"));
    let mut tar = Command::new("tar");
    tar.args([
        "--create",
        "--force-local",
        "--format=ustar",
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
    ]);
    // What the umask takes away or leaves is not in it either.
    tar.arg("--mode=u=rwX,go=rX").arg(format!("--mtime=@{}", release.epoch));
    tar.arg("--use-compress-program=gzip -9n").arg("--file").arg(archive).arg("--directory").arg(folder).arg(name);
    run(tar.env("LC_ALL", "C").stdin(Stdio::null()))
}

/// Puts down the checksums of the binary, the archive and the SBOM.
pub(super) fn sum(files: &Files) -> Result<(), String> {
    let Files { folder, binary, archive, sbom, sums, .. } = files;
    let names = [binary, archive, sbom].map(|file| file.file_name().expect("it has a name"));
    let (text, _) = output(Command::new("sha256sum").args(names).current_dir(folder))?;
    write(sums, &text)
}
