//! The terminal, while a command runs in a process group of its own.
//!
//! Only the group in the foreground may read a terminal and has its keys (Ctrl-C, Ctrl-Z). The command is in a group of
//! its own, so the foreground is lent to it and taken back after. Not so in a pipeline: there the foreground belongs to
//! all its parts, a pager say, and the keys come to this process, which passes them on.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal as _};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The controlling terminal.
#[derive(Debug)]
pub(crate) struct Terminal(File);

impl Terminal {
    /// The one of this process, if it has one.
    pub(crate) fn controlling() -> Option<Self> {
        OpenOptions::new().read(true).write(true).open("/dev/tty").ok().map(Self)
    }

    /// Whether this process's group is in the foreground.
    pub(crate) fn is_ours(&self) -> bool {
        tcgetpgrp(&self.0) == Ok(getpgrp())
    }

    /// Whether the foreground is this group's to lend, and its standard streams say that no pipeline needs it.
    pub(crate) fn is_to_be_lent(&self) -> bool {
        self.is_ours() && io::stdin().is_terminal() && io::stdout().is_terminal()
    }

    /// Puts another group into the foreground.
    pub(crate) fn lend(&self, group: Pid) {
        // A group in the background is stopped for this, unless it blocks the signal. The command is not to inherit
        // that.
        let Ok(before) = SigSet::from(Signal::SIGTTOU).thread_swap_mask(SigmaskHow::SIG_BLOCK) else { return };
        // Without the foreground the command runs on, and is stopped when it wants to read.
        let _ = tcsetpgrp(&self.0, group);
        let _ = before.thread_set_mask();
    }

    /// Puts this process's group into the foreground again, if `group` has it still.
    pub(crate) fn take_back_from(&self, group: Pid) {
        if tcgetpgrp(&self.0) == Ok(group) {
            self.lend(getpgrp());
        }
    }
}
