//! What a history must never show, and how much it had the occasion to.
//!
//! Pure: records and audit logs in, violations out. A rule speaks of what is certain alone: every stamp errs to the
//! side on which less is claimed, so a violation is one whatever the machine was doing meanwhile.

mod audit;
mod belief;
mod end;
mod fencing;
mod order;
mod timeline;

use std::fmt;
use std::time::Duration;

use crate::history::{Audit, Record};

pub use timeline::{Dark, Hold, Reign, Timeline};

/// What was found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Verdict {
    /// What must never be.
    pub violations: Vec<Violation>,
    /// How often the rules had something to say.
    pub coverage: Coverage,
}

/// How often the rules had something to say: a rule that met nothing held nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Coverage {
    /// Grants that workers had.
    pub grants: usize,
    /// Looks that said "held".
    pub beliefs: usize,
    /// Pairs of claims on one lock of which one certainly waited when the other was made, and both were granted.
    pub ordered_pairs: usize,
    /// Locks that were let go and passed on to who waited.
    pub handovers: usize,
    /// Holds that stood in the dark for as long as their client may believe.
    pub dark_holds: usize,
    /// Holds that outlived their server.
    pub orphaned_holds: usize,
    /// Overlaps of belief across a restart, within the documented window.
    pub tolerated_overlaps: usize,
    /// Writes that the resource let in.
    pub writes: usize,
    /// Writes with a token that was not the largest any more, each refused.
    pub stale_writes_refused: usize,
    /// Grants in the audit logs.
    pub audited_grants: usize,
    /// Restarts across which tokens had to rise, and did.
    pub rising_restarts: usize,
    /// Restarts across which the documentation promises nothing about tokens.
    pub unpromised_restarts: usize,
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { grants, beliefs, ordered_pairs, dark_holds, orphaned_holds, tolerated_overlaps, .. } = self;
        let Self {
            writes, stale_writes_refused, audited_grants, rising_restarts, unpromised_restarts, handovers, ..
        } = self;
        writeln!(f, "{grants} grants to workers ({audited_grants} in the audit logs), {beliefs} looks that said held")?;
        writeln!(
            f,
            "{ordered_pairs} pairs of claims of which one certainly came first, {handovers} locks let go and passed on"
        )?;
        writeln!(f, "{dark_holds} holds cut off or stopped for longer than they may be believed in")?;
        writeln!(
            f,
            "{orphaned_holds} holds that outlived their server, {tolerated_overlaps} overlaps within the window of a restart"
        )?;
        writeln!(f, "{writes} writes let in, {stale_writes_refused} stale ones refused")?;
        write!(f, "{rising_restarts} restarts with tokens that had to rise, {unpromised_restarts} without a promise")
    }
}

