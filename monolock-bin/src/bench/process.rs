//! What a process of this machine has taken: processor time and memory, from `/proc`.

use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use serde::Serialize;

use crate::failure::{FAILED, Failure};

/// What a process has taken up to now.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Sample {
    /// Processor time of its living threads.
    #[serde(skip)]
    pub(crate) processor: Duration,
    /// Resident memory, in bytes.
    pub(crate) resident: u64,
}

impl Sample {
    /// # Errors
    /// There is no such process, or the system does not tell of it.
    pub(crate) fn take(pid: usize) -> Result<Self, Failure> {
        let taken = || {
            let process = Path::new("/proc").join(pid.to_string());
            Ok(Self { processor: processor(&process)?, resident: resident(&process)? })
        };
        taken().map_err(|error: io::Error| Failure::new(FAILED, format_args!("--server-pid {pid}: {error}")))
    }
}

fn processor(process: &Path) -> io::Result<Duration> {
    let mut nanoseconds = 0;
    for task in fs::read_dir(process.join("task"))? {
        // A thread may end at any time.
        let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else { continue };
        let first = text.split(' ').next().and_then(|field| field.parse::<u64>().ok());
        nanoseconds += first.ok_or_else(|| unexpected("schedstat"))?;
    }
    Ok(Duration::from_nanos(nanoseconds))
}

fn resident(process: &Path) -> io::Result<u64> {
    let status = fs::read_to_string(process.join("status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kibibytes.map(|kibibytes| kibibytes * 1024).ok_or_else(|| unexpected("status"))
}

fn unexpected(file: &str) -> io::Error {
    io::Error::other(format!("its {file} is not as expected"))
}
