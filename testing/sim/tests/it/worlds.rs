//! Ordinary worlds.

use std::thread;

use monolock_sim::many::{Range, run};
use monolock_sim::{Profile, simulate, tell};

#[test]
fn a_fixed_set_of_worlds_keeps_every_promise_and_has_one_history_each() {
    let threads = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let range = Range { from: 0, seeds: 120, stops_at_first: false };
    let summary = run(range, threads, simulate, |_| {});
    assert_eq!(summary.first, None);
    assert_eq!(summary.seeds, 120);
    // The oracles were not idle.
    let count = |name: &str| summary.marks.iter().find(|mark| mark.name == name).unwrap().count;
    for name in
        ["stale write refused", "push crosses a heartbeat", "waiter dropped by expiry", "restart under a holder"]
    {
        assert!(count(name) > 0, "{name}");
    }
}

#[test]
fn a_told_world_is_the_same_world() {
    for seed in 0..12 {
        let (silent, told) = (simulate(seed), tell(seed));
        assert_eq!((silent.hash, silent.steps), (told.hash, told.steps), "seed {seed}");
        assert!(silent.story.is_empty() && !told.story.is_empty());
        assert_eq!(told.story, tell(seed).story, "seed {seed}");
    }
}

#[test]
fn neighbouring_seeds_are_different_worlds_of_all_profiles() {
    let reports: Vec<_> = (0..6).map(simulate).collect();
    for profile in Profile::ALL {
        assert!(reports.iter().any(|report| report.profile == profile), "{}", profile.as_str());
    }
    let mut hashes: Vec<_> = reports.iter().map(|report| report.hash).collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), reports.len());
}
