//! Worlds that are broken on purpose: each oracle is seen to find something.

use monolock_sim::many::{Range, run};
use monolock_sim::{Broken, Oracle, simulate_broken};

/// The first so many worlds with this in them break one of these promises, and no other before it.
fn finds(broken: Broken, seeds: u64, expected: &[Oracle]) {
    let range = Range { from: 0, seeds, stops_at_first: true };
    let summary = run(range, 2, |seed| simulate_broken(seed, broken), |_| {});
    let failure = summary.first.unwrap_or_else(|| panic!("{broken:?} is not found in {seeds} seeds"));
    assert!(expected.contains(&failure.violation.oracle), "{broken:?}: {failure}");
}

#[test]
fn slow_clocks_of_clients_are_found() {
    finds(Broken::SlowClients, 60, &[Oracle::GiveUp]);
}

#[test]
fn a_give_up_that_counts_from_the_receipt_is_found() {
    finds(Broken::StampsFromReceipt, 20, &[Oracle::GiveUp, Oracle::Rhythm]);
}

#[test]
fn a_program_that_asks_no_clock_is_found() {
    finds(Broken::BelievesUntilTold, 60, &[Oracle::GiveUp]);
}

#[test]
fn a_second_signal_is_found() {
    finds(Broken::TellsTwice, 60, &[Oracle::Signal]);
}

#[test]
fn a_second_heartbeat_under_way_is_found() {
    finds(Broken::SendsTwice, 10, &[Oracle::Rhythm]);
}

#[test]
fn a_server_that_takes_any_error_for_the_end_is_found() {
    finds(Broken::ErrorsEndClaims, 120, &[Oracle::GiveUp]);
}

#[test]
fn a_server_that_promotes_before_the_lease_is_out_is_found() {
    finds(Broken::ExpiresEarly, 60, &[Oracle::GiveUp]);
}

#[test]
fn a_server_that_never_wakes_up_is_found() {
    finds(Broken::NeverWakes, 120, &[Oracle::Liveness, Oracle::Idle]);
}

#[test]
fn a_timer_that_spins_is_found() {
    finds(Broken::SpinsAtWakeUp, 4, &[Oracle::Progress]);
}

#[test]
fn a_second_answer_is_found() {
    finds(Broken::AnswersTwice, 10, &[Oracle::Frames]);
}

#[test]
fn a_grace_that_is_not_kept_is_found() {
    finds(Broken::NoGrace, 240, &[Oracle::Exclusion]);
}

#[test]
fn tokens_that_begin_anew_are_found() {
    finds(Broken::TokensBeginAnew, 60, &[Oracle::Tokens]);
}

#[test]
fn a_wrong_code_is_found() {
    finds(Broken::WrongCode, 60, &[Oracle::Protocol]);
}

#[test]
fn connections_that_are_never_closed_are_found() {
    finds(Broken::KeepsConnections, 10, &[Oracle::Idle]);
}

#[test]
fn a_resource_that_forgets_is_found() {
    finds(Broken::ForgetfulResource, 60, &[Oracle::Fence]);
}

#[test]
fn what_is_drawn_outside_the_seed_is_found() {
    // Every 64th seed is lived through twice, the first one among them.
    finds(Broken::Entropy, 1, &[Oracle::Determinism]);
}
