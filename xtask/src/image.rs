//! `cargo xtask image`: the container image, of the binary of `cargo xtask dist`.
//!
//! The same commit makes the same image: the binary is reproducible, every time in the image is that of the commit, and
//! nothing of the tool that builds it is put in.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use clap::Args;

use crate::dist::{self, Named};
use crate::parts;

/// Builds the image.
#[derive(Args, Debug)]
pub(crate) struct Image {
    /// What it is called.
    #[arg(long, default_value = "monolock")]
    tag: String,
    /// What builds it: podman or docker; the first that is there without it.
    #[arg(long, value_name = "PROGRAM")]
    engine: Option<String>,
    /// A static binary that is there already; without it `cargo xtask dist` makes one.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

impl Image {
    /// Builds it.
    ///
    /// # Errors
    /// What is missing, or what was called and how it ended.
    pub(crate) fn run(&self) -> Result<(), String> {
        let engine = self.engine()?;
        let binary = match &self.binary {
            Some(binary) => binary.clone(),
            None => dist::made(&parts::target().join("dist"))?.tree.join("monolock"),
        };
        let Named { commit, epoch, time } = dist::named()?;
        let context = context(&binary, epoch)?;
        let mut build = Command::new(&engine);
        build.args(["build", "--file", "deploy/Containerfile", "--tag", &self.tag]);
        build.arg("--build-arg").arg(concat!("VERSION=", env!("CARGO_PKG_VERSION")));
        build.arg("--build-arg").arg(format!("REVISION={commit}"));
        build.arg("--build-arg").arg(format!("CREATED={time}"));
        if engine.ends_with("podman") {
            // Without layers there is one time alone, and no cache that could be of something else.
            build.args(["--format", "docker", "--identity-label=false", "--layers=false", "--quiet"]);
            build.arg("--timestamp").arg(epoch.to_string());
        } else {
            build.env("SOURCE_DATE_EPOCH", epoch.to_string());
            build.arg("--build-arg").arg(format!("SOURCE_DATE_EPOCH={epoch}"));
        }
        parts::run(build.arg(context))
    }

    fn engine(&self) -> Result<String, String> {
        if let Some(engine) = &self.engine {
            return Ok(engine.clone());
        }
        let is_there = |engine: &&str| parts::succeeds(Command::new(engine).arg("--version"));
        let engine = ["podman", "docker"].into_iter().find(is_there);
        engine.map(str::to_owned).ok_or_else(|| "neither podman nor docker is installed".to_owned())
    }
}

/// The folder that the image is built in: what goes into it, with the rights and the times that it has there.
fn context(binary: &Path, time: u64) -> Result<PathBuf, String> {
    let folder = parts::target().join("image");
    let make = || {
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        let (state, var, lib) = (folder.join("state"), folder.join("var"), folder.join("var/lib"));
        fs::create_dir_all(&state)?;
        fs::create_dir_all(&lib)?;
        let copy = folder.join("monolock");
        fs::copy(binary, &copy)?;
        for path in [&copy, &state, &lib, &var] {
            fs::set_permissions(path, Permissions::from_mode(0o755))?;
            File::open(path)?.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(time))?;
        }
        Ok(())
    };
    make().map_err(|error: std::io::Error| {
        format!("cannot put {} into {}: {error}", binary.display(), folder.display())
    })?;
    Ok(folder)
}
