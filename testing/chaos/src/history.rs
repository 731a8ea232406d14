//! What happened, one JSON object a line: what the workers say and what the harness did to them, on one clock.
//!
//! Every instant is `CLOCK_BOOTTIME` in nanoseconds. All processes run on one machine, so this is true time, whatever
//! the wall clock is made to say. A stamp always errs to the side on which it claims less: see [`What`].

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

/// One line of a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// When, in nanoseconds of `CLOCK_BOOTTIME`.
    pub t: u64,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
///
/// A worker is one life of one place among the clients: `w3.2` is the second process in the place `w3`. It numbers its
/// claims; one claim is one connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum What {
    /// A worker is about to claim: stamped before anything was dialled, so the claim arrived at the server later.
    Ask {
        /// Who.
        worker: String,
        /// The number of the claim.
        claim: u64,
        /// The lock.
        lock: String,
        /// The lease, in milliseconds.
        lease_ms: u64,
    },
    /// A worker was told that it waits: stamped after that, so the claim had arrived.
    Queued {
        /// Who.
        worker: String,
        /// Which claim.
        claim: u64,
    },
    /// The client handed the lock out: stamped after that, so the grant is older.
    Granted {
        /// Who.
        worker: String,
        /// Which claim.
        claim: u64,
        /// The fencing token.
        token: u64,
    },
    /// The client answered "held": stamped **before** it was asked. What is held at the answer and was held at the
    /// grant was held at this instant too, however long the process was stopped between the stamp and the answer.
    Believed {
        /// Who.
        worker: String,
        /// Which claim.
        claim: u64,
    },
    /// The worker keeps this claim until it is told to let go.
    Keeping {
        /// Who.
        worker: String,
        /// Which claim.
        claim: u64,
    },
    /// The worker is about to let the lock go.
    Releasing {
        /// Who.
        worker: String,
        /// Which claim.
        claim: u64,
    },
    /// The client said that the lock is lost.
    Lost {
        /// Who.
        worker: String,
        /// Which claim.
        claim: u64,
        /// The client's name for the reason.
        reason: String,
    },
    /// The claim came to nothing.
    Failed {
        /// Who.
        worker: String,
        /// Which claim.
        claim: u64,
        /// The client's name for the kind of failure.
        kind: String,
    },
    /// The worker wrote to what the lock guards.
    Write {
        /// Who.
        worker: String,
        /// Which claim.
        claim: u64,
        /// The lock.
        lock: String,
        /// The token that it showed.
        token: u64,
    },
    /// The guarded resource answered a write.
    Fenced {
        /// Who had written.
        worker: String,
        /// The lock.
        lock: String,
        /// The token that was shown.
        token: u64,
        /// Whether it was let in.
        accepted: bool,
    },
    /// A worker process ended; `killed` where the harness did that.
    Gone {
        /// Who.
        worker: String,
        /// Whether it was the harness.
        killed: bool,
    },
    /// A server is about to be started.
    Starting {
        /// The number of the start; its audit log bears it.
        epoch: u32,
        /// How long it grants nobody, in milliseconds.
        grace_ms: u64,
        /// Whether it keeps a token file.
        token_file: bool,
    },
    /// It takes clients.
    Serving {
        /// Which start.
        epoch: u32,
    },
    /// It is about to be ended.
    Ending {
        /// Which start.
        epoch: u32,
    },
    /// No client hears it from now on, and it lives. What it grants after this is known to nobody.
    Unreachable {
        /// Which start.
        epoch: u32,
    },
    /// It has ended.
    Dead {
        /// Which start.
        epoch: u32,
        /// How.
        how: Death,
    },
    /// The server's wall clock is off by so many seconds from now on.
    Stepped {
        /// From the real one.
        offset_s: i64,
    },
    /// A fault has begun.
    Injected {
        /// Its number.
        fault: u32,
        /// Its class.
        class: String,
        /// Whom it is about; nobody in particular for a fault of the server.
        worker: Option<String>,
        /// The claim that it is about.
        claim: Option<u64>,
        /// The lock that it is about.
        lock: Option<String>,
        /// Whether it is over before anybody has to notice.
        #[serde(default)]
        brief: bool,
    },
    /// It is over.
    Healed {
        /// Which.
        fault: u32,
        /// What the harness saw of it: packets dropped, bytes held up, connections refused; 1 where it needs no proof.
        effect: u64,
    },
    /// Nothing that a worker, or anybody, sent after `from` was answered before `to`.
    Dark {
        /// Whom it is about; everybody without a name.
        worker: Option<String>,
        /// Stamped after it had begun.
        from: u64,
        /// Stamped before it ended.
        to: u64,
    },
    /// The last fault is over.
    FaultsOver {
        /// The workers that live.
        living: Vec<String>,
        /// Within how long each must have been served, in milliseconds.
        bound_ms: u64,
    },
    /// What was measured when nobody was left, and what it may be at most.
    AtEnd {
        /// What.
        what: String,
        /// What it is.
        value: u64,
        /// What it may be.
        limit: u64,
    },
}

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Death {
    /// It was asked to stop, and did in good order.
    Stopped,
    /// It was killed.
    Killed,
    /// Nobody asked it to, or it did not end in good order.
    ByItself,
}

