//! The records put in order: which claim was held from when to when, and which server had granted it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use crate::check::Violation;
use crate::history::{Audit, Death, Record, What};

/// The whole run.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Timeline {
    /// Every grant that a worker had, in the order of the tokens.
    pub holds: Vec<Hold>,
    /// Every start of the server.
    pub reigns: BTreeMap<u32, Reign>,
    /// Whom nobody could answer, from when to when.
    pub darkness: Vec<Dark>,
    /// From when on the server's wall clock was off by how many seconds.
    pub steps: Vec<(u64, i64)>,
}

/// A grant that a worker had.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hold {
    /// Who.
    pub worker: String,
    /// Which of its claims.
    pub claim: u64,
    /// The lock.
    pub lock: String,
    /// The lease, in nanoseconds.
    pub lease_ns: u64,
    /// The fencing token.
    pub token: u64,
    /// The claim arrived no earlier.
    pub asked: u64,
    /// The claim had arrived by then.
    pub arrived_by: u64,
    /// It was granted by then.
    pub granted_by: u64,
    /// Believed in from the first instant to the second, at least.
    pub believed: Option<(u64, u64)>,
    /// How many looks said so.
    pub beliefs: usize,
    /// When the worker said that it keeps it until it is told to let go.
    pub kept: Option<u64>,
    /// When the worker said that it ended.
    pub ended: Option<u64>,
    /// Why it was lost; `None` where it was let go or its worker was killed.
    pub lost: Option<String>,
    /// Which start of the server granted it.
    pub epoch: Option<u32>,
}

impl Hold {
    fn new(worker: &str, claim: u64, token: u64, granted_by: u64, claimed: &Claimed) -> Self {
        Self {
            worker: worker.to_owned(),
            claim,
            lock: claimed.lock.clone(),
            lease_ns: claimed.lease_ns,
            token,
            asked: claimed.asked,
            arrived_by: claimed.queued.unwrap_or(granted_by).min(granted_by),
            granted_by,
            believed: None,
            beliefs: 0,
            kept: None,
            ended: None,
            lost: None,
            epoch: None,
        }
    }

    /// How long a client may believe without an answer: 0.8 leases.
    pub const fn patience_ns(&self) -> u64 {
        self.lease_ns / 5 * 4
    }

    /// The place of its worker: `w3` of `w3.2`.
    pub fn place(&self) -> &str {
        place(&self.worker)
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (claim {}, token {}", self.worker, self.claim, self.token)?;
        match self.believed {
            Some((from, to)) => {
                let seconds = |t| Duration::from_nanos(t).as_secs_f64();
                write!(f, ", believed from {:.6} to {:.6} s)", seconds(from), seconds(to))
            }
            None => f.write_str(")"),
        }
    }
}

/// One start of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reign {
    /// Stamped before it was started.
    pub starting: u64,
    /// How long it grants nobody, in nanoseconds.
    pub grace_ns: u64,
    /// Whether it kept a token file.
    pub token_file: bool,
    /// From when on no client heard it, where that was before its death.
    pub unreachable: Option<u64>,
    /// When its end began.
    pub ending: Option<u64>,
    /// When it had ended, and how.
    pub dead: Option<(u64, Death)>,
}

/// From when to when nobody could answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dark {
    /// Whom; everybody without a name.
    pub place: Option<String>,
    /// It had begun.
    pub from: u64,
    /// It had not ended.
    pub to: u64,
}

/// The place of a worker: `w3` of `w3.2`.
pub(crate) fn place(worker: &str) -> &str {
    worker.split_once('.').map_or(worker, |(place, _)| place)
}

/// A claim that was made.
#[derive(Debug)]
struct Claimed {
    lock: String,
    lease_ns: u64,
    asked: u64,
    queued: Option<u64>,
    hold: Option<usize>,
}

impl Timeline {
    /// Puts records in order. What contradicts itself is added to `violations`.
    pub fn new(records: &[Record], audits: &[Audit], violations: &mut Vec<Violation>) -> Self {
        let mut timeline = Self::default();
        let mut claims = HashMap::new();
        for Record { t, what } in records {
            timeline.see_server(*t, what);
            if let Err(violation) = timeline.see_claim(*t, what, &mut claims) {
                violations.push(violation);
            }
        }
        timeline.holds.sort_by_key(|hold| hold.token);
        timeline.attribute(audits);
        timeline
    }

