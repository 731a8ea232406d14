//! The client under test: a process that takes operations on its standard input and says on its standard output what
//! became of them, one JSON object a line (`docs/writing-a-client.md`, "The driver protocol").
//!
//! Every line is stamped when it is read, before anybody looks at it.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use serde_json::{Value, json};

use crate::outcome::{Outcome, Stop, ensure, fail};
use crate::timeline::Timeline;

/// How long a driver may take to start: a virtual machine that starts on a busy machine.
const START: Duration = Duration::from_secs(30);

/// How long a driver may take to end after it was told to.
const END: Duration = Duration::from_secs(10);

/// A driver process. Dropping it kills the process and all that it started.
#[derive(Debug)]
pub struct Driver {
    child: Mutex<Child>,
    group: Pid,
    stdin: Mutex<Option<ChildStdin>>,
    inbox: Arc<Inbox>,
    timeline: Timeline,
}

/// A line that the driver wrote.
#[derive(Clone, Debug)]
pub struct Event {
    /// When it was read.
    pub at: Instant,
    /// What it says.
    pub body: Value,
}

#[derive(Debug, Default)]
struct Inbox {
    state: Mutex<Read_>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Read_ {
    unread: VecDeque<Event>,
    ended: bool,
    stderr: String,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Read_> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Driver {
    /// Starts the process, and waits until it is ready.
    ///
    /// # Errors
    /// It does not start, or says something else than that it is ready.
    pub fn start(command: &[OsString], timeline: &Timeline) -> Outcome<Self> {
        let Some((program, arguments)) = command.split_first() else { return fail("no driver was given") };
        let spawned = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn();
        let mut child = match spawned {
            Ok(child) => child,
            Err(error) => return fail(format!("cannot start {}: {error}", program.display())),
        };
        let group = Pid::from_child(&child);
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let inbox = Arc::<Inbox>::default();
        if let Some(stdout) = stdout {
            let (inbox, timeline) = (Arc::clone(&inbox), timeline.clone());
            thread::spawn(move || read_events(stdout, &inbox, &timeline));
        }
        if let Some(stderr) = stderr {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || read_words(stderr, &inbox));
        }
        let driver =
            Self { child: Mutex::new(child), group, stdin: Mutex::new(stdin), inbox, timeline: timeline.clone() };
        match driver.next(None, Instant::now() + START) {
            Some(Event { body, .. }) if body["event"] == "ready" => Ok(driver),
            Some(Event { body, .. }) => fail(format!("expected the driver's ready; came {body}")),
            None => fail(format!("expected the driver's ready; came nothing{}", driver.last_words())),
        }
    }

    /// Tells the driver what to do.
    ///
    /// # Errors
    /// It reads no more.
    pub fn send(&self, op: &Value) -> Outcome {
        self.timeline.note(Instant::now(), format!("driver <- {op}"));
        let mut stdin = self.stdin.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = stdin.as_mut().is_some_and(|stdin| stdin.write_all(format!("{op}\n").as_bytes()).is_ok());
        ensure(sent, || format!("expected the driver to read {op}; its input is closed{}", self.last_words()))
    }

    /// The next unread event with this `id` (`None`: of those without one), if it comes in time.
    pub fn next(&self, id: Option<u64>, by: Instant) -> Option<Event> {
        let mut state = self.inbox.lock();
        loop {
            let place = state.unread.iter().position(|event| event.body.get("id").and_then(Value::as_u64) == id);
            if let Some(place) = place {
                return state.unread.remove(place);
            }
            let left = by.saturating_duration_since(Instant::now());
            if left.is_zero() || state.ended {
                return None;
            }
            state = self.inbox.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Takes all events that nobody has read.
    pub fn take_unread(&self) -> Vec<Event> {
        self.inbox.lock().unread.drain(..).collect()
    }

    /// Whether its output has ended.
    pub fn has_ended(&self) -> bool {
        self.inbox.lock().ended
    }

    /// What it wrote last on its standard error, as an addition to a sentence.
    pub fn last_words(&self) -> String {
        let stderr = self.inbox.lock().stderr.clone();
        let words = stderr.trim_end().lines().last().unwrap_or_default();
        if words.is_empty() { String::new() } else { format!(" (its standard error ends: {words:?})") }
    }

    /// Stops the process where it stands, and returns when it does.
    pub fn freeze(&self) {
        self.timeline.note(Instant::now(), "driver is stopped (SIGSTOP)");
        self.signal(Signal::STOP);
        // Until every thread of it stands still.
        let _ = waitid(WaitId::Pid(self.group), WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT);
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.timeline.note(Instant::now(), "driver goes on (SIGCONT)");
        self.signal(Signal::CONT);
    }

    /// The processor time that the process has used, where the system tells.
    pub fn processor_time(&self) -> Option<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.group.as_raw_nonzero())).ok()?;
        let (_, fields) = stat.rsplit_once(") ")?;
        let ticks: u64 = fields.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        // USER_HZ is 100 on every Linux that is told here.
        Some(Duration::from_millis(ticks * 10))
    }

