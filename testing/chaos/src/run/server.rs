//! The server's process: started, watched, stopped, killed and measured.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use monolock_chaos::history::{Audit, Death, What};
use monolock_chaos::plan::LONGEST_LEASE_MS;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::run::Result;
use crate::run::clock::now;
use crate::run::http;
use crate::run::network::{PORT, SERVER_IP, SERVERS, inside};
use crate::run::tools::Tools;
use crate::run::world::{PATIENCE, World};

const OPS_PORT: u16 = 7072;

/// The first frame and a write that nobody reads may take so long.
const IO_TIMEOUT: &str = "1500ms";

/// How often a state that is waited for is looked at.
const GLANCE: Duration = Duration::from_millis(10);

/// What memory may be left over: allocators give back late and in pieces.
const MEMORY_MARGIN_KIB: u64 = 24 * 1024;

const HOUR_S: i64 = 3600;

/// How a server is started.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Start {
    pub(crate) grace: bool,
    pub(crate) token_file: bool,
    pub(crate) descriptors: Option<u32>,
}

/// What a server has open and uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    descriptors: u64,
    memory_kib: u64,
}

/// Where the one server is at a time that clients reach.
#[derive(Debug)]
pub(crate) struct ServerPlace {
    program: PathBuf,
    wall_clock: PathBuf,
    folder: PathBuf,
    world: Arc<World>,
    epoch: u32,
    running: Option<Child>,
    /// Which of the machines it is on.
    machine: usize,
    /// The start that lives on a machine which nobody reaches.
    cut_off: Option<(u32, Child)>,
    offset_s: i64,
    /// How many starts in a row had the token file: each may have begun an hour later than the one before.
    starts_with_file: i64,
}

impl ServerPlace {
    pub(crate) fn new(tools: &Tools, folder: &Path, world: Arc<World>) -> Self {
        let Tools { monolock, wall_clock, .. } = tools;
        Self {
            program: monolock.clone(),
            wall_clock: wall_clock.clone(),
            folder: folder.to_owned(),
            world,
            epoch: 0,
            running: None,
            machine: 0,
            cut_off: None,
            offset_s: 0,
            starts_with_file: 0,
        }
    }

