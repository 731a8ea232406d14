//! The audit log: who was granted what and how it ended, one JSON object a line.
//!
//! Events are formed under the shard's lock, so that their order is the engine's, and put into a bounded queue in
//! memory; one thread, which is woken after the lock, writes them. Nobody waits
//! for the sink: where the queue is full an event is dropped and counted. A line is written whole or, after a failure
//! in its middle, gone on with where it broke off; a new file begins with that line from its start.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;
use tokio_util::sync::CancellationToken;

use crate::audit_sink::{Reopened, Target};
use crate::event::Event;
use crate::sync::mpsc::{self, SyncSender};
use crate::sync::{AtomicBool, Condvar, Mutex, start_thread};

/// How many events may wait for the writer.
const QUEUE_EVENTS: usize = 16_384;

/// With so many bytes of lines that the sink has not taken, the writer takes no more events.
const BATCH_BYTES: usize = 64 << 10;

/// How many events the writer takes at once.
const BATCH_EVENTS: usize = 256;

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

/// The way to the writer.
#[derive(Debug)]
pub(crate) struct Audit {
    desk: Arc<Desk>,
    on_failure: AuditFailure,
    dropped: Counter,
    /// Cancelled when the server must not go on.
    failed: CancellationToken,
}

/// What lies ready for the writer.
#[derive(Debug, Default)]
struct Desk {
    orders: Mutex<Orders>,
    changed: Condvar,
    /// Events lie there that the writer was not woken for.
    is_unannounced: AtomicBool,
}

#[derive(Debug, Default)]
struct Orders {
    events: VecDeque<Event>,
    reopen: bool,
    /// Told when all is written.
    finish: Option<SyncSender<()>>,
    /// All sessions are being ended: there are no more events to come than there are sessions, and each is wanted.
    is_closing: bool,
    is_over: bool,
}

impl Audit {
    /// Opens the sink and starts its writer. `failed` is cancelled where [`AuditFailure::Exit`] wants the server to
    /// stop.
    ///
    /// # Errors
    /// The file cannot be opened. A named pipe that nobody reads yet is an error for [`AuditFailure::Exit`] alone.
    pub(crate) fn start(log: &AuditLog, dropped: Counter, failed: CancellationToken) -> io::Result<Self> {
        let AuditLog { sink, on_failure } = log;
        let desk = Arc::new(Desk::default());
        let writer = Writer {
            desk: Arc::clone(&desk),
            target: Target::open(sink, *on_failure)?,
            is_reopening: false,
            fails: (*on_failure == AuditFailure::Exit).then(|| failed.clone()),
            lines: Vec::new(),
            begun: 0,
            trouble: None,
        };
        start_thread("audit", move || writer.run())?;
        Ok(Self { desk, on_failure: *on_failure, dropped, failed })
    }

    /// Puts an event down in memory, or drops and counts it. Never waits; [`wake`](Self::wake) has it written.
    pub(crate) fn record(&self, event: Event) {
        let mut orders = self.desk.orders.lock();
        if orders.events.len() < QUEUE_EVENTS || orders.is_closing {
            orders.events.push_back(event);
            self.desk.is_unannounced.store(true, Ordering::Release);
            return;
        }
        drop(orders);
        self.dropped.inc();
        if self.on_failure == AuditFailure::Exit {
            self.failed.cancel();
        }
    }

    /// Has written what was recorded, if anything was: a heartbeat wakes nobody. A system call if the writer sleeps, so
    /// for no lock to wait for.
    pub(crate) fn announce(&self) {
        if self.desk.is_unannounced.load(Ordering::Acquire) && self.desk.is_unannounced.swap(false, Ordering::AcqRel) {
            self.wake();
        }
    }

    fn wake(&self) {
        self.desk.changed.notify_one();
    }

    /// Drops no event any more: all sessions are about to end, and none begins.
    pub(crate) fn note_closing(&self) {
        self.desk.orders.lock().is_closing = true;
    }

    /// Opens the file anew, after it was renamed.
    pub(crate) fn reopen(&self) {
        self.desk.orders.lock().reopen = true;
        self.wake();
    }

    /// Waits, at most so long, until all that was recorded is written; says whether it is.
    pub(crate) fn finish(&self, patience: Duration) -> bool {
        let (done, finished) = mpsc::sync_channel(1);
        self.desk.orders.lock().finish = Some(done);
        self.wake();
        finished.recv_timeout(patience).is_ok()
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.desk.orders.lock().is_over = true;
        self.wake();
    }
}

/// The one that writes.
struct Writer {
    desk: Arc<Desk>,
    target: Target,
    /// The file is to be opened anew, and could not be so far.
    is_reopening: bool,
    fails: Option<CancellationToken>,
    /// Whole lines that the sink has not wholly taken.
    lines: Vec<u8>,
    /// How many bytes of the first of them the sink has.
    begun: usize,
    /// Since when the sink fails.
    trouble: Option<Instant>,
}

impl Writer {
    fn run(mut self) {
        let mut events = Vec::new();
        loop {
            let Taken { finish, is_over } = self.take(&mut events);
            for event in events.drain(..) {
                event.append_for_audit(&mut self.lines);
            }
            self.care();
            self.write();
            if let Some(done) = finish {
                self.tell_finished(done);
            }
            // What the sink does not take now it would not take later either.
            if is_over && (self.lines.is_empty() || self.trouble.is_some()) {
                return;
            }
        }
    }

