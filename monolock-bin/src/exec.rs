//! The stage between `monolock run` and its command: the same process, before it becomes the command.
//!
//! What a process can only set for itself is set here: the signal for its parent's death, and the terminal's
//! foreground. The command gets the death signal with the process; it is SIGTERM and not SIGKILL, because the system
//! tells this one process only, and only a signal that can be caught lets it end what it has started.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use nix::unistd::{Pid, getpgrp, getppid};

use crate::cli::ExecArgs;
use crate::failure::{Failure, NOT_EXECUTABLE, NOT_FOUND, RUN_FAILED};
use crate::terminal::Terminal;

/// Becomes the command.
///
/// # Errors
/// The command cannot be run, or the parent is gone already.
pub(crate) fn exec(args: &ExecArgs) -> Result<ExitCode, Failure> {
    let ExecArgs { parent, foreground, command } = args;
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM).map_err(|error| {
        Failure::new(RUN_FAILED, format_args!("cannot ask for the signal of the parent's death: {error}"))
    })?;
    // It may have died before it was asked for.
    if getppid() != Pid::from_raw(*parent) {
        return Err(Failure::new(RUN_FAILED, "the command was not started: monolock run is gone"));
    }
    if *foreground && let Some(terminal) = Terminal::controlling() {
        terminal.lend(getpgrp());
    }
    let (program, arguments) = command.split_first().expect("the parser wants a command");
    let error = Command::new(program).args(arguments).exec();
    let (status, why) = if error.kind() == io::ErrorKind::NotFound {
        (NOT_FOUND, "there is no such command".to_owned())
    } else {
        (NOT_EXECUTABLE, error.to_string())
    };
    Err(Failure::new(status, format_args!("cannot run {:?}: {why}", program.to_string_lossy())))
}
