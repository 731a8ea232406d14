//! After the faults: everybody is served, nobody died, and nothing is left.

use crate::check::timeline::Timeline;
use crate::check::{Verdict, Violation};
use crate::history::{Death, Record, What};

pub(super) fn check(records: &[Record], timeline: &Timeline, verdict: &mut Verdict) {
    for (&epoch, reign) in &timeline.reigns {
        if matches!(reign.dead, Some((_, Death::ByItself))) {
            verdict.violations.push(Violation::ServerDied { epoch });
        }
    }
    for Record { t, what } in records {
        if let What::FaultsOver { living, bound_ms } = what {
            let until = t + bound_ms * 1_000_000;
            let is_served = |worker: &&String| {
                timeline.holds.iter().any(|hold| hold.worker == **worker && (*t..=until).contains(&hold.granted_by))
            };
            let left_out = living.iter().filter(|worker| !is_served(worker));
            verdict.violations.extend(left_out.map(|worker| Violation::NotServed { worker: worker.clone() }));
        }
        if let What::AtEnd { what, value, limit } = what
            && value > limit
        {
            verdict.violations.push(Violation::Left { what: what.clone(), value: *value, limit: *limit });
        }
        if let What::Gone { worker, killed: false } = what {
            verdict.violations.push(Violation::WorkerDied { worker: worker.clone() });
        }
    }
}