/// One line of an audit log, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct AuditLine {
    /// By the server's wall clock.
    #[serde(default)]
    pub time: String,
    /// `granted` or `released`, or one of the others.
    pub event: String,
    /// The lock.
    pub lock: String,
    /// The token of the grant.
    #[serde(default)]
    pub token: u64,
    /// How long the client had waited, in milliseconds.
    #[serde(default)]
    pub wait_ms: u64,
    /// How long it had held, in milliseconds.
    #[serde(default)]
    pub held_ms: u64,
}

/// The audit log of one start of the server.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// Which start.
    pub epoch: u32,
    /// Its lines.
    pub lines: Vec<AuditLine>,
    /// The number of the first line that cannot be read, where there is one.
    pub unreadable: Option<usize>,
}

impl Audit {
    /// Reads the text of an audit log. A last line without its end is none: its server was killed as it wrote it.
    pub fn parse(epoch: u32, text: &str) -> Self {
        let mut audit = Self { epoch, lines: Vec::new(), unreadable: None };
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for (number, line) in whole.lines().enumerate() {
            match serde_json::from_str(line) {
                Ok(line) => audit.lines.push(line),
                Err(_) => audit.unreadable = audit.unreadable.or(Some(number + 1)),
            }
        }
        audit
    }
}

/// Takes out of the logs what nobody was told: a server that no client reaches goes on granting to those who were in
/// its queues. Its tokens may be those of a server that has taken its place, and show nothing.
pub fn forget_unheard(records: &[Record], audits: &mut [Audit]) {
    let granted = records.iter().filter_map(|record| {
        let What::Granted { token, .. } = record.what else { return None };
        Some(token)
    });
    let told: HashSet<u64> = granted.collect();
    for record in records {
        let What::Unreachable { epoch } = record.what else { continue };
        let others = audits.iter().filter(|audit| audit.epoch != epoch).flat_map(|audit| &audit.lines);
        let others: HashSet<u64> = others.map(|line| line.token).collect();
        let is_heard = |line: &AuditLine| told.contains(&line.token) && !others.contains(&line.token);
        if let Some(audit) = audits.iter_mut().find(|audit| audit.epoch == epoch) {
            audit.lines.retain(is_heard);
        }
    }
}

/// Reads a history.
///
/// # Errors
/// The first line that is none, by its number.
pub fn parse(text: &str) -> Result<Vec<Record>, String> {
    let record = |(number, line)| serde_json::from_str(line).map_err(|error| format!("line {}: {error}", number + 1));
    text.lines().enumerate().map(record).collect()
}
