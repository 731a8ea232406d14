//! What processes of this program have in common: how one starts another, what ties it to its parent, and their clock.

use std::process::{Child, Command};
use std::{fs, io};

use monolock_client::clock::{Clock as _, SystemClock};
use monolock_core::Timestamp;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::Pid;
use tokio::signal::unix::SignalKind;

/// A command that runs this very program, even where its file has been replaced since.
pub(crate) fn command() -> io::Result<Command> {
    if cfg!(target_os = "linux") {
        Ok(Command::new("/proc/self/exe"))
    } else {
        std::env::current_exe().map(Command::new)
    }
}

/// The process's id, as the system calls want it.
pub(crate) fn pid(process: &Child) -> Pid {
    Pid::from_raw(i32::try_from(process.id()).expect("process ids are positive i32s"))
}

/// Lets the system kill this process when its parent ends, where the system can.
pub(crate) fn die_with_parent() {
    #[cfg(target_os = "linux")]
    // Without it a worker still ends with its stdin.
    let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
}

/// The present instant, on the clock that a client lives by; on Linux and Apple systems all processes of a machine
/// share it.
pub(crate) fn now() -> Timestamp {
    SystemClock::default().now()
}

/// The signal, as tokio wants it.
pub(crate) const fn kind(signal: Signal) -> SignalKind {
    SignalKind::from_raw(signal as i32)
}

/// The signals that this process was started to ignore, where the system says so.
pub(crate) fn ignored_signals() -> SigSet {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    Signal::iterator().filter(|signal| mask >> (*signal as i32 - 1) & 1 == 1).collect()
}