/// What must never be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// Two clients believed in one lock at one instant, and one server had granted both.
    Overlap {
        /// The lock.
        lock: String,
        /// The two, by worker, claim and token.
        holds: [String; 2],
        /// For how long at least, in nanoseconds.
        for_ns: u64,
    },
    /// The same, across a restart that had a grace as long as the lease.
    OverlapDespiteGrace {
        /// The lock.
        lock: String,
        /// The two.
        holds: [String; 2],
    },
    /// A client believed later than 0.8 leases after the death of the server that had granted.
    BelievedAfterDeath {
        /// Who.
        hold: String,
        /// By how much too long, in nanoseconds.
        by_ns: u64,
    },
    /// A client believed later than 0.8 leases after it was cut off or stopped.
    BelievedInTheDark {
        /// Who.
        hold: String,
        /// By how much too long, in nanoseconds.
        by_ns: u64,
    },
    /// A client believed again after it had said that the lock is lost or released.
    BelievedAfterTheEnd {
        /// Who.
        hold: String,
    },
    /// A claim was granted before one that had certainly come earlier.
    Overtaken {
        /// The lock.
        lock: String,
        /// Who had come earlier.
        first: String,
        /// Who was granted earlier.
        second: String,
    },
    /// Most locks that were let go passed on as late as if their holders had fallen silent.
    SlowHandovers {
        /// How long it took in the middle, in nanoseconds.
        median_ns: u64,
    },
    /// Two grants bear one token.
    TokenTwice {
        /// The token.
        token: u64,
    },
    /// A later start of the server granted a smaller token, although the documentation promises that it does not.
    TokensFell {
        /// The start.
        epoch: u32,
        /// The largest token before.
        before: u64,
        /// The smallest of this start.
        after: u64,
    },
    /// A server granted within its grace.
    GrantedInGrace {
        /// Who was granted.
        hold: String,
        /// The start.
        epoch: u32,
    },
    /// An audit log says what cannot have happened.
    Audit {
        /// The start of the server.
        epoch: u32,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// A client had a grant that no audit log knows.
    Unaudited {
        /// Who.
        hold: String,
    },
    /// The resource let in a token smaller than one it had seen, or refused the largest.
    Fencing {
        /// The lock.
        lock: String,
        /// The token.
        token: u64,
        /// What the resource did.
        accepted: bool,
    },
    /// A worker that lived was not granted anything for too long after the faults.
    NotServed {
        /// Who.
        worker: String,
    },
    /// A server ended that nobody had asked to, or not in good order.
    ServerDied {
        /// The start.
        epoch: u32,
    },
    /// A worker ended that nobody had killed.
    WorkerDied {
        /// Who.
        worker: String,
    },
    /// Something was left when nobody was.
    Left {
        /// What.
        what: String,
        /// How much.
        value: u64,
        /// How much there may be.
        limit: u64,
    },
    /// The history contradicts itself: the harness or a worker is broken.
    Senseless {
        /// Where and why.
        what: String,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ns: &u64| Duration::from_nanos(*ns).as_secs_f64() * 1e3;
        match self {
            Self::Overlap { lock, holds: [a, b], for_ns } => {
                write!(f, "two believed in {lock:?} at once, for {:.1} ms at least: {a} and {b}", ms(for_ns))
            }
            Self::OverlapDespiteGrace { lock, holds: [a, b] } => {
                write!(f, "two believed in {lock:?} at once across a restart with a grace: {a} and {b}")
            }
            Self::BelievedAfterDeath { hold, by_ns } => write!(
                f,
                "{hold} believed {:.1} ms longer than 0.8 leases after the death of the server that had granted it",
                ms(by_ns)
            ),
            Self::BelievedInTheDark { hold, by_ns } => {
                write!(f, "{hold} believed {:.1} ms longer than 0.8 leases after it was cut off", ms(by_ns))
            }
            Self::BelievedAfterTheEnd { hold } => write!(f, "{hold} believed again after its end"),
            Self::Overtaken { lock, first, second } => {
                write!(f, "{second} was granted {lock:?} before {first}, which had waited when it came")
            }
            Self::SlowHandovers { median_ns } => {
                write!(f, "a lock that was let go took {:.1} ms to pass on, in the middle", ms(median_ns))
            }
            Self::TokenTwice { token } => write!(f, "the token {token} was granted twice"),
            Self::TokensFell { epoch, before, after } => {
                write!(f, "the server's start {epoch} granted the token {after} after {before}")
            }
            Self::GrantedInGrace { hold, epoch } => {
                write!(f, "{hold} was granted within the grace of the server's start {epoch}")
            }
            Self::Audit { epoch, line, what } => write!(f, "audit-{epoch}.jsonl, line {line}: {what}"),
            Self::Unaudited { hold } => write!(f, "no audit log knows the grant of {hold}"),
            Self::Fencing { lock, token, accepted: true } => {
                write!(f, "the resource {lock:?} let the stale token {token} in")
            }
            Self::Fencing { lock, token, accepted: false } => {
                write!(f, "the resource {lock:?} refused the token {token}, which is the largest")
            }
            Self::NotServed { worker } => write!(f, "{worker} was not served after the faults"),
            Self::ServerDied { epoch } => write!(f, "the server died by itself: see server-{epoch}.log"),
            Self::WorkerDied { worker } => write!(f, "{worker} died by itself: see its log"),
            Self::Left { what, value, limit } => {
                write!(f, "at the end there were {what}: {value}, and may be {limit}")
            }
            Self::Senseless { what } => write!(f, "the history makes no sense: {what}"),
        }
    }
}

/// Looks for what must never be.
pub fn check(records: &[Record], audits: &[Audit]) -> Verdict {
    let mut verdict = Verdict::default();
    let timeline = Timeline::new(records, audits, &mut verdict.violations);
    verdict.coverage.grants = timeline.holds.len();
    verdict.coverage.beliefs = timeline.holds.iter().map(|hold| hold.beliefs).sum();
    belief::check(&timeline, &mut verdict);
    order::check(&timeline, &mut verdict);
    audit::check(&timeline, audits, &mut verdict);
    fencing::check(records, &mut verdict);
    end::check(records, &timeline, &mut verdict);
    verdict
}
