//! First come, first served, as far as it is certain who came first; and tokens.
//!
//! A claim came after its worker had stamped "ask", and before it had stamped "queued" or "granted". So who had been
//! told to wait before another asked came first. The order of the grants of one server is that of their tokens.

use std::collections::HashMap;

use crate::check::timeline::{Hold, Timeline};
use crate::check::{Verdict, Violation};

/// How long the lock of a holder that lets go is on its way to who waits, for more than half of them: in truth less
/// than a millisecond, and the leases are longer than this.
const HANDOVER_NS: u64 = 500_000_000;

/// Fewer handovers than this say nothing about most of them.
const ENOUGH: usize = 10;

pub(super) fn check(timeline: &Timeline, verdict: &mut Verdict) {
    let mut queues: HashMap<(&str, Option<u32>), Vec<&Hold>> = HashMap::new();
    for hold in &timeline.holds {
        queues.entry((hold.lock.as_str(), hold.epoch)).or_default().push(hold);
    }
    let mut handovers: Vec<u64> = Vec::new();
    for ((lock, _), holds) in queues {
        for pair in holds.windows(2) {
            let let_go = pair[0].ended.filter(|_| pair[0].lost.is_none());
            // Whoever waited has only the server to wait for.
            handovers
                .extend(let_go.filter(|at| pair[1].arrived_by < *at).map(|at| pair[1].granted_by.saturating_sub(at)));
        }
        // Sorted by their tokens.
        for (at, hold) in holds.iter().enumerate() {
            for later in &holds[at + 1..] {
                if later.arrived_by < hold.asked {
                    let [first, second] = [later.to_string(), hold.to_string()];
                    verdict.violations.push(Violation::Overtaken { lock: lock.to_owned(), first, second });
                } else if hold.arrived_by < later.asked && later.asked < hold.granted_by {
                    verdict.coverage.ordered_pairs += 1;
                }
            }
        }
    }
    handovers.sort_unstable();
    let median_ns = handovers.get(handovers.len() / 2).copied().unwrap_or(0);
    verdict.coverage.handovers = handovers.len();
    if handovers.len() >= ENOUGH && median_ns > HANDOVER_NS {
        verdict.violations.push(Violation::SlowHandovers { median_ns });
    }
    for pair in timeline.holds.windows(2) {
        if pair[0].token == pair[1].token {
            verdict.violations.push(Violation::TokenTwice { token: pair[0].token });
        }
    }
}
