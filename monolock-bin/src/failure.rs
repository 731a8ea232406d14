//! What went wrong, as the user is to read it: one sentence and an exit status.
//!
//! A sentence names the flag, the variable, the address or the file it is about, and says what to do.

use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;

use nix::sys::signal::Signal;

/// The command line, or a variable, is wrong.
pub(crate) const USAGE: u8 = 2;

/// Anything else that has no status of its own.
pub(crate) const FAILED: u8 = 1;

/// Commands of an operator: there is no such lock, holder or waiter.
pub(crate) const NONE_SUCH: u8 = 3;

/// Commands of an operator: nothing was done, because the claim that was meant is another by now, or not one alone, or
/// because a person said no.
pub(crate) const OTHER_CLAIM: u8 = 4;

/// `run`: the lock is held by another, and the command was not to wait (`--try`).
pub(crate) const CONTENDED: u8 = 120;

/// `run`: the lock was lost while the command ran.
pub(crate) const LOST: u8 = 121;

/// `run`: the server refuses the claim. Commands of an operator: the admin API refuses who asks.
pub(crate) const DENIED: u8 = 122;

/// `run`: no server was reached. Commands of an operator: no admin API was.
pub(crate) const UNREACHABLE: u8 = 123;

/// `run`: the lock was not obtained in time, as `timeout` has it.
pub(crate) const NOT_OBTAINED: u8 = 124;

/// `run`: it failed by itself, as `timeout` and `env` have it.
pub(crate) const RUN_FAILED: u8 = 125;

/// `run`: the command cannot be executed, as shells have it.
pub(crate) const NOT_EXECUTABLE: u8 = 126;

/// `run`: there is no such command, as shells have it.
pub(crate) const NOT_FOUND: u8 = 127;

/// The end of a command that did not do what was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    status: u8,
    sentence: Option<String>,
}

impl Failure {
    /// With a sentence, which has no full stop and no line breaks.
    pub(crate) fn new(status: u8, sentence: impl fmt::Display) -> Self {
        Self { status, sentence: Some(sentence.to_string()) }
    }

    /// Where a signal was the reason, whoever sent it knows.
    pub(crate) fn signalled(signal: Signal) -> Self {
        Self { status: signal_status(signal), sentence: None }
    }

    /// Where whoever reads the output has closed it: it was enough.
    pub(crate) const fn nobody_reads() -> Self {
        Self { status: 0, sentence: None }
    }

    /// Tells the user. A closed stderr is no reason to fail otherwise.
    pub(crate) fn tell(self) -> ExitCode {
        if let Some(sentence) = self.sentence {
            let _ = writeln!(std::io::stderr(), "monolock: {sentence}");
        }
        ExitCode::from(self.status)
    }
}

/// What a shell reports for a process that a signal ended: 128 + n.
pub(crate) fn signal_status(signal: Signal) -> u8 {
    u8::try_from(128 + signal as i32).expect("signals are numbered below 128")
}
