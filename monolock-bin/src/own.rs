//! What processes of this program have in common: how one starts another, what ties it to its parent, and their clock.

use std::io;
use std::process::{Child, Command};

use monolock_client::clock::{Clock as _, SystemClock};
use monolock_core::Timestamp;
use nix::unistd::Pid;

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
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
}

/// The present instant, on the clock that a client lives by; on Linux and Apple systems all processes of a machine share it.
pub(crate) fn now() -> Timestamp {
    SystemClock::default().now()
}