    /// How many threads and open files the process has, where the system tells.
    pub fn belongings(&self) -> Option<(usize, usize)> {
        let count =
            |what| Some(std::fs::read_dir(format!("/proc/{}/{what}", self.group.as_raw_nonzero())).ok()?.count());
        Some((count("task")?, count("fd")?))
    }

    /// Closes its input: the driver is to end.
    pub fn close_input(&self) {
        self.timeline.note(Instant::now(), "driver's input is closed");
        self.stdin.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Tells it to end, and sees that it does, with status 0.
    ///
    /// # Errors
    /// It does not.
    pub fn finish(&self) -> Outcome {
        // Where it reads no more, it has ended already, and its status says how.
        let _ = self.send(&json!({"op": "exit"}));
        self.close_input();
        self.expect_end()
    }

    /// Sees that it ends with status 0. All that it wrote has been read then.
    ///
    /// # Errors
    /// It does not, or something that it started keeps its output open.
    pub fn expect_end(&self) -> Outcome {
        let by = Instant::now() + END;
        loop {
            let ended = self.child.lock().unwrap_or_else(PoisonError::into_inner).try_wait();
            match ended {
                Ok(Some(status)) if status.success() => return self.expect_output_end(by),
                Ok(Some(status)) => {
                    return fail(format!(
                        "expected the driver to end with status 0; came {status}{}",
                        self.last_words()
                    ));
                }
                Ok(None) if Instant::now() < by => thread::sleep(Duration::from_millis(5)),
                Ok(None) => return fail(format!("expected the driver to end after exit; it runs on after {END:?}")),
                Err(error) => return Err(Stop::Failed(format!("cannot wait for the driver: {error}"))),
            }
        }
    }

    fn expect_output_end(&self, by: Instant) -> Outcome {
        let mut state = self.inbox.lock();
        while !state.ended {
            let left = by.saturating_duration_since(Instant::now());
            ensure(!left.is_zero(), || {
                format!("expected the driver's output to end with it; it is open {END:?} after the exit")
            })?;
            state = self.inbox.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        // Where it fails, the group is gone.
        let _ = kill_process_group(self.group, signal);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Its group is known to be its own only while it has not been waited for; what it started ends with its input.
        if let Ok(None) = child.try_wait() {
            let _ = kill_process_group(self.group, Signal::KILL);
            let _ = child.wait();
        }
    }
}

fn read_events(stdout: impl Read, inbox: &Inbox, timeline: &Timeline) {
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        let at = Instant::now();
        timeline.note(at, format!("driver -> {line}"));
        let body = serde_json::from_str(&line).unwrap_or_else(|_| json!({"event": "not JSON", "line": line}));
        inbox.lock().unread.push_back(Event { at, body });
        inbox.changed.notify_all();
    }
    inbox.lock().ended = true;
    inbox.changed.notify_all();
}

fn read_words(stderr: impl Read, inbox: &Inbox) {
    for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
        let mut state = inbox.lock();
        state.stderr.push_str(&String::from_utf8_lossy(&line));
        state.stderr.push('\n');
    }
}
