//! `cargo xtask deb`: the Debian package, of the binary that `cargo xtask dist` made.
//!
//! cargo-deb makes it, by what monolock-bin's manifest says (`package.metadata.deb`).

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::Args;

use crate::dist::{self, Made};
use crate::parts::{self, run};

/// Of which version another one might make another package.
const CARGO_DEB: &str = "3.8.0";

/// Makes a Debian package.
#[derive(Args, Debug)]
pub(crate) struct Deb {
    /// Where it is put.
    #[arg(long, value_name = "DIR", default_value_os_t = parts::target().join("dist"))]
    out: PathBuf,
    /// Installs it, uses it and removes it, on a machine made of this one's files and systemd, of which nothing
    /// changes. Wants root.
    #[arg(long)]
    check: bool,
}

impl Deb {
    /// Makes what is asked for.
    ///
    /// # Errors
    /// What cannot be made, or is not as it has to be.
    pub(crate) fn run(&self) -> Result<(), String> {
        let Self { out, check } = self;
        let Made { tree, built, target, epoch } = dist::made(out)?;
        let cargo_deb = parts::tool("cargo-deb", CARGO_DEB)?;

        // There cargo-deb looks for what stands in the manifest as `target/release/dist`.
        let beside = built.with_file_name("dist");
        if beside.exists() {
            fs::remove_dir_all(&beside).map_err(|error| format!("{}: {error}", beside.display()))?;
        }
        run(Command::new("cp").arg("-R").args([&tree, &beside]))?;
        // Debian wants manual pages and changelogs compressed.
        let compressed = [beside.join("man"), beside.join("CHANGELOG.md")];
        run(Command::new("gzip").args(["-9", "--no-name", "--recursive"]).args(compressed))?;

        let package = out.join(format!("monolock_{}-1_{}.deb", env!("CARGO_PKG_VERSION"), architecture()?));
        let mut call = Command::new(cargo_deb);
        call.args(["deb", "--package", "monolock-bin", "--locked", "--no-build", "--no-strip", "--target", &target]);
        call.arg("--output").arg(&package).env("SOURCE_DATE_EPOCH", epoch.to_string()).stdin(Stdio::null());
        run(&mut call)?;
        if *check {
            run(Command::new("sh").arg("testing/packages/deb.sh").arg(&package).stdin(Stdio::null()))?;
        }
        println!("{}", package.display());
        Ok(())
    }
}

/// What Debian calls this machine.
fn architecture() -> Result<&'static str, String> {
    match env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => Err(format!("no Debian package is made on {other}")),
    }
}
