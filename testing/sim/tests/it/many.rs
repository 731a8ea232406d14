//! Many worlds at a time.

use monolock_sim::many::{Range, Summary, run};
use monolock_sim::{Failure, Oracle, Report, Violation, simulate};

/// Worlds that fail from this seed on, each third of them.
fn some_fail(seed: u64) -> Report {
    let mut report = simulate(0);
    report.seed = seed;
    report.violation = (seed >= 20 && seed.is_multiple_of(3)).then(|| Violation {
        oracle: Oracle::Order,
        at: 1_500_000_000,
        what: "as planned".to_owned(),
    });
    report
}

fn run_some(threads: usize, stops_at_first: bool) -> Summary {
    run(Range { from: 10, seeds: 40, stops_at_first }, threads, some_fail, |_| {})
}

#[test]
fn the_smallest_failing_seed_is_reported_on_however_many_threads() {
    for threads in [1, 2, 7] {
        for stops_at_first in [false, true] {
            let summary = run_some(threads, stops_at_first);
            assert_eq!(summary.first.unwrap().seed, 21, "{threads} threads");
        }
    }
}

#[test]
fn a_run_that_stops_at_the_first_failure_goes_no_further_than_it_must() {
    assert_eq!(run_some(1, true).seeds, 12);
    let all = run_some(1, false);
    assert_eq!((all.seeds, all.failures), (40, 10));
}

#[test]
fn a_world_that_panics_is_a_failure_like_any_other() {
    let range = Range { from: 0, seeds: 5, stops_at_first: false };
    let summary = run(range, 2, |seed| if seed == 3 { panic!("of seed {seed}") } else { some_fail(seed) }, |_| {});
    let failure = summary.first.unwrap();
    assert_eq!((failure.seed, failure.violation.oracle), (3, Oracle::Panic));
    assert_eq!(failure.violation.what, "of seed 3");
}

#[test]
fn a_failure_is_one_line_that_other_programs_read() {
    let failure = Failure { seed: 21, violation: some_fail(21).violation.unwrap() };
    assert_eq!(failure.to_string(), "seed 21: violation of order: as planned, at 1.500000000 s");
}
