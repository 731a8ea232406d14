//! The records put in order: which claim was held from when to when, and which server had granted it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

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
    /// When the worker said that it ended.
    pub ended: Option<u64>,
    /// Why it was lost; `None` where it was let go or its worker was killed.
    pub lost: Option<String>,
    /// Which start of the server granted it.
    pub epoch: Option<u32>,
}

impl Hold {
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
                write!(f, ", believed from {:.6} to {:.6} s)", from as f64 / 1e9, to as f64 / 1e9)
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
        let mut claims: HashMap<(&str, u64), Claimed> = HashMap::new();
        let mut problems = Vec::new();
        let mut senseless = |t: u64, what: &What, why: &str| {
            problems.push(Violation::Senseless { what: format!("at {t}: {what:?}: {why}") });
        };
        for Record { t, what } in records {
            match what {
                What::Ask { worker, claim, lock, lease_ms } => {
                    let claimed = Claimed {
                        lock: lock.clone(),
                        lease_ns: lease_ms * 1_000_000,
                        asked: *t,
                        queued: None,
                        hold: None,
                    };
                    if claims.insert((worker, *claim), claimed).is_some() {
                        senseless(*t, what, "there is such a claim already");
                    }
                }
                What::Queued { worker, claim } => match claims.get_mut(&(worker.as_str(), *claim)) {
                    Some(claimed) => claimed.queued = Some(claimed.queued.unwrap_or(*t)),
                    None => senseless(*t, what, "there is no such claim"),
                },
                What::Granted { worker, claim, token } => match claims.get_mut(&(worker.as_str(), *claim)) {
                    Some(claimed) if claimed.hold.is_none() => {
                        claimed.hold = Some(timeline.holds.len());
                        timeline.holds.push(Hold {
                            worker: worker.clone(),
                            claim: *claim,
                            lock: claimed.lock.clone(),
                            lease_ns: claimed.lease_ns,
                            token: *token,
                            asked: claimed.asked,
                            arrived_by: claimed.queued.unwrap_or(*t).min(*t),
                            granted_by: *t,
                            believed: None,
                            beliefs: 0,
                            ended: None,
                            lost: None,
                            epoch: None,
                        });
                    }
                    Some(_) => senseless(*t, what, "it was granted already"),
                    None => senseless(*t, what, "there is no such claim"),
                },
                What::Believed { worker, claim }
                | What::Releasing { worker, claim }
                | What::Lost { worker, claim, .. } => {
                    let hold = claims.get(&(worker.as_str(), *claim)).and_then(|claimed| claimed.hold);
                    let Some(hold) = hold.map(|hold| &mut timeline.holds[hold]) else {
                        // A place in the queue can be lost too.
                        if !matches!(what, What::Lost { .. }) {
                            senseless(*t, what, "nothing was granted");
                        }
                        continue;
                    };
                    if let What::Believed { .. } = what {
                        if hold.ended.is_some() {
                            violations.push(Violation::BelievedAfterTheEnd { hold: hold.to_string() });
                        }
                        let from = hold.believed.map_or(*t, |(from, _)| from);
                        hold.believed = Some((from, *t));
                        hold.beliefs += 1;
                    } else {
                        hold.ended = Some(*t);
                        if let What::Lost { reason, .. } = what {
                            hold.lost = Some(reason.clone());
                        }
                    }
                }
                What::Starting { epoch, grace_ms, token_file } => {
                    let reign = Reign {
                        starting: *t,
                        grace_ns: grace_ms * 1_000_000,
                        token_file: *token_file,
                        ending: None,
                        dead: None,
                    };
                    timeline.reigns.insert(*epoch, reign);
                }
                What::Ending { epoch } => {
                    if let Some(reign) = timeline.reigns.get_mut(epoch) {
                        reign.ending = Some(*t);
                    }
                }
                What::Dead { epoch, how } => {
                    if let Some(reign) = timeline.reigns.get_mut(epoch) {
                        reign.dead = Some((*t, *how));
                    }
                }
                What::Dark { worker, from, to } => {
                    timeline.darkness.push(Dark { place: worker.clone(), from: *from, to: *to });
                }
                What::Stepped { offset_s } => timeline.steps.push((*t, *offset_s)),
                What::Keeping { .. }
                | What::Failed { .. }
                | What::Write { .. }
                | What::Fenced { .. }
                | What::Gone { .. }
                | What::Serving { .. }
                | What::Injected { .. }
                | What::Healed { .. }
                | What::FaultsOver { .. }
                | What::AtEnd { .. } => {}
            }
        }
        violations.append(&mut problems);
        timeline.holds.sort_by_key(|hold| hold.token);
        timeline.attribute(audits);
        timeline
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

    /// How a hold came to be known, for a name.
    pub fn hold(&self, worker: &str, claim: u64) -> Option<&Hold> {
        self.holds.iter().find(|hold| hold.worker == worker && hold.claim == claim)
    }

    /// By how many seconds the server's wall clock was off.
    pub(crate) fn offset_at(&self, t: u64) -> i64 {
        self.steps.iter().take_while(|(from, _)| *from <= t).last().map_or(0, |(_, offset)| *offset)
    }
}
