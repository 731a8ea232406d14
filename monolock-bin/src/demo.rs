//! `monolock demo`: what monolock promises, shown on one machine in a few seconds.
//!
//! Nothing is staged. The server is the real one, on a free port of the loopback; each worker is a process of its own
//! ([`demo_worker`](crate::demo_worker)), and is really closed, killed and frozen. The times are measured on the
//! machine's one clock, and the demo fails if what it tells did not happen.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use monolock_core::{Lease, Timestamp, Token};
use monolock_net::Server;
use nix::sys::signal::{Signal, kill};
use tokio::runtime::Runtime;

use crate::cli::DemoArgs;
use crate::demo_worker::Report;
use crate::failure::{FAILED, Failure};
use crate::own::{self, now};

/// The lock that the workers want.
const LOCK: &str = "nightly-import";

/// How long each scene may be looked at.
const SCENE: Duration = Duration::from_millis(900);

/// A worker that says nothing for so long beyond the lease is broken.
const PATIENCE: Duration = Duration::from_secs(10);

/// Tells the story.
///
/// # Errors
/// It did not come out as it should.
pub(crate) fn demo(args: &DemoArgs) -> Result<ExitCode, Failure> {
    match perform(args.lease) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        // Whoever closes the pipe has seen enough.
        Err(Mishap::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(Mishap::Io(error)) => Err(Failure::new(FAILED, format_args!("the demo could not go on: {error}"))),
        Err(Mishap::Unexpected(what)) => Err(Failure::new(FAILED, format_args!("the demo went wrong: {what}"))),
    }
}

enum Mishap {
    Io(io::Error),
    Unexpected(String),
}

impl From<io::Error> for Mishap {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn perform(lease: Lease) -> Result<(), Mishap> {
    let runtime = Runtime::new()?;
    let address = runtime.block_on(async {
        let server = Server::builder().listen((Ipv4Addr::LOCALHOST, 0).into()).bind()?;
        let address = server.local_addr();
        tokio::spawn(server.run());
        io::Result::Ok(address)
    })?;
    let mut stage = Stage { address, lease, opened: now(), last_token: None };
    stage.narrate(&format!(
        "A server on {address}, three workers in processes of their own, one lock {LOCK:?}, leases of {lease}.\n"
    ))?;

    let mut a = stage.enter('A')?;
    let grant = stage.expect_grant(&mut a)?;
    stage.tell(&a, &format!("asks first, and owns the lock    token {}", grant.token))?;
    let mut b = stage.enter_queue('B', "asks, and queues behind A")?;
    let mut c = stage.enter_queue('C', "asks, and queues behind B")?;

    stage.pause("A controlled stop: the connection is closed, the next in the queue owns the lock at once.")?;
    stage.tell(&a, "finishes, and closes its connection")?;
    let closed = a.finish(lease)?;
    stage.hand_over(&mut b, closed)?;
    let mut a = stage.enter_queue('A', "comes back, and queues behind C")?;

    stage.pause("A crash: the system closes the dead process's connection, which is as good.")?;
    stage.tell(&b, "is killed with kill -9")?;
    let killed = b.kill()?;
    stage.hand_over(&mut c, killed)?;

    stage.pause("A hang: the process is silent, but its connection stays open. The lease decides.")?;
    let last_heartbeat = c.freeze_after_heartbeat(lease)?;
    stage.tell(&c, "is frozen with SIGSTOP, just after a heartbeat")?;
    let grant = stage.expect_grant(&mut a)?;
    let silence = grant.at.since(last_heartbeat);
    stage.tell(&a, &owns(grant, &format!("{} after C's last heartbeat", Measured(silence))))?;

    stage.pause("An awakening: what it believed is too old, and its clock says so before it does anything.")?;
    c.thaw()?;
    c.expect(lease, |report| matches!(report, Report::Lost).then_some(()))?;
    stage.tell(&c, "wakes up, and sees that it has lost the lock")?;
    a.finish(lease)?;
    stage.tell(&a, "finishes")?;
    stage.narrate(
        "\nFour turns in the order of asking, never two owners at once, every token larger than the one before.",
    )?;
    runtime.shutdown_background();
    Ok(())
}

/// What all scenes have in common.
struct Stage {
    address: SocketAddr,
    lease: Lease,
    opened: Timestamp,
    last_token: Option<Token>,
}

#[derive(Clone, Copy)]
struct Grant {
    token: Token,
    /// When the worker read its `ACQUIRED`.
    at: Timestamp,
}

impl Stage {
    fn enter(&self, name: char) -> Result<Worker, Mishap> {
        Ok(Worker::spawn(name, self.address, self.lease)?)
    }

    fn enter_queue(&self, name: char, what: &str) -> Result<Worker, Mishap> {
        let mut worker = self.enter(name)?;
        worker.expect(self.lease, |report| matches!(report, Report::Queued).then_some(()))?;
        self.tell(&worker, what)?;
        Ok(worker)
    }

