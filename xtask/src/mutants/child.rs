//! A program that is run for a bounded time, its words put down in a file.
//!
//! It leads a process group of its own, which goes with it when its time is up: a test that hangs may have children.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

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
    lead_a_group(command);
    let mut child = command.spawn().map_err(|error| format!("cannot run {name}: {error}"))?;
    let end = wait(&mut child, limit).map_err(|error| format!("cannot wait for {name}: {error}"))?;
    let said = fs::read(log).map_err(|error| format!("{}: {error}", log.display()))?;
    Ok((end, String::from_utf8_lossy(&said).into_owned()))
}

fn wait(child: &mut Child, limit: Duration) -> std::io::Result<End> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(if status.success() { End::Success } else { End::Failure });
        }
        if begun.elapsed() >= limit {
            kill_group(child);
            child.wait()?;
            return Ok(End::TimeIsUp);
        }
        thread::sleep(LOOK_INTERVAL);
    }
}

#[cfg(unix)]
fn lead_a_group(command: &mut Command) {
    use std::os::unix::process::CommandExt as _;

    command.process_group(0);
}

#[cfg(unix)]
fn kill_group(child: &Child) {
    use rustix::process::{Pid, Signal, kill_process_group};

    // It has not been waited for, so the number is still its own.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
}

#[cfg(not(unix))]
fn lead_a_group(_command: &mut Command) {}

#[cfg(not(unix))]
fn kill_group(child: &mut Child) {
    let _ = child.kill();
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::{End, run};

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
        let pipe = directory.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        let script = format!("sleep 1000 > '{}' & wait", pipe.display());
        let reader = std::thread::spawn(move || std::fs::read(pipe));
        assert_eq!(shell(&script, Duration::from_millis(500)).0, End::TimeIsUp);
        // The pipe ends when nobody has it open any more.
        assert_eq!(reader.join().unwrap().unwrap(), b"");
    }
}
