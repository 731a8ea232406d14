//! What a process takes, from `/proc`, and how one is ended.

use std::process::Child;
use std::{fs, io};

/// Resident memory, in bytes.
pub(crate) fn resident(pid: u32) -> io::Result<usize> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok());
    kibibytes.map(|kibibytes| kibibytes * 1024).ok_or_else(|| io::Error::other("/proc tells no VmRSS"))
}

/// A process that does not outlive this.
#[derive(Debug)]
pub(crate) struct Kept(pub(crate) Child);

impl Kept {
    /// Kills it and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.kill();
    }
}
