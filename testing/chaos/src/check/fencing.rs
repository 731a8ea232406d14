//! The guarded resource: a token below the largest that it saw never gets in.

use std::collections::HashMap;

use crate::check::{Verdict, Violation};
use crate::history::{Record, What};

pub(super) fn check(records: &[Record], verdict: &mut Verdict) {
    let mut largest: HashMap<&str, u64> = HashMap::new();
    for record in records {
        let What::Fenced { lock, token, accepted, .. } = &record.what else { continue };
        let seen = largest.entry(lock.as_str()).or_default();
        if *accepted == (*token < *seen) {
            let (lock, token) = (lock.clone(), *token);
            verdict.violations.push(Violation::Fencing { lock, token, accepted: *accepted });
        }
        if *accepted {
            verdict.coverage.writes += 1;
        } else {
            verdict.coverage.stale_writes_refused += 1;
        }
        *seen = (*seen).max(*token);
    }
}