    /// Takes in what a worker says of a claim.
    fn see_claim<'a>(
        &mut self,
        t: u64,
        what: &'a What,
        claims: &mut HashMap<(&'a str, u64), Claimed>,
    ) -> Result<(), Violation> {
        let senseless = |why: &str| Violation::Senseless { what: format!("at {t}: {what:?}: {why}") };
        if let What::Ask { worker, claim, lock, lease_ms } = what {
            let (lock, lease_ns) = (lock.clone(), lease_ms * 1_000_000);
            let claimed = Claimed { lock, lease_ns, asked: t, queued: None, hold: None };
            let known = claims.insert((worker, *claim), claimed);
            return if known.is_none() { Ok(()) } else { Err(senseless("there is such a claim already")) };
        }
        let (What::Queued { worker, claim }
        | What::Granted { worker, claim, .. }
        | What::Believed { worker, claim }
        | What::Keeping { worker, claim }
        | What::Releasing { worker, claim }
        | What::Lost { worker, claim, .. }) = what
        else {
            return Ok(());
        };
        let claimed = claims.get_mut(&(worker.as_str(), *claim)).ok_or_else(|| senseless("there is no such claim"))?;
        let hold = claimed.hold.map(|hold| &mut self.holds[hold]);
        match (what, hold) {
            (What::Queued { .. }, _) => claimed.queued = Some(claimed.queued.unwrap_or(t)),
            (What::Granted { token, .. }, None) => {
                claimed.hold = Some(self.holds.len());
                self.holds.push(Hold::new(worker, *claim, *token, t, claimed));
            }
            (What::Granted { .. }, Some(_)) => return Err(senseless("it was granted already")),
            (What::Believed { .. }, Some(hold)) => {
                hold.believed = Some((hold.believed.map_or(t, |(from, _)| from), t));
                hold.beliefs += 1;
                if hold.ended.is_some() {
                    return Err(Violation::BelievedAfterTheEnd { hold: hold.to_string() });
                }
            }
            (What::Keeping { .. }, Some(hold)) => hold.kept = Some(t),
            (What::Lost { reason, .. }, Some(hold)) => {
                hold.ended = Some(t);
                hold.lost = Some(reason.clone());
            }
            // A place in the queue can be lost too.
            (What::Lost { .. }, None) => {}
            (_, Some(hold)) => hold.ended = Some(t),
            (_, None) => return Err(senseless("nothing was granted")),
        }
        Ok(())
    }

    /// Takes in what the harness did to the server and to the network.
    fn see_server(&mut self, t: u64, what: &What) {
        if let What::Starting { epoch, grace_ms, token_file } = what {
            let (grace_ns, token_file) = (grace_ms * 1_000_000, *token_file);
            self.reigns.insert(
                *epoch,
                Reign { starting: t, grace_ns, token_file, unreachable: None, ending: None, dead: None },
            );
        }
        if let What::Unreachable { epoch } = what
            && let Some(reign) = self.reigns.get_mut(epoch)
        {
            reign.unreachable = Some(t);
        }
        if let What::Ending { epoch } = what
            && let Some(reign) = self.reigns.get_mut(epoch)
        {
            reign.ending = Some(t);
        }
        if let What::Dead { epoch, how } = what
            && let Some(reign) = self.reigns.get_mut(epoch)
        {
            reign.dead = Some((t, *how));
        }
        if let What::Dark { worker, from, to } = what {
            self.darkness.push(Dark { place: worker.clone(), from: *from, to: *to });
        }
        if let What::Stepped { offset_s } = what {
            self.steps.push((t, *offset_s));
        }
    }

    /// Finds out which start of the server had granted what: the audit logs say so. Where the last lines of a server
    /// that was killed are missing, the time does.
    fn attribute(&mut self, audits: &[Audit]) {
        let granted = |audit: &Audit| -> HashSet<u64> {
            let grants = audit.lines.iter().filter(|line| line.event == "granted");
            grants.map(|line| line.token).collect()
        };
        let known: Vec<(u32, HashSet<u64>)> = audits.iter().map(|audit| (audit.epoch, granted(audit))).collect();
        for hold in &mut self.holds {
            let audited = known.iter().find(|(_, tokens)| tokens.contains(&hold.token));
            hold.epoch = audited.map(|(epoch, _)| *epoch).or_else(|| {
                let before = |(_, reign): &(&u32, &Reign)| reign.starting <= hold.granted_by;
                self.reigns.iter().filter(before).map(|(epoch, _)| *epoch).next_back()
            });
        }
    }

    /// By how many seconds the server's wall clock was off.
    pub(crate) fn offset_at(&self, t: u64) -> i64 {
        self.steps.iter().take_while(|(from, _)| *from <= t).last().map_or(0, |(_, offset)| *offset)
    }
}
