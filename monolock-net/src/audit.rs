//! The audit log: who was granted what and how it ended, one JSON object a line.
//!
//! Events are formed under the shard's lock, so that their order is the engine's, and put into a bounded queue; one thread writes them. Nobody waits
//! for the sink: where the queue is full an event is dropped and counted. A line is written whole or, after a failure in its middle, gone on with
//! where it broke off.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use monolock_core::{LockName, ReleaseReason, Token};
use prometheus_client::metrics::counter::Counter;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

/// How many events may wait for the writer.
const QUEUE_EVENTS: usize = 16_384;

/// How many bytes of lines are written at once, and kept while the sink fails.
const BATCH_BYTES: usize = 64 << 10;

/// How soon a sink that failed is tried again, and a file that may have been deleted is looked after.
const CARE_INTERVAL: Duration = Duration::from_millis(500);

/// Where the audit log goes, and what a failing sink does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditLog {
    /// The sink.
    pub sink: AuditSink,
    /// What happens when the sink takes no more.
    pub on_failure: AuditFailure,
}

/// A sink of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditSink {
    /// Standard output.
    Stdout,
    /// A file that is appended to, or a named pipe.
    File(PathBuf),
}

impl std::fmt::Display for AuditSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stdout => f.write_str("standard output"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// What a failing sink does to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditFailure {
    /// Locks are served on; events that find no room are dropped and counted, and the sink is tried again.
    #[default]
    Continue,
    /// The server stops in order: no grant goes unrecorded for long.
    Exit,
}

/// What is put down.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) time: SystemTime,
    pub(crate) lock: LockName,
    pub(crate) identity: Arc<str>,
    pub(crate) remote_addr: SocketAddr,
    pub(crate) what: What,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum What {
    Granted {
        #[serde(serialize_with = "as_number")]
        token: Token,
        #[serde(rename = "wait_ms", serialize_with = "as_millis")]
        waited: Duration,
    },
    Released {
        #[serde(serialize_with = "as_number")]
        token: Token,
        #[serde(rename = "held_ms", serialize_with = "as_millis")]
        held: Duration,
        #[serde(serialize_with = "as_str")]
        reason: ReleaseReason,
    },
    Denied {},
    ForceRelease {
        #[serde(serialize_with = "as_number")]
        token: Token,
    },
    KickWaiter {},
}

impl What {
    const fn name(&self) -> &'static str {
        match self {
            Self::Granted { .. } => "granted",
            Self::Released { .. } => "released",
            Self::Denied {} => "denied",
            Self::ForceRelease { .. } => "force_release",
            Self::KickWaiter {} => "kick_waiter",
        }
    }
}

/// The way to the writer.
#[derive(Debug)]
pub(crate) struct Audit {
    queue: SyncSender<Message>,
    on_failure: AuditFailure,
    dropped: Counter,
    reopen: Arc<AtomicBool>,
    /// Cancelled when the server must not go on.
    failed: CancellationToken,
}

#[derive(Debug)]
enum Message {
    Event(Event),
    /// Look at what has changed.
    Wake,
    /// Write what there is and say so.
    Finish(SyncSender<()>),
}

impl Audit {
    /// Opens the sink and starts its writer. `failed` is cancelled where [`AuditFailure::Exit`] wants the server to stop.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn start(log: &AuditLog, dropped: Counter, failed: CancellationToken) -> io::Result<Self> {
        let AuditLog { sink, on_failure } = log;
        let (queue, messages) = mpsc::sync_channel(QUEUE_EVENTS);
        let reopen = Arc::new(AtomicBool::new(false));
        let target = Target::open(sink)?;
        let fails = (*on_failure == AuditFailure::Exit).then(|| failed.clone());
        let writer = Writer { messages, target, reopen: Arc::clone(&reopen), fails, lines: Vec::new(), trouble: None };
        thread::Builder::new().name("audit".into()).spawn(move || writer.run())?;
        Ok(Self { queue, on_failure: *on_failure, dropped, reopen, failed })
    }

    /// Puts an event down, or drops and counts it. Never waits.
    pub(crate) fn record(&self, event: Event) {
        if self.queue.try_send(Message::Event(event)).is_err() {
            self.dropped.inc();
            if self.on_failure == AuditFailure::Exit {
                self.failed.cancel();
            }
        }
    }

    /// Opens the file anew, after it was renamed.
    pub(crate) fn reopen(&self) {
        self.reopen.store(true, Ordering::Release);
        // With a full queue the writer is awake anyway.
        let _ = self.queue.try_send(Message::Wake);
    }

    /// Waits, at most so long, until all that was recorded is written.
    pub(crate) fn finish(&self, patience: Duration) {
        let (done, finished) = mpsc::sync_channel(1);
        let mut message = Message::Finish(done);
        let start = Instant::now();
        while let Err(TrySendError::Full(returned)) = self.queue.try_send(message) {
            if start.elapsed() >= patience {
                return;
            }
            thread::yield_now();
            message = returned;
        }
        let _ = finished.recv_timeout(patience.saturating_sub(start.elapsed()));
    }
}

/// The one that writes.
struct Writer {
    messages: Receiver<Message>,
    target: Target,
    reopen: Arc<AtomicBool>,
    fails: Option<CancellationToken>,
    /// Lines, and maybe the rest of one, that the sink has not taken.
    lines: Vec<u8>,
    /// Since when the sink fails.
    trouble: Option<Instant>,
}

