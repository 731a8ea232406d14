//! The command of `monolock run`: a process group of its own, from its start to its end.
//!
//! The group is what is signalled and ended, so nothing that the command started in it outlives a lost lock. A command
//! that is stopped (Ctrl-Z) stops this process too, because the shell waits for this one; and it is continued only
//! while the lock is held.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::id;
use std::time::Duration;

use monolock_core::{LockName, Token};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpgrp};
use tokio::signal::unix::{self, SignalKind};
use tokio::time::{sleep, timeout};

use crate::failure::{RUN_FAILED, signal_status};
use crate::own;
use crate::terminal::Terminal;

/// How often a group that is to end is looked at: the system tells of the end of children only, and not of theirs.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// What SIGKILL may take. A process that the system itself holds longer cannot be ended by anybody.
const KILL_TIME: Duration = Duration::from_secs(1);

/// A running command.
pub(crate) struct Job {
    /// The command's process, which leads the group.
    leader: Pid,
    /// How the command ended; a process is asked once.
    ended: Option<u8>,
    terminal: Option<Terminal>,
    children: unix::Signal,
}

/// What became of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It ended with this status, as a shell would report it.
    Ended(u8),
    /// A signal stopped it: the terminal's, or one that somebody sent.
    Stopped(Signal),
}

impl Job {
    /// Starts the command, as given and without a shell. To be called on the main thread.
    pub(crate) fn spawn(command: &[OsString], name: &LockName, token: Token) -> io::Result<Self> {
        let children = unix::signal(SignalKind::child())?;
        let terminal = Terminal::controlling();
        // The stage between ties itself to this process and becomes the command.
        let mut stage = own::command()?;
        stage.args(["__exec", "--parent", &id().to_string()]);
        if terminal.as_ref().is_some_and(Terminal::is_to_be_lent) {
            stage.arg("--foreground");
        }
        stage.arg("--").args(command);
        // Sockets that were passed were passed to this process, and the command is another.
        for variable in ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"] {
            stage.env_remove(variable);
        }
        stage.env("MONOLOCK_LOCK", name.as_str()).env("MONOLOCK_TOKEN", token.to_string());
        let process = stage.process_group(0).spawn()?;
        Ok(Self { leader: own::pid(&process), ended: None, terminal, children })
    }

    /// Waits until the command ends or stops. Cancel-safe.
    pub(crate) async fn changed(&mut self) -> io::Result<Change> {
        loop {
            if let Some(change) = self.look()? {
                return Ok(change);
            }
            self.children.recv().await;
        }
    }

    /// Passes a signal on to the group.
    pub(crate) fn signal(&self, signal: Signal) {
        // There may be nobody left.
        let _ = killpg(self.leader, signal);
    }

    /// Stops the command and this process, because this one was asked to stop. When it is continued, so is the command,
    /// if it `may_go_on`.
    pub(crate) fn stop(&self, may_go_on: impl FnOnce() -> bool) {
        self.signal(Signal::SIGSTOP);
        // This call returns when somebody continues this process.
        let _ = kill(Pid::this(), Signal::SIGSTOP);
        self.go_on(Signal::SIGTSTP, may_go_on);
    }

    /// Stops this process, because the command was stopped by `signal`: the shell waits for this one. The rest is as in
    /// [`stop`](Self::stop).
    ///
    /// Where there is no terminal no shell waits: then somebody stopped the command alone, and will continue it.
    pub(crate) fn stop_with_it(&self, signal: Signal, may_go_on: impl FnOnce() -> bool) {
        let Some(terminal) = &self.terminal else { return };
        terminal.take_back_from(self.leader);
        // The whole group, as the terminal's own key does it.
        let _ = killpg(getpgrp(), Signal::SIGSTOP);
        self.go_on(signal, may_go_on);
    }

    fn go_on(&self, stopped_by: Signal, may_go_on: impl FnOnce() -> bool) {
        if !may_go_on() {
            return;
        }
        if let Some(terminal) = &self.terminal {
            let needs_it = matches!(stopped_by, Signal::SIGTTIN | Signal::SIGTTOU) && terminal.is_ours();
            if needs_it || terminal.is_to_be_lent() {
                terminal.lend(self.leader);
            }
        }
        self.signal(Signal::SIGCONT);
    }

    /// Ends the whole group: SIGTERM, and after `grace` SIGKILL. A group that is stopped stays so: it is not to run
    /// without the lock.
    pub(crate) async fn end(self, grace: Duration) {
        // What loses its parent now comes to this process, which then sees it end, whether or not the system's first
        // process reaps.
        #[cfg(target_os = "linux")]
        let _ = nix::sys::prctl::set_child_subreaper(true);
        self.signal(Signal::SIGTERM);
        if timeout(grace, self.gone()).await.is_err() {
            self.signal(Signal::SIGKILL);
            let _ = timeout(KILL_TIME, self.gone()).await;
        }
    }

    /// Waits until nobody is left in the group.
    async fn gone(&self) {
        let group = Pid::from_raw(-self.leader.as_raw());
        loop {
            // A process is in its group until its parent has asked how it ended.
            while waitpid(group, Some(WaitPidFlag::WNOHANG)).is_ok_and(|status| status.pid().is_some()) {}
            if killpg(self.leader, None).is_err() {
                return;
            }
            sleep(LOOK_INTERVAL).await;
        }
    }

    fn look(&mut self) -> io::Result<Option<Change>> {
        if let Some(status) = self.ended {
            return Ok(Some(Change::Ended(status)));
        }
        let status = match waitpid(self.leader, Some(WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED)) {
            Ok(WaitStatus::Stopped(_, signal)) => return Ok(Some(Change::Stopped(signal))),
            Ok(WaitStatus::Exited(_, status)) => u8::try_from(status).unwrap_or(RUN_FAILED),
            Ok(WaitStatus::Signaled(_, signal, _)) => signal_status(signal),
            // It has ended, by a signal that has no name: a real-time one.
            Err(Errno::EINVAL) => RUN_FAILED,
            Ok(_) | Err(Errno::EINTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        self.ended = Some(status);
        Ok(Some(Change::Ended(status)))
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(terminal) = &self.terminal {
            terminal.take_back_from(self.leader);
        }
    }
}