    /// Starts a server, and returns when it takes clients.
    pub(crate) fn start(&mut self, start: Start) -> Result<()> {
        self.epoch += 1;
        let epoch = self.epoch;
        let Start { grace, token_file, descriptors } = start;
        let grace_ms = if grace { LONGEST_LEASE_MS } else { 0 };
        self.set_clock(self.offset_s)?;
        if token_file {
            self.starts_with_file += 1;
        } else if self.starts_with_file > 0 {
            // Who gives the file up has to wait until the clock is where the tokens are.
            self.step_clock(self.offset_s + (self.starts_with_file + 1) * HOUR_S)?;
            self.starts_with_file = 0;
        }
        let log = self.folder.join(format!("server-{epoch}.log"));
        let stderr = File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        let limit = descriptors.map_or_else(String::new, |count| format!("ulimit -n {count}; "));
        let mut command = inside(self.machine(), "sh");
        command.arg("-c").arg(format!("{limit}exec \"$@\"")).args(["sh", "env"]);
        command.arg(format!("LD_PRELOAD={}", self.wall_clock.display()));
        command.arg(format!("WALL_CLOCK={}", self.folder.join("clock").display())).arg(&self.program);
        command.args(["--listen", &format!("{SERVER_IP}:{PORT}"), "--io-timeout", IO_TIMEOUT]);
        command.args(["--ops-listen", &format!("{SERVER_IP}:{OPS_PORT}")]);
        command.args(["--admin-listen", &format!("unix:{}", self.admin_socket().display())]);
        command.arg("--audit-log").arg(self.folder.join(format!("audit-{epoch}.jsonl")));
        command.args(["--max-lease", &format!("{LONGEST_LEASE_MS}ms"), "--start-grace", &format!("{grace_ms}ms")]);
        if token_file {
            command.arg("--token-file").arg(self.folder.join("tokens"));
        }
        for (variable, _) in std::env::vars_os() {
            if variable.as_encoded_bytes().starts_with(b"MONOLOCK_") {
                command.env_remove(variable);
            }
        }
        self.world.note(What::Starting { epoch, grace_ms, token_file });
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).spawn();
        self.running = Some(child.map_err(|error| format!("the server cannot be started: {error}"))?);
        let begun = Instant::now();
        while !fs::read_to_string(&log).is_ok_and(|text| text.contains("listening")) {
            self.check()?;
            if begun.elapsed() > PATIENCE {
                return Err(format!("the server does not listen: see {}", log.display()));
            }
            thread::sleep(GLANCE);
        }
        self.world.note(What::Serving { epoch });
        Ok(())
    }

    /// Asks the server to stop, and waits for it.
    pub(crate) fn stop(&mut self) -> Result<()> {
        self.end(Signal::SIGTERM)
    }

    /// Kills it.
    pub(crate) fn crash(&mut self) -> Result<()> {
        self.end(Signal::SIGKILL)
    }

    fn end(&mut self, signal: Signal) -> Result<()> {
        self.check()?;
        let Some(child) = self.running.take() else { return Err("there is no server".to_owned()) };
        self.end_of(self.epoch, child, signal)
    }

    fn end_of(&self, epoch: u32, mut child: Child, signal: Signal) -> Result<()> {
        self.world.note(What::Ending { epoch });
        send(signal, pid_of(&child)?)?;
        let status = wait(&mut child).ok_or("the server does not end")?;
        let how = if signal == Signal::SIGKILL {
            Death::Killed
        } else if status.success() {
            Death::Stopped
        } else {
            Death::ByItself
        };
        self.world.note(What::Dead { epoch, how });
        Ok(())
    }

    /// The next start is on the other machine.
    pub(crate) const fn change_machine(&mut self) {
        self.machine = 1 - self.machine;
    }

    /// The machine on which the server is, or will be started.
    pub(crate) const fn machine(&self) -> &'static str {
        SERVERS[self.machine]
    }

    /// The server's machine was cut off: it lives on, and there is room for another.
    pub(crate) fn leave_alone(&mut self) -> Result<()> {
        self.check()?;
        self.world.note(What::Unreachable { epoch: self.epoch });
        self.cut_off = self.running.take().map(|child| (self.epoch, child));
        Ok(())
    }

    /// Kills the server that was left alone, where there is one.
    pub(crate) fn end_the_one_alone(&mut self) -> Result<()> {
        let Some((epoch, child)) = self.cut_off.take() else { return Ok(()) };
        self.end_of(epoch, child, Signal::SIGKILL)
    }

    /// The path of a socket has to be short, and /run is the run's own.
    fn admin_socket(&self) -> PathBuf {
        format!("/run/{}.sock", self.machine()).into()
    }

    /// Looks whether it has ended by itself.
    pub(crate) fn check(&mut self) -> Result<()> {
        let ended = self.running.as_mut().and_then(|child| child.try_wait().ok().flatten());
        let Some(status) = ended else { return Ok(()) };
        self.running = None;
        self.world.note(What::Dead { epoch: self.epoch, how: Death::ByItself });
        self.world.flush()?;
        Err(format!("the server ended by itself with {status}: see server-{}.log", self.epoch))
    }

    /// Stops it in the middle of whatever it does, and returns when it stands still.
    pub(crate) fn pause(&mut self) -> Result<()> {
        self.signal(Signal::SIGSTOP)?;
        expect_stopped(self.pid()?)
    }

    pub(crate) fn resume(&mut self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    /// Its wall clock is off by so many seconds from now on.
    pub(crate) fn step_clock(&mut self, offset_s: i64) -> Result<()> {
        self.set_clock(offset_s)?;
        self.offset_s = offset_s;
        self.world.note(What::Stepped { offset_s });
        Ok(())
    }

    pub(crate) const fn clock_offset_s(&self) -> i64 {
        self.offset_s
    }

    fn set_clock(&self, offset_s: i64) -> Result<()> {
        let (clock, new) = (self.folder.join("clock"), self.folder.join("clock.new"));
        // Never no clock for a reader.
        symlink(offset_s.to_string(), &new)
            .and_then(|()| fs::rename(&new, &clock))
            .map_err(|error| format!("{}: {error}", clock.display()))
    }

    /// Whether the last line of the audit log is from a time that is off by so much.
    pub(crate) fn is_off_by(&self, offset_s: i64) -> bool {
        const NEAR_S: i64 = 600;

        let text = fs::read_to_string(self.folder.join(format!("audit-{}.jsonl", self.epoch))).unwrap_or_default();
        let last = Audit::parse(self.epoch, &text).lines.pop();
        let said = last.and_then(|line| humantime::parse_rfc3339(&line.time).ok());
        let seconds = |time: SystemTime| {
            let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            i64::try_from(since.as_secs()).unwrap_or(0)
        };
        said.is_some_and(|said| (seconds(said) - seconds(SystemTime::now()) - offset_s).abs() < NEAR_S)
    }

    #[expect(clippy::unused_self, reason = "the metrics are those of a server that is there")]
    pub(crate) fn metric(&self, name: &str) -> Result<f64> {
        http::metric(&http::get((SERVER_IP, OPS_PORT), "/metrics")?, name)
    }

    /// Locks and sessions, as the admin API says.
    pub(crate) fn counts(&self) -> Result<(u64, u64)> {
        let info = http::get_unix(&self.admin_socket(), "/api/info")?;
        let info: serde_json::Value = serde_json::from_str(&info).map_err(|error| format!("/api/info: {error}"))?;
        let count = |name: &str| info[name].as_u64().ok_or_else(|| format!("/api/info says no {name}"));
        Ok((count("locks")?, count("sessions")?))
    }

    pub(crate) fn measure(&self) -> Result<Measured> {
        let pid = self.pid()?;
        let failed = |error| format!("process {pid}: {error}");
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).map_err(failed)?.flatten();
        let descriptors = descriptors.count() as u64;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).map_err(failed)?;
        let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
        let memory_kib = memory.and_then(|kib| kib.trim().parse().ok()).ok_or("no VmRSS")?;
        Ok(Measured { descriptors, memory_kib })
    }

    /// What is left when all clients have gone; they have a while to be gone.
    pub(crate) fn measure_end(&mut self, at_rest: Measured) -> Result<()> {
        let begun = Instant::now();
        let (mut counts, mut connections, mut measured) = ((1, 1), 1.0, at_rest);
        while begun.elapsed() < PATIENCE {
            self.check()?;
            // First what is open, then what opens something itself.
            thread::sleep(GLANCE * 20);
            measured = self.measure()?;
            counts = self.counts()?;
            connections = self.metric("monolock_connections_active")?;
            if counts == (0, 0) && connections < 0.5 && measured.descriptors <= at_rest.descriptors {
                break;
            }
        }
        let dropped = self.metric("monolock_audit_dropped_total")?;
        let held = self.metric("monolock_locks_held")? + self.metric("monolock_waiters")?;
        for (what, value, limit) in [
            ("locks that somebody claims", counts.0, 0),
            ("sessions", counts.1, 0),
            ("open connections", round(connections), 0),
            ("held locks and waiters in the metrics", round(held), 0),
            ("audit events that were dropped", round(dropped), 0),
            ("open descriptors of the server", measured.descriptors, at_rest.descriptors),
            ("KiB of the server's memory", measured.memory_kib, at_rest.memory_kib + MEMORY_MARGIN_KIB),
        ] {
            self.world.note(What::AtEnd { what: what.to_owned(), value, limit });
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        send(signal, self.pid()?)
    }

    fn pid(&self) -> Result<i32> {
        pid_of(self.running.as_ref().ok_or("there is no server")?)
    }
}

