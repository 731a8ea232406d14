//! `cargo xtask image`: the container image, of the binary of `cargo xtask dist`.
//!
//! The same commit makes the same image: the binary is reproducible, every time in the image is that of the commit, and
//! what podman puts in of its own doing is taken out again.

use std::fmt::Display;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use clap::Args;
use serde_json::Value;

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
        build.args(["build", "--file", "deploy/Containerfile"]);
        build.arg("--build-arg").arg(concat!("VERSION=", env!("CARGO_PKG_VERSION")));
        build.arg("--build-arg").arg(format!("REVISION={commit}"));
        build.arg("--build-arg").arg(format!("CREATED={time}"));
        if !engine.ends_with("podman") {
            build.env("SOURCE_DATE_EPOCH", epoch.to_string());
            build.arg("--build-arg").arg(format!("SOURCE_DATE_EPOCH={epoch}"));
            return parts::run(build.args(["--tag", &self.tag]).arg(context));
        }
        // OCI's format has no health check. Without layers there is no cache that could be of something else.
        build.args(["--format", "docker", "--identity-label=false", "--layers=false", "--quiet"]);
        let id = context.with_extension("id");
        build.arg("--timestamp").arg(epoch.to_string()).arg("--iidfile").arg(&id);
        parts::run(build.arg(&context).stdout(Stdio::null()))?;
        let raw = fs::read_to_string(&id).map_err(|error| format!("{}: {error}", id.display()))?;
        let id = normalise(&engine, &raw, &context.with_extension("archive"))?;
        parts::run(Command::new(&engine).args(["tag", &id, &self.tag]))?;
        println!("{} {id}", self.tag);
        Ok(())
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

/// Takes out of podman's image what is another each time: the container in which it was built. Returns the new id.
fn normalise(engine: &str, raw: &str, folder: &Path) -> Result<String, String> {
    let archive = folder.with_extension("tar");
    let wrong = |error: &dyn Display| format!("the image that {engine} has saved in {}: {error}", archive.display());
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|error| wrong(&error))?;
    }
    fs::create_dir_all(folder).map_err(|error| wrong(&error))?;
    let mut save = Command::new(engine);
    save.args(["save", "--quiet", "--format", "docker-archive", "--output"]).arg(&archive).arg(raw);
    // It does not write over a file.
    let _ = fs::remove_file(&archive);
    parts::run(&mut save)?;
    parts::run(Command::new("tar").arg("--extract").arg("--file").arg(&archive).arg("--directory").arg(folder))?;

    let read = |name: &str| -> Result<Value, String> {
        let text = fs::read_to_string(folder.join(name)).map_err(|error| wrong(&error))?;
        serde_json::from_str(&text).map_err(|error| wrong(&error))
    };
    let mut manifest = read("manifest.json")?;
    let old = manifest[0]["Config"].as_str().ok_or_else(|| wrong(&"there is no configuration in it"))?.to_owned();
    let mut about = read(&old)?;
    about.as_object_mut().ok_or_else(|| wrong(&"the configuration is none"))?.remove("container");
    about["config"]["Hostname"] = "".into();
    about["container_config"]["Hostname"] = "".into();
    fs::write(folder.join(&old), about.to_string()).map_err(|error| wrong(&error))?;
    let (sum, _) = parts::output(Command::new("sha256sum").arg(folder.join(&old)))?;
    let id = sum.split_whitespace().next().ok_or("sha256sum says nothing")?.to_owned();
    let new = format!("{id}.json");
    fs::rename(folder.join(&old), folder.join(&new)).map_err(|error| wrong(&error))?;
    manifest[0]["Config"] = new.into();
    fs::write(folder.join("manifest.json"), manifest.to_string()).map_err(|error| wrong(&error))?;

    let mut pack = Command::new("tar");
    parts::run(pack.arg("--create").arg("--file").arg(&archive).arg("--directory").arg(folder).arg("."))?;
    let mut load = Command::new(engine);
    parts::run(load.args(["load", "--quiet", "--input"]).arg(&archive).stdout(Stdio::null()))?;
    parts::run(Command::new(engine).args(["rmi", raw]).stdout(Stdio::null()))?;
    Ok(id)
}