    /// Waits for something to do, and takes as many events as there is room for. The lock is not held for longer than
    /// that.
    fn take(&mut self, events: &mut Vec<Event>) -> Taken {
        let is_full = self.lines.len() >= BATCH_BYTES;
        if is_full && self.trouble.is_some() {
            self.target.wait_for_room(CARE_INTERVAL);
        }
        let mut orders = self.desk.orders.lock();
        if !is_full {
            if orders.is_empty() {
                self.desk.changed.wait_for(&mut orders, CARE_INTERVAL);
            }
            let room = orders.events.len().min(BATCH_EVENTS);
            events.extend(orders.events.drain(..room));
        }
        self.is_reopening |= std::mem::take(&mut orders.reopen);
        let finish = if orders.events.is_empty() { orders.finish.take() } else { None };
        Taken { finish, is_over: orders.is_over && orders.events.is_empty() }
    }

    /// Says that all is written; where it is not, that is still to come.
    fn tell_finished(&self, done: SyncSender<()>) {
        if self.lines.is_empty() {
            let _ = done.try_send(());
        } else {
            self.desk.orders.lock().finish = Some(done);
        }
    }

    /// Opens the file anew where that was asked for, or where it was deleted. One that was renamed is somebody's who
    /// will ask for it.
    fn care(&mut self) {
        if self.target.forget_deleted() {
            self.is_reopening = true;
        }
        if self.begun > 0 && self.target.is_shorter_than(self.begun) {
            self.begun = 0;
        }
        if !self.is_reopening {
            return;
        }
        // The old file stays where the new one cannot be had.
        match self.target.reopen() {
            Ok(Reopened::Same) => self.is_reopening = false,
            Ok(Reopened::Another) => {
                self.is_reopening = false;
                self.begun = 0;
            }
            Err(error) => self.note_trouble(&error),
        }
    }

    fn write(&mut self) {
        while !self.lines.is_empty() {
            match self.target.write(&self.lines[self.begun..]) {
                Ok(0) => return self.note_trouble(&io::ErrorKind::WriteZero.into()),
                Ok(written) => self.note_written(written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !self.target.wait_for_room(CARE_INTERVAL) {
                        return self.note_trouble(&error);
                    }
                }
                Err(error) => return self.note_trouble(&error),
            }
        }
        if self.is_reopening {
            return;
        }
        if let Some(since) = self.trouble.take() {
            tracing::info!(after_ms = since.elapsed().as_millis(), "the audit log is written again");
        }
    }

    /// Forgets the lines that are written to their ends.
    fn note_written(&mut self, bytes: usize) {
        let taken = self.begun + bytes;
        let whole = self.lines[..taken].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.lines.drain(..whole);
        self.begun = taken - whole;
    }

    fn note_trouble(&mut self, error: &io::Error) {
        if self.trouble.is_none() {
            tracing::error!(%error, sink = %self.target.sink(), "the audit log cannot be written");
            self.trouble = Some(Instant::now());
        }
        // A reader that is slow has failed only when events are dropped for it.
        if let Some(fails) = &self.fails
            && error.kind() != io::ErrorKind::WouldBlock
        {
            fails.cancel();
        }
    }
}

/// What was taken besides events.
struct Taken {
    /// To be told when all is written.
    finish: Option<SyncSender<()>>,
    /// There will be no more.
    is_over: bool,
}

impl Orders {
    fn is_empty(&self) -> bool {
        let Self { events, reopen, finish, is_closing: _, is_over } = self;
        events.is_empty() && !reopen && finish.is_none() && !is_over
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs::{self, File};
    use std::net::{Ipv4Addr, SocketAddr};
    use std::sync::Arc;
    use std::time::SystemTime;

    use monolock_core::LockName;
    use prometheus_client::metrics::counter::Counter;
    use tokio_util::sync::CancellationToken;

    use super::{Audit, AuditFailure, AuditLog, AuditSink, QUEUE_EVENTS, Target, Writer};
    use crate::event::{Event, What};

    fn event() -> Event {
        Event {
            time: SystemTime::UNIX_EPOCH,
            lock: LockName::new("jobs").expect("a name"),
            session: None,
            identity: "".into(),
            remote_addr: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
            what: What::Denied {},
        }
    }

    #[test]
    fn b63_a_file_that_was_emptied_amid_a_line_begins_with_the_whole_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let lines = "{\"event\":\"granted\"}\n{\"event\":\"released\"}\n";
        let sink = AuditSink::File(path.clone());
        let mut writer = Writer {
            desk: Arc::default(),
            target: Target::open(&sink, AuditFailure::Continue).unwrap(),
            is_reopening: false,
            fails: None,
            lines: lines.into(),
            begun: 0,
            trouble: None,
        };
        // The disk was full in the middle of the first line.
        let begun = writer.target.write(&writer.lines[..7]).unwrap();
        writer.note_written(begun);
        File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
        writer.care();
        writer.write();
        assert_eq!(fs::read_to_string(&path).unwrap(), lines);
    }

    #[test]
    fn b64_a_stop_ends_more_sessions_than_the_queue_has_room_for_and_drops_none_of_their_ends() {
        let dropped = Counter::default();
        let log = AuditLog { sink: AuditSink::File("/dev/full".into()), on_failure: AuditFailure::Continue };
        let audit = Audit::start(&log, dropped.clone(), CancellationToken::new()).unwrap();
        // What the writer takes is less than this.
        (0..2 * QUEUE_EVENTS).for_each(|_| audit.record(event()));
        let before = dropped.get();
        assert!(before > 0);
        audit.note_closing();
        (0..2 * QUEUE_EVENTS).for_each(|_| audit.record(event()));
        assert_eq!(dropped.get(), before);
    }
}