fn pid_of(child: &Child) -> Result<i32> {
    i32::try_from(child.id()).map_err(|error| error.to_string())
}

fn send(signal: Signal, pid: i32) -> Result<()> {
    kill(Pid::from_raw(pid), signal).map_err(|error| format!("{signal} to the server: {error}"))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
fn round(value: f64) -> u64 {
    value.max(0.0).round() as u64
}

/// Waits for the end of a process, and kills it where that does not come.
pub(crate) fn wait(child: &mut Child) -> Option<std::process::ExitStatus> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        thread::sleep(GLANCE);
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// Waits until all threads of a process stand still.
pub(crate) fn expect_stopped(pid: i32) -> Result<()> {
    let is_still = |task: fs::DirEntry| {
        // The state stands behind the name, which is in parentheses. A thread that is gone stands still.
        let stat = fs::read_to_string(task.path().join("stat"));
        stat.map_or(true, |stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['T', 't', 'Z', 'X'])))
    };
    let deadline = now() + u64::try_from(PATIENCE.as_nanos()).unwrap_or(u64::MAX);
    while now() < deadline {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).map_err(|error| format!("process {pid}: {error}"))?;
        if tasks.flatten().all(is_still) {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(1));
    }
    Err(format!("process {pid} does not stand still"))
}
