//! What a program takes for the time: a library before the C library tells it what the test wants.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::pki::run;

/// The real time and so many seconds.
#[derive(Debug)]
pub(crate) struct WallClock {
    /// Its target is the number of seconds.
    link: PathBuf,
    library: PathBuf,
}

impl WallClock {
    pub(crate) fn new(directory: &Path) -> Self {
        let clock = Self { link: directory.join("clock"), library: directory.join("wall_clock.so") };
        let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../testing/wall_clock/wall_clock.c");
        run(Command::new(compiler).args(["-shared", "-fPIC", "-O1", "-o"]).arg(&clock.library).arg(source));
        clock.set(0);
        clock
    }

    pub(crate) fn set(&self, seconds: i64) {
        // Never no clock for a reader.
        let new = self.link.with_extension("new");
        symlink(seconds.to_string(), &new).unwrap();
        fs::rename(new, &self.link).unwrap();
    }

    pub(crate) fn apply(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("WALL_CLOCK", &self.link);
    }
}
