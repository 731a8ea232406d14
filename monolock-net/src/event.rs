//! What happens to locks, in the words in which it is told: one JSON object an event.
//!
//! It is formed once, where it happens. No name or identity can break its line, nor do anything to a terminal.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use monolock_core::{LockName, ReleaseReason, Token};
use serde::Serialize;

/// What is put down.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) time: SystemTime,
    pub(crate) lock: LockName,
    /// Whose claim it was; a claim that was denied is no session.
    pub(crate) session: Option<u64>,
    pub(crate) identity: Arc<str>,
    pub(crate) remote_addr: SocketAddr,
    pub(crate) what: What,
}

#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum What {
    Queued {
        /// How many claims stood before it, the holder's included.
        ahead: usize,
    },
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
    WaiterGone {
        #[serde(rename = "wait_ms", serialize_with = "as_millis")]
        waited: Duration,
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
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Queued { .. } => "queued",
            Self::WaiterGone { .. } => "waiter_gone",
            Self::Granted { .. } => "granted",
            Self::Released { .. } => "released",
            Self::Denied {} => "denied",
            Self::ForceRelease { .. } => "force_release",
            Self::KickWaiter {} => "kick_waiter",
        }
    }

    /// Whether the audit log has it: it tells of grants and of deeds, and not of queues.
    pub(crate) const fn is_for_audit(&self) -> bool {
        !matches!(self, Self::Queued { .. } | Self::WaiterGone { .. })
    }

    /// Whether the stream of events has it: what comes of an administrator's deed is told there with its reason.
    pub(crate) const fn is_for_readers(&self) -> bool {
        !matches!(self, Self::ForceRelease { .. } | Self::KickWaiter {})
    }
}

impl Event {
    /// Appends the event as one line of JSON, as the audit log has it: without the session.
    pub(crate) fn append_for_audit(&self, lines: &mut Vec<u8>) {
        self.append(lines, None);
    }

    /// Appends the event as one line of JSON, as readers have it.
    pub(crate) fn append_for_readers(&self, lines: &mut Vec<u8>) {
        self.append(lines, self.session);
    }

    fn append(&self, lines: &mut Vec<u8>, session: Option<u64>) {
        #[derive(Serialize)]
        struct Line<'a> {
            time: String,
            event: &'static str,
            lock: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            session: Option<u64>,
            identity: &'a str,
            remote_addr: SocketAddr,
            #[serde(flatten)]
            what: &'a What,
        }
        let Self { time, lock, session: _, identity, remote_addr, what } = self;
        let time = rfc3339(*time);
        let (event, remote_addr) = (what.name(), *remote_addr);
        let line = Line { time, event, lock: lock.as_str(), session, identity, remote_addr, what };
        let mut serializer = serde_json::Serializer::with_formatter(&mut *lines, Printable);
        line.serialize(&mut serializer).expect("strings and numbers are JSON, and memory takes them");
        lines.push(b'\n');
    }
}

/// JSON in which what does not print is escaped: control characters of all kinds, and marks that turn the direction of
/// text.
struct Printable;

impl serde_json::ser::Formatter for Printable {
    fn write_string_fragment<W: io::Write + ?Sized>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let is_printable = |c: char| c.is_ascii_graphic() || c == ' ' || c.escape_debug().len() == 1;
        let mut rest = fragment;
        while let Some(at) = rest.find(|c| !is_printable(c)) {
            writer.write_all(&rest.as_bytes()[..at])?;
            let mut after = rest[at..].chars();
            for unit in after.next().unwrap_or_default().encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = after.as_str();
        }
        writer.write_all(rest.as_bytes())
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands references to these")]
fn as_number<S: serde::Serializer>(token: &Token, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(token.get())
}

/// A time in UTC, to the millisecond.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(time.max(SystemTime::UNIX_EPOCH)).to_string()
}

/// A duration as a number of whole milliseconds.
pub(crate) fn as_millis<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands references to these")]
fn as_str<S: serde::Serializer>(reason: &ReleaseReason, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(reason.as_str())
}
