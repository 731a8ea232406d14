//! Who may believe, and until when.

use monolock_chaos::check::Violation;

use crate::story::{checked, passes, violation};

#[test]
fn a_handover_is_no_overlap() {
    let verdict = passes(
        "0 server 1 starts
         1 a asks 1 red
         2 a granted 1 token=1
         2 a believes 1
         3 b asks 1 red
         4 b queued 1
         5 a believes 1
         6 a releases 1
         7 b granted 1 token=2
         7 b believes 1
         9 b releases 1",
    );
    assert_eq!((verdict.coverage.grants, verdict.coverage.audited_grants), (2, 2));
    assert_eq!(verdict.coverage.beliefs, 3);
}

#[test]
fn b01_two_that_believe_at_once_are_found() {
    let found = violation(
        "0 server 1 starts
         1 a asks 1 red
         2 a granted 1 token=1
         2 a believes 1
         3 b asks 1 red
         4 b queued 1
         5 b granted 1 token=2
         6 b believes 1
         8 a believes 1
         9 b believes 1",
    );
    let Violation::Overlap { lock, for_ns, .. } = found else { panic!("{found}") };
    assert_eq!((lock.as_str(), for_ns), ("red", 2_000_000));
}

#[test]
fn two_that_believe_in_two_locks_are_none_and_nor_is_a_grant_that_nobody_looked_at() {
    passes(
        "0 server 1 starts
         1 a asks 1 red
         2 a granted 1 token=1
         2 a believes 1
         3 b asks 1 blue
         4 b granted 1 token=2
         5 b believes 1
         6 c asks 1 red
         7 c granted 1 token=3
         8 a believes 1",
    );
}

#[test]
fn a_short_overlap_inside_a_long_hold_is_found_behind_another() {
    let story = "0 server 1 starts
         1 a asks 1 red
         2 a granted 1 token=1
         2 a believes 1
         3 b asks 1 red
         4 b granted 1 token=2
         5 b believes 1
         5 c asks 1 red
         6 c granted 1 token=3
         7 c believes 1
         9 a believes 1";
    assert_eq!(crate::story::checked(story).violations.len(), 2);
}

#[test]
fn after_a_crash_an_old_holder_may_believe_for_its_0_8_leases() {
    let verdict = passes(
        "0 server 1 starts
         1 a asks 1 red lease=1000
         2 a granted 1 token=1
         2 a believes 1
         100 server 1 killed
         110 server 2 starts
         120 b asks 1 red
         130 b granted 1 token=2
         130 b believes 1
         400 b believes 1
         900 a believes 1
         901 a loses 1",
    );
    assert_eq!(verdict.coverage.orphaned_holds, 1);
    assert_eq!(verdict.coverage.tolerated_overlaps, 1);
}

#[test]
fn and_no_longer() {
    let found = violation(
        "0 server 1 starts
         1 a asks 1 red lease=1000
         2 a granted 1 token=1
         2 a believes 1
         100 server 1 killed
         902 a believes 1",
    );
    assert!(matches!(found, Violation::BelievedAfterDeath { by_ns: 2_000_000, .. }), "{found}");
}

#[test]
fn a_grace_as_long_as_the_lease_leaves_no_overlap() {
    let found = violation(
        "0 server 1 starts
         1 a asks 1 red lease=1000
         2 a granted 1 token=1
         2 a believes 1
         100 server 1 killed
         110 server 2 starts grace=1000
         120 b asks 1 red
         1110 b granted 1 token=2
         850 b believes 1
         890 a believes 1",
    );
    assert!(matches!(found, Violation::OverlapDespiteGrace { .. }), "{found}");
}

#[test]
fn a_grant_within_the_grace_is_found() {
    let found = violation(
        "0 server 1 starts grace=1000
         1 a asks 1 red
         2 a queued 1
         999 a granted 1 token=1",
    );
    assert!(matches!(found, Violation::GrantedInGrace { epoch: 1, .. }), "{found}");
}

#[test]
fn b03_who_was_stopped_for_its_0_8_leases_must_not_believe_when_it_goes_on() {
    let story = |last: &str| {
        format!(
            "0 server 1 starts
             1 a asks 1 red lease=1000
             2 a granted 1 token=1
             90 a believes 1
             100 dark a 100..1500
             {last}"
        )
    };
    let verdict = passes(&story("1501 a loses 1"));
    assert_eq!(verdict.coverage.dark_holds, 0, "nobody looked in the dark");
    let found = violation(&story("1501 a believes 1"));
    assert!(matches!(found, Violation::BelievedInTheDark { by_ns: 601_000_000, .. }), "{found}");
}

#[test]
fn b01_who_is_cut_off_believes_for_0_8_leases_at_the_most() {
    let story = |dark: &str, last: u32| {
        format!(
            "0 server 1 starts
             1 a asks 1 red lease=1000
             2 a granted 1 token=1
             90 a believes 1
             100 dark {dark}
             {last} a believes 1"
        )
    };
    assert_eq!(passes(&story("a 100..1500", 900)).coverage.dark_holds, 1);
    assert!(matches!(violation(&story("a 100..1500", 901)), Violation::BelievedInTheDark { .. }));
    assert!(matches!(violation(&story("all 100..1500", 901)), Violation::BelievedInTheDark { .. }));
    // Another one's, one that was too short, and one that was over before.
    passes(&story("b 100..1500", 1400));
    passes(&story("a 100..899", 1400));
    passes(&story("a 0..1", 1400));
}

#[test]
fn who_said_that_it_is_over_must_not_believe_again() {
    let found = violation(
        "0 server 1 starts
         1 a asks 1 red
         2 a granted 1 token=1
         3 a believes 1
         4 a loses 1
         5 a believes 1",
    );
    assert!(matches!(found, Violation::BelievedAfterTheEnd { .. }), "{found}");
}

#[test]
fn a_history_without_sense_is_none() {
    for broken in ["1 a granted 1 token=1", "1 a believes 1", "1 a queued 1", "1 a asks 1 red\n 2 a asks 1 red"] {
        let found = crate::story::checked(&format!("0 server 1 starts\n{broken}")).violations;
        assert!(matches!(found[..], [Violation::Senseless { .. }]), "{broken}: {found:?}");
    }
}

#[test]
fn whom_a_server_that_is_cut_off_had_told_gives_up_as_if_it_were_dead() {
    let story = |last: u64| {
        format!(
            "0 server 1 starts
             1 a asks 1 red lease=1000
             2 a granted 1 token=7
             3 a believes 1
             100 server 1 unreachable
             {last} a believes 1
             5000 server 1 killed"
        )
    };
    assert_eq!(passes(&story(899)).coverage.orphaned_holds, 1);
    assert!(matches!(violation(&story(901)), Violation::BelievedAfterDeath { .. }));
}

#[test]
fn two_believe_at_once_where_a_second_server_grants_before_its_grace_could_have_done_its_work() {
    let story = |grace: u64| {
        format!(
            "0 server 1 starts
             1 a asks 1 red lease=1000
             2 a granted 1 token=7
             3 a believes 1
             100 server 1 unreachable
             101 server 2 starts grace={grace}
             800 a believes 1
             102 b asks 1 red lease=1000
             700 b granted 1 token=8
             701 b believes 1
             900 b believes 1
             5000 server 1 killed"
        )
    };
    assert_eq!(passes(&story(500)).coverage.tolerated_overlaps, 1);
    let found = checked(&story(1000)).violations;
    assert!(found.iter().any(|found| matches!(found, Violation::OverlapDespiteGrace { .. })), "{found:?}");
}
