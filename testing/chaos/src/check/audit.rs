//! The audit logs: each grant has its end before the next, and tokens rise, across restarts too where that is promised.

use std::collections::{HashMap, HashSet};

use crate::check::timeline::{Reign, Timeline};
use crate::check::{Verdict, Violation};
use crate::history::{Audit, AuditLine, Death};

/// How long before its death a server that is killed may have granted what is not in its audit log: a busy machine
/// keeps the thread waiting that writes it.
const UNWRITTEN_NS: u64 = 5_000_000_000;

const SECOND_NS: i128 = 1_000_000_000;

pub(super) fn check(timeline: &Timeline, audits: &[Audit], verdict: &mut Verdict) {
    for audit in audits {
        one(audit, timeline.reigns.get(&audit.epoch), verdict);
    }
    known_to_an_audit(timeline, audits, verdict);
    across_restarts(timeline, audits, verdict);
}

/// One log by itself.
fn one(audit: &Audit, reign: Option<&Reign>, verdict: &mut Verdict) {
    let mut wrong = |line: usize, what: String| {
        verdict.violations.push(Violation::Audit { epoch: audit.epoch, line, what });
    };
    if let Some(line) = audit.unreadable {
        wrong(line, "it cannot be read".to_owned());
    }
    // However the wall clock steps, nothing lasts longer than the server.
    let age_ms = reign.and_then(|reign| Some((reign.dead?.0 - reign.starting) / 1_000_000));
    let mut open: HashMap<&str, u64> = HashMap::new();
    let mut last: HashMap<&str, u64> = HashMap::new();
    for (number, line) in audit.lines.iter().enumerate().map(|(number, line)| (number + 1, line)) {
        let AuditLine { event, lock, token, wait_ms, held_ms, .. } = line;
        if age_ms.is_some_and(|age| *wait_ms > age || *held_ms > age) {
            wrong(number, format!("{lock:?} was waited for or held for longer than the server lived"));
        }
        match event.as_str() {
            "granted" => {
                verdict.coverage.audited_grants += 1;
                if let Some(holder) = open.insert(lock, *token) {
                    wrong(number, format!("{lock:?} was granted with the token {token} while {holder} held it"));
                }
                if let Some(before) = last.insert(lock, *token)
                    && before >= *token
                {
                    wrong(number, format!("{lock:?} was granted with the token {token} after {before}"));
                }
            }
            "released" => match open.remove(lock.as_str()) {
                Some(holder) if holder == *token => {}
                Some(holder) => wrong(number, format!("{token} was released of {lock:?}, which {holder} held")),
                None => wrong(number, format!("{token} was released of {lock:?}, which nobody held")),
            },
            _ => {}
        }
    }
    if reign.is_some_and(|reign| matches!(reign.dead, Some((_, Death::Stopped)))) {
        for (lock, token) in open {
            wrong(audit.lines.len(), format!("the server stopped, and {token} of {lock:?} was never released"));
        }
    }
}

/// What clients were granted stands in a log, under the same lock.
fn known_to_an_audit(timeline: &Timeline, audits: &[Audit], verdict: &mut Verdict) {
    let mut audited: HashMap<u64, &str> = HashMap::new();
    let mut twice = HashSet::new();
    for line in audits.iter().flat_map(|audit| &audit.lines).filter(|line| line.event == "granted") {
        if audited.insert(line.token, &line.lock).is_some() && twice.insert(line.token) {
            verdict.violations.push(Violation::TokenTwice { token: line.token });
        }
    }
    let mut written: HashMap<(u32, &str), u64> = HashMap::new();
    for (audit, line) in audits.iter().flat_map(|audit| audit.lines.iter().map(move |line| (audit, line))) {
        let last = written.entry((audit.epoch, line.lock.as_str())).or_default();
        *last = line.token.max(*last);
    }
    for hold in &timeline.holds {
        let is_known = audited.get(&hold.token).is_some_and(|lock| *lock == hold.lock);
        let is_unwritten = || {
            // A server that is killed takes with it what it had not written yet: of each lock the last.
            let killed = timeline.reigns.iter().filter_map(|(epoch, reign)| match (reign.ending, reign.dead) {
                (Some(ending), Some((dead, Death::Killed))) => Some((*epoch, ending, dead)),
                _ => None,
            });
            killed.into_iter().any(|(epoch, ending, dead)| {
                // Asked before the death; told of the grant whenever the worker was awake.
                let is_late = hold.asked <= dead && hold.granted_by + UNWRITTEN_NS >= ending;
                is_late && written.get(&(epoch, hold.lock.as_str())).is_none_or(|last| *last < hold.token)
            })
        };
        if !is_known && (audited.contains_key(&hold.token) || !is_unwritten()) {
            verdict.violations.push(Violation::Unaudited { hold: hold.to_string() });
        }
    }
}

fn across_restarts(timeline: &Timeline, audits: &[Audit], verdict: &mut Verdict) {
    let tokens_of = |epoch: u32| {
        let audited = audits.iter().filter(move |audit| audit.epoch == epoch).flat_map(|audit| &audit.lines);
        let audited = audited.filter(|line| line.event == "granted").map(|line| line.token);
        audited.chain(timeline.holds.iter().filter(move |hold| hold.epoch == Some(epoch)).map(|hold| hold.token))
    };
    let mut before: Option<(u64, bool)> = None;
    for (&epoch, reign) in &timeline.reigns {
        // The wall clock at this start against the latest that it had shown while there was a server before. Tokens
        // begin at the whole second of the first grant, which comes after the grace.
        let grace = (i128::from(reign.grace_ns) - SECOND_NS).max(0);
        let wall = i128::from(reign.starting) + i128::from(timeline.offset_at(reign.starting)) * SECOND_NS + grace;
        let highest = timeline.steps.iter().map(|(from, _)| *from).chain([0]).filter(|from| *from < reign.starting);
        let highest = highest.map(|from| {
            let until = timeline.steps.iter().map(|(at, _)| *at).find(|at| *at > from).unwrap_or(u64::MAX);
            i128::from(until.min(reign.starting)) + i128::from(timeline.offset_at(from)) * SECOND_NS
        });
        let is_clock_ahead = highest.max().is_none_or(|highest| wall >= highest);
        // A file's mark may be ahead of the clock, so a start without the file that was there is promised nothing.
        let promised = |had_file: bool| if had_file { reign.token_file } else { is_clock_ahead };
        let Some(smallest) = tokens_of(epoch).min() else {
            // Nothing was granted; a chain of files must not have a gap.
            before = before.map(|(largest, file)| (largest, file && reign.token_file));
            continue;
        };
        if let Some((largest, had_file)) = before {
            if !promised(had_file) {
                verdict.coverage.unpromised_restarts += 1;
            } else if smallest <= largest {
                verdict.violations.push(Violation::TokensFell { epoch, before: largest, after: smallest });
            } else {
                verdict.coverage.rising_restarts += 1;
            }
        }
        let largest = tokens_of(epoch).max().unwrap_or(smallest);
        before = Some((largest, reign.token_file));
    }
}
