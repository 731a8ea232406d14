//! On what it was measured: figures without a machine mean nothing.

use std::fs;
use std::num::NonZeroUsize;
use std::process::Command;
use std::thread::available_parallelism;

use serde::Serialize;

/// The machine and the programs, as they say themselves.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    pub(crate) rustc: String,
    pub(crate) monolock: String,
    pub(crate) peers: Vec<String>,
    /// Of the last minute, five minutes and quarter of an hour.
    pub(crate) load_at_start: String,
    pub(crate) load_at_end: String,
}

impl Machine {
    pub(crate) fn look(monolock: &std::path::Path, peers: Vec<String>) -> Self {
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let processor = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Self {
            processor: processor.map_or_else(|| "unknown".to_owned(), |(_, name)| name.trim().to_owned()),
            cores: available_parallelism().map_or(1, NonZeroUsize::get),
            kernel: said(Command::new("uname").arg("-sr")),
            rustc: said(Command::new("rustc").arg("--version")),
            monolock: said(Command::new(monolock).arg("--version")),
            peers,
            load_at_start: load(),
            load_at_end: String::new(),
        }
    }

    pub(crate) fn look_again(&mut self) {
        self.load_at_end = load();
    }
}

fn said(command: &mut Command) -> String {
    let output = command.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).trim().to_owned()
}

fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').take(3).collect::<Vec<_>>().join(" ")
}