    fn expect_grant(&mut self, worker: &mut Worker) -> Result<Grant, Mishap> {
        let grant = worker.expect(self.lease, |report| match report {
            Report::Granted { token, at } => Some(Grant { token, at }),
            Report::Queued | Report::Heartbeat { .. } | Report::Closed { .. } | Report::Lost => None,
        })?;
        if self.last_token.is_some_and(|last| grant.token <= last) {
            return Err(Mishap::Unexpected(format!("token {} is not larger than the last", grant.token)));
        }
        self.last_token = Some(grant.token);
        Ok(grant)
    }

    /// The next owner has its turn, so long after the last one went.
    fn hand_over(&mut self, next: &mut Worker, gone: Timestamp) -> Result<(), Mishap> {
        let grant = self.expect_grant(next)?;
        self.tell(next, &owns(grant, &format!("{} later", Measured(grant.at.since(gone)))))
    }

    fn tell(&self, worker: &Worker, what: &str) -> Result<(), Mishap> {
        let at = now().since(self.opened).as_secs_f64();
        self.narrate(&format!("{at:6.2}s  {}  {what}", worker.name))
    }

    fn pause(&self, what: &str) -> Result<(), Mishap> {
        thread::sleep(SCENE);
        self.narrate(&format!("\n{what}"))
    }

    #[expect(clippy::unused_self, reason = "the audience sits before the stage")]
    fn narrate(&self, what: &str) -> Result<(), Mishap> {
        let mut out = io::stdout().lock();
        writeln!(out, "{what}")?;
        Ok(out.flush()?)
    }
}

fn owns(grant: Grant, when: &str) -> String {
    format!("owns the lock    token {}    {when}", grant.token)
}

/// A duration in the unit that suits it.
struct Measured(Duration);

impl std::fmt::Display for Measured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.0.as_secs_f64();
        if seconds < 0.1 { write!(f, "{:.2} ms", seconds * 1e3) } else { write!(f, "{seconds:.2} s") }
    }
}

/// A worker's process, which does not outlive this.
struct Worker {
    name: char,
    process: Child,
    reports: Receiver<Report>,
}

impl Worker {
    fn spawn(name: char, address: SocketAddr, lease: Lease) -> io::Result<Self> {
        let mut process = own::command()?
            .args(["__demo-worker", "--server", &address.to_string(), "--lease"])
            .arg(format!("{}ms", lease.as_millis()))
            .arg(LOCK)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = process.stdout.take().expect("stdout is piped");
        let (sender, reports) = channel();
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            // Both ends of the channel know a worker's words.
            for report in lines.filter_map(|line| line.parse().ok()) {
                if sender.send(report).is_err() {
                    return;
                }
            }
        });
        Ok(Self { name, process, reports })
    }

    /// Waits for a report, over those that say nothing new.
    fn expect<T>(&mut self, lease: Lease, wanted: impl Fn(Report) -> Option<T>) -> Result<T, Mishap> {
        loop {
            let report = match self.reports.recv_timeout(lease.as_duration() + PATIENCE) {
                Ok(report) => report,
                Err(RecvTimeoutError::Timeout) => return Err(self.unexpected("said nothing")),
                Err(RecvTimeoutError::Disconnected) => return Err(self.unexpected("is gone")),
            };
            match (wanted(report), report) {
                (Some(found), _) => return Ok(found),
                (None, Report::Heartbeat { .. }) => {}
                (None, other) => return Err(self.unexpected(&format!("said {other}"))),
            }
        }
    }

    /// Lets the worker close its connection, and says when it did.
    fn finish(&mut self, lease: Lease) -> Result<Timestamp, Mishap> {
        drop(self.process.stdin.take());
        self.expect(lease, |report| match report {
            Report::Closed { at } => Some(at),
            Report::Queued | Report::Granted { .. } | Report::Heartbeat { .. } | Report::Lost => None,
        })
    }

    /// Kills the worker as `kill -9` does, and says when.
    fn kill(&mut self) -> io::Result<Timestamp> {
        let at = now();
        self.process.kill()?;
        Ok(at)
    }

    /// Waits for the next heartbeat and freezes the worker before it can send another. Says when the heartbeat was
    /// sent.
    fn freeze_after_heartbeat(&mut self, lease: Lease) -> Result<Timestamp, Mishap> {
        while self.reports.try_recv().is_ok() {}
        let at = self.expect(lease, |report| match report {
            Report::Heartbeat { at } => Some(at),
            Report::Queued | Report::Granted { .. } | Report::Closed { .. } | Report::Lost => None,
        })?;
        self.signal(Signal::SIGSTOP)?;
        Ok(at)
    }

    fn thaw(&self) -> io::Result<()> {
        self.signal(Signal::SIGCONT)
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill(own::pid(&self.process), signal)?)
    }

    fn unexpected(&self, what: &str) -> Mishap {
        Mishap::Unexpected(format!("worker {} {what}", self.name))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
