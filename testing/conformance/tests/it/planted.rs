//! The proof of the suite: a client with a planted bug is found by the case that is about it, and the same client
//! without one passes.

use std::ffi::OsString;

use monolock_conformance::{Report, Verdict, cases, run};

use crate::{alone, passes_all};

/// How often a case is run at most that passes while the machine stands still.
const RUNS: usize = 5;

/// Each bug of the specimen, and the cases that must find it.
const PLANTED: &[(&str, &[&str])] = &[
    ("gives_up_late", &["b01_black_hole_under_a_holder", "b19_dark_while_queued"]),
    ("gives_up_from_the_receipt", &["b02_late_replies_then_silence", "b02_late_first_answer_then_silence"]),
    ("push_is_an_ack", &["b02b_push_with_an_unanswered_heartbeat"]),
    ("reads_before_the_clock", &["b03_frozen_process"]),
    ("retries_client_errors", &["b48_denied_is_final", "b48_client_error_in_the_queue_is_final"]),
    ("lists_codes", &["b48_unknown_client_error_is_final"]),
    ("no_jitter", &["b47_jitter_before_the_first_reconnect"]),
    ("no_backoff", &["b48_backoff_after_02"]),
    ("loses_its_reader", &["b08_lost_once_closed"]),
    ("reads_packets", &["b38_cut_at_every_position", "b38_glued"]),
    ("releases_before_the_work_ends", &["b10_cancel_keeps_the_lock_until_the_work_ends"]),
    ("work_is_not_told", &["b11_loss_stops_the_work"]),
    ("never_heartbeats", &["heartbeat_every_quarter_of_the_lease", "heartbeat_in_the_queue"]),
    ("several_unanswered", &["heartbeat_one_unanswered_at_most"]),
    ("interval_from_the_receipt", &["heartbeat_earlier_by_two_round_trips"]),
    ("token_is_a_double", &["b59_tokens_beyond_a_double"]),
    ("ignores_waiting_after_acquired", &["waiting_after_acquired"]),
    ("tells_the_loss_twice", &["b08_lost_once_timeout", "b08_lost_once_closed"]),
    ("reacquires_silently", &["no_silent_reacquire", "work_runs_at_most_once"]),
    ("first_address_only", &["b46_mute_then_living", "b46_dead_then_living"]),
    ("lease_is_not_checked", &["b30_lease_0", "b30_lease_nan"]),
    ("cancels_late", &["b50_cancel_in_the_queue", "b50_cancel_before_a_mute_server"]),
    ("releases_without_closing", &["release_closes_the_connection"]),
];

fn specimen(bug: &str) -> Vec<OsString> {
    let specimen = env!("CARGO_BIN_EXE_specimen");
    vec!["env".into(), format!("MONOLOCK_CONFORMANCE_BUG={bug}").into(), specimen.into()]
}

#[test]
fn the_specimen_without_a_bug_passes_every_case() {
    passes_all(&specimen(""));
}

#[test]
fn every_planted_bug_is_found_by_the_case_that_is_about_it() {
    let _alone = alone();
    let mut missed = Vec::new();
    for group in PLANTED.chunks(12) {
        std::thread::scope(|scope| {
            let begin = |(bug, names): &(&'static str, &'static [&'static str])| {
                let (bug, names) = (*bug, *names);
                (bug, scope.spawn(move || missed_by(bug, names)))
            };
            let findings: Vec<_> = group.iter().map(begin).collect();
            for (bug, finding) in findings {
                missed.extend(finding.join().expect("the suite ends").into_iter().map(|name| (bug, name)));
            }
        });
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

/// The cases that pass although they are to fail. A pass while the machine stood still is judged no more than a failure.
fn missed_by(bug: &str, names: &[&'static str]) -> Vec<&'static str> {
    let mut chosen: Vec<_> = cases().filter(|case| names.contains(&case.name)).collect();
    assert_eq!(chosen.len(), names.len(), "{names:?} are cases");
    let mut missed = Vec::new();
    for runs in 1..=RUNS {
        let reports = run(&specimen(bug), chosen, names.len());
        let passed = reports.filter(|report| !matches!(report.verdict, Verdict::Failed(_)));
        let (unjudged, judged): (Vec<Report>, Vec<Report>) =
            passed.partition(|report| report.stall.is_some() && runs < RUNS);
        missed.extend(judged.iter().map(|report| report.case.name));
        chosen = unjudged.iter().map(|report| report.case).collect();
    }
    missed
}
