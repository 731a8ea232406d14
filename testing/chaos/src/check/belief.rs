//! Who believed in what, and when.

use std::collections::HashMap;

use crate::check::timeline::{Dark, Hold, Timeline};
use crate::check::{Verdict, Violation};

/// A hold, and from when to when it was believed in.
type Believed<'a> = (&'a Hold, (u64, u64));

pub(super) fn check(timeline: &Timeline, verdict: &mut Verdict) {
    let mut by_lock: HashMap<&str, Vec<Believed<'_>>> = HashMap::new();
    for hold in &timeline.holds {
        if let Some(believed) = hold.believed {
            by_lock.entry(hold.lock.as_str()).or_default().push((hold, believed));
            in_the_dark(hold, believed, timeline, verdict);
            after_death(hold, believed, timeline, verdict);
        }
        in_grace(hold, timeline, verdict);
    }
    for (lock, mut holds) in by_lock {
        holds.sort_by_key(|(_, (from, _))| *from);
        for (at, (hold, (_, to))) in holds.iter().enumerate() {
            for (next, (next_from, next_to)) in holds[at + 1..].iter().take_while(|(_, (from, _))| from <= to) {
                overlap(lock, [*hold, *next], next_to.min(to) - next_from, timeline, verdict);
            }
        }
    }
}

fn overlap(lock: &str, holds: [&Hold; 2], for_ns: u64, timeline: &Timeline, verdict: &mut Verdict) {
    let [a, b] = holds;
    let names = [a.to_string(), b.to_string()];
    let (Some(first), Some(last)) = (a.epoch.min(b.epoch), a.epoch.max(b.epoch)) else {
        verdict.violations.push(Violation::Overlap { lock: lock.to_owned(), holds: names, for_ns });
        return;
    };
    if first == last {
        verdict.violations.push(Violation::Overlap { lock: lock.to_owned(), holds: names, for_ns });
        return;
    }
    // The older one has given up by the end of a grace as long as its lease, wherever between them that was.
    let older = if a.epoch < b.epoch { a } else { b };
    let between = timeline.reigns.range(first + 1..=last);
    if between.into_iter().any(|(_, reign)| reign.grace_ns >= older.lease_ns) {
        verdict.violations.push(Violation::OverlapDespiteGrace { lock: lock.to_owned(), holds: names });
    } else {
        // How long is `after_death`'s business.
        verdict.coverage.tolerated_overlaps += 1;
    }
}

/// Nothing that was sent in the dark was answered in it, so nothing that is younger was confirmed.
fn in_the_dark(hold: &Hold, (_, last): (u64, u64), timeline: &Timeline, verdict: &mut Verdict) {
    let concerns = |dark: &&Dark| {
        dark.place.as_deref().is_none_or(|place| place == hold.place())
            && hold.granted_by < dark.from
            && hold.ended.is_none_or(|ended| ended > dark.from)
    };
    let mut has_stood = false;
    for dark in timeline.darkness.iter().filter(concerns) {
        let gives_up = dark.from + hold.patience_ns();
        if dark.to < gives_up {
            continue;
        }
        has_stood |= last >= dark.from;
        if last > gives_up {
            verdict.violations.push(Violation::BelievedInTheDark { hold: hold.to_string(), by_ns: last - gives_up });
            break;
        }
    }
    verdict.coverage.dark_holds += usize::from(has_stood);
}

/// What a dead server had confirmed was sent before its death, or before it was cut off.
fn after_death(hold: &Hold, (_, last): (u64, u64), timeline: &Timeline, verdict: &mut Verdict) {
    let reign = hold.epoch.and_then(|epoch| timeline.reigns.get(&epoch));
    let silent = reign.and_then(|reign| reign.unreachable.or(reign.dead.map(|(dead, _)| dead)));
    let Some(dead) = silent else { return };
    let gives_up = dead + hold.patience_ns();
    verdict.coverage.orphaned_holds += usize::from(last > dead);
    if last > gives_up {
        verdict.violations.push(Violation::BelievedAfterDeath { hold: hold.to_string(), by_ns: last - gives_up });
    }
}

fn in_grace(hold: &Hold, timeline: &Timeline, verdict: &mut Verdict) {
    let Some(epoch) = hold.epoch else { return };
    let Some(reign) = timeline.reigns.get(&epoch) else { return };
    if hold.granted_by < reign.starting + reign.grace_ns {
        verdict.violations.push(Violation::GrantedInGrace { hold: hold.to_string(), epoch });
    }
}