impl Writer {
    fn run(mut self) {
        loop {
            let mut finished = None;
            match self.next_message() {
                Ok(Message::Event(event)) => event.append_to(&mut self.lines),
                Ok(Message::Wake) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Message::Finish(done)) => finished = Some(done),
                Err(RecvTimeoutError::Disconnected) => return,
            }
            while finished.is_none()
                && self.lines.len() < BATCH_BYTES
                && let Ok(message) = self.messages.try_recv()
            {
                match message {
                    Message::Event(event) => event.append_to(&mut self.lines),
                    Message::Wake => {}
                    Message::Finish(done) => finished = Some(done),
                }
            }
            self.care();
            self.write();
            if let Some(done) = finished {
                let _ = done.try_send(());
            }
        }
    }

    /// Waits for a message; with a sink that fails and a full batch, only for time to pass.
    fn next_message(&self) -> Result<Message, RecvTimeoutError> {
        if self.trouble.is_some() && self.lines.len() >= BATCH_BYTES {
            thread::sleep(CARE_INTERVAL);
            return Err(RecvTimeoutError::Timeout);
        }
        self.messages.recv_timeout(CARE_INTERVAL)
    }

    /// Opens the file anew where that was asked for, or where the path leads to another file or to none.
    fn care(&mut self) {
        let asked = self.reopen.swap(false, Ordering::AcqRel);
        if !asked && !self.target.is_astray() {
            return;
        }
        if let Err(error) = self.target.reopen() {
            self.note_trouble(&error);
        }
    }

    fn write(&mut self) {
        while !self.lines.is_empty() {
            match self.target.write(&self.lines) {
                Ok(0) => return self.note_trouble(&io::ErrorKind::WriteZero.into()),
                Ok(written) => drop(self.lines.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.note_trouble(&error),
            }
        }
        if let Some(since) = self.trouble.take() {
            tracing::info!(after_ms = since.elapsed().as_millis(), "the audit log is written again");
        }
    }

    fn note_trouble(&mut self, error: &io::Error) {
        if self.trouble.is_none() {
            tracing::error!(%error, sink = %self.target, "the audit log cannot be written");
            self.trouble = Some(Instant::now());
        }
        if let Some(fails) = &self.fails {
            fails.cancel();
        }
    }
}

/// An open sink.
#[derive(Debug)]
enum Target {
    Stdout,
    File { path: PathBuf, file: Option<File> },
}

impl Target {
    fn open(sink: &AuditSink) -> io::Result<Self> {
        match sink {
            AuditSink::Stdout => Ok(Self::Stdout),
            AuditSink::File(path) => Ok(Self::File { path: path.clone(), file: Some(open(path)?) }),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout => {
                let mut stdout = io::stdout().lock();
                let written = stdout.write(bytes)?;
                stdout.flush()?;
                Ok(written)
            }
            Self::File { path, file } => {
                let open_file = match file.take() {
                    Some(open_file) => open_file,
                    None => open(path)?,
                };
                file.insert(open_file).write(bytes)
            }
        }
    }

    fn reopen(&mut self) -> io::Result<()> {
        if let Self::File { path, file } = self {
            // The old file stays where the new one cannot be had.
            *file = Some(open(path)?);
        }
        Ok(())
    }

    /// Whether the path leads to another file than the open one, or to none.
    fn is_astray(&self) -> bool {
        match self {
            Self::Stdout | Self::File { file: None, .. } => false,
            Self::File { path, file: Some(file) } => !is_at(path, file),
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stdout => f.write_str("standard output"),
            Self::File { path, .. } => path.display().fmt(f),
        }
    }
}

impl Event {
    /// Appends the event as one line of JSON. No name or identity can break the line: JSON escapes what would.
    fn append_to(&self, lines: &mut Vec<u8>) {
        #[derive(Serialize)]
        struct Line<'a> {
            time: String,
            event: &'static str,
            lock: &'a str,
            identity: &'a str,
            remote_addr: SocketAddr,
            #[serde(flatten)]
            what: &'a What,
        }
        let Self { time, lock, identity, remote_addr, what } = self;
        let time = humantime::format_rfc3339_millis((*time).max(SystemTime::UNIX_EPOCH)).to_string();
        let (event, remote_addr) = (what.name(), *remote_addr);
        let line = Line { time, event, lock: lock.as_str(), identity, remote_addr, what };
        serde_json::to_writer(&mut *lines, &line).expect("strings and numbers are JSON, and memory takes them");
        lines.push(b'\n');
    }
}

/// Opens for appending. A named pipe is not waited for: without a reader it fails, and is tried again later.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o640);
    }
    options.open(path)
}

#[cfg(unix)]
fn is_at(path: &Path, file: &File) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let (Ok(there), Ok(here)) = (path.metadata(), file.metadata()) else { return false };
    (there.dev(), there.ino()) == (here.dev(), here.ino())
}

#[cfg(not(unix))]
fn is_at(path: &Path, _file: &File) -> bool {
    path.exists()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands references to these")]
fn as_number<S: serde::Serializer>(token: &Token, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(token.get())
}

fn as_millis<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands references to these")]
fn as_str<S: serde::Serializer>(reason: &ReleaseReason, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(reason.as_str())
}
