//! A program that is run for a bounded time, its words put down in a file.
//!
//! It leads a process group of its own, which goes with it when its time is up: a test that hangs may have children. A
//! terminal's interrupt does not reach that group by itself, so it is passed on.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// How often it is looked whether a program has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Success,
    Failure,
    /// It was killed when its time was up.
    TimeIsUp,
}

/// Runs `command` for at most so long; what it says goes to `log`. Returns how it ended and what it said.
///
/// # Errors
/// It cannot be started, or the log cannot be written.
pub(crate) fn run(command: &mut Command, limit: Duration, log: &Path) -> Result<(End, String), String> {
    let describe = |error| format!("cannot run {command:?}: {error}");
    let output = File::create(log).map_err(|error| format!("{}: {error}", log.display()))?;
    let errors = output.try_clone().map_err(describe)?;
    let name = format!("{command:?}");
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    command.process_group(0);
    let mut child = {
        let mut running = running();
        let child = command.spawn().map_err(|error| format!("cannot run {name}: {error}"))?;
        running.insert(child.id());
        child
    };
    let end = wait(&mut child, limit).map_err(|error| format!("cannot wait for {name}: {error}"))?;
    let said = fs::read(log).map_err(|error| format!("{}: {error}", log.display()))?;
    Ok((end, String::from_utf8_lossy(&said).into_owned()))
}

/// From now on an interrupt of this program ends what it runs as well.
///
/// # Errors
/// Those of the operating system.
pub(crate) fn pass_interrupts_on() -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    thread::spawn(move || {
        for signal in signals.forever() {
            // Kept locked, so that nothing new begins.
            let running = running();
            running.iter().for_each(|&leader| kill_group(leader));
            // It ends this program; where it could not, the next one is waited for.
            let _ = emulate_default_handler(signal);
        }
    });
    Ok(())
}

/// The leaders of the groups that run. One that has been waited for is none any more: its number may be another's.
static RUNNING: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

fn running() -> MutexGuard<'static, BTreeSet<u32>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait(child: &mut Child, limit: Duration) -> io::Result<End> {
    let begun = Instant::now();
    let mut is_killed = false;
    loop {
        {
            let mut running = running();
            if let Some(status) = child.try_wait()? {
                running.remove(&child.id());
                return Ok(match (is_killed, status.success()) {
                    (true, _) => End::TimeIsUp,
                    (false, true) => End::Success,
                    (false, false) => End::Failure,
                });
            }
            if !is_killed && begun.elapsed() >= limit {
                kill_group(child.id());
                is_killed = true;
            }
        }
        thread::sleep(LOOK_INTERVAL);
    }
}

/// Kills a group whose leader has not been waited for.
fn kill_group(leader: u32) {
    if let Some(leader) = i32::try_from(leader).ok().and_then(Pid::from_raw) {
        // It may have ended by itself.
        let _ = kill_process_group(leader, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{ErrorKind, Read as _};
    use std::process::Command;
    use std::thread;
    use std::time::{Duration, Instant};

    use rustix::fs::{CWD, Mode, OFlags, mkfifoat, open};

    use super::{End, LOOK_INTERVAL, run};

    const LONG: Duration = Duration::from_mins(10);

    fn shell(script: &str, limit: Duration) -> (End, String) {
        let directory = tempfile::tempdir().unwrap();
        run(Command::new("sh").args(["-c", script]), limit, &directory.path().join("log")).unwrap()
    }

    #[test]
    fn its_end_and_its_words_are_told() {
        assert_eq!(shell("echo one; echo two >&2", LONG), (End::Success, "one\ntwo\n".to_owned()));
        assert_eq!(shell("echo one; exit 3", LONG), (End::Failure, "one\n".to_owned()));
    }

    #[test]
    fn one_whose_time_is_up_is_killed_with_its_children() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        mkfifoat(CWD, &path, Mode::RWXU).unwrap();
        let mut pipe = File::from(open(&path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap());
        let script = format!("sleep 1000 > '{}' & wait", path.display());
        assert_eq!(shell(&script, Duration::from_secs(1)).0, End::TimeIsUp);
        // The pipe has an end when nobody can write to it any more.
        let killed = Instant::now();
        while pipe.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
            assert!(killed.elapsed() < Duration::from_mins(1), "a child lives on");
            thread::sleep(LOOK_INTERVAL);
        }
    }
}
