//! First come, first served, as far as it is certain who came first; and tokens.
//!
//! A claim came after its worker had stamped "ask", and before it had stamped "queued" or "granted". So who had been
//! told to wait before another asked came first. The order of the grants of one server is that of their tokens.

use std::collections::HashMap;

use crate::check::timeline::{Hold, Timeline};
use crate::check::{Verdict, Violation};

pub(super) fn check(timeline: &Timeline, verdict: &mut Verdict) {
    let mut queues: HashMap<(&str, Option<u32>), Vec<&Hold>> = HashMap::new();
    for hold in &timeline.holds {
        queues.entry((hold.lock.as_str(), hold.epoch)).or_default().push(hold);
    }
    for ((lock, _), holds) in queues {
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
    for pair in timeline.holds.windows(2) {
        if pair[0].token == pair[1].token {
            verdict.violations.push(Violation::TokenTwice { token: pair[0].token });
        }
    }
}
