//! The table, and what is missing from a run.

use monolock_chaos::check::{Coverage, Timeline};
use monolock_chaos::plan::Class;
use monolock_chaos::tally::Tally;

use crate::story::told;

fn tally(story: &str, class: Class) -> Tally {
    let (records, audits) = told(story);
    let timeline = Timeline::new(&records, &audits, &mut Vec::new());
    Tally::new(&records, &timeline, &[class])
}

/// A holder is cut off, and `middle` comes of it.
fn cut(middle: &str) -> Tally {
    let story = format!(
        "0 server 1 starts
         1 a asks 1 red
         2 a granted 1 token=1
         3 a believes 1
         10 fault 1 cut-both a 1 red
         {middle}
         1500 healed 1 1
         1600 b asks 1 red
         1700 b granted 1 token=2
         1700 b believes 1"
    );
    tally(&story, Class::CutBoth)
}

#[test]
fn a_fault_that_cost_a_lock_is_told() {
    let tally = cut("20 a believes 1\n 810 a loses 1");
    let row = &tally.rows[&Class::CutBoth];
    assert_eq!((row.injected, row.stood, row.told, row.recovered), (1, 1, 1, 1));
    assert_eq!((row.grants, row.slowest_ms, row.losses["timeout"]), (1, 200, 1));
    assert_eq!(tally.missing(1, &Coverage::default()), Vec::<String>::new());
    let table = tally.to_string();
    assert!(table.contains("cut-both") && table.contains("timeout 1"), "{table}");
}

#[test]
fn a_loss_that_a_busy_machine_says_late_is_told() {
    let told = |at: u32| cut(&format!("20 a believes 1\n {at} a loses 1")).rows[&Class::CutBoth].told;
    assert_eq!((told(11_500), told(11_501)), (1, 0));
}

#[test]
fn a_holder_that_was_to_keep_its_lock_stands_for_as_long_as_it_may_believe() {
    let killed = |keeps: &str, at: u32| {
        let story = format!(
            "0 server 1 starts
             1 a asks 1 red
             2 a granted 1 token=1
             3 a believes 1
             {keeps}
             {at} fault 1 kill-client a 1 red
             {at} a killed
             {at} healed 1 1
             2000 b asks 1 red
             2001 b granted 1 token=2"
        );
        let row = &tally(&story, Class::KillClient).rows[&Class::KillClient];
        (row.stood, row.told)
    };
    assert_eq!(killed("4 a keeps 1", 804), (1, 1));
    assert_eq!(killed("4 a keeps 1", 805), (0, 0));
    assert_eq!(killed("", 203), (1, 1));
    assert_eq!(killed("", 204), (0, 0));
}

#[test]
fn a_fault_that_cost_nothing_fails_the_run() {
    let missing = cut("20 a believes 1").missing(1, &Coverage::default());
    assert_eq!(missing, ["cut-both: it did something 0 times, and at least 1 are wanted"]);
}

#[test]
fn a_fault_under_which_nobody_stood_fails_the_run() {
    let missing = cut("").missing(1, &Coverage::default());
    assert!(cut("5 a releases 1").missing(1, &Coverage::default()).len() == 2, "{missing:?}");
}

#[test]
fn a_fault_that_was_brief_need_not_cost_anything_but_not_all_may_be_brief() {
    let story = "0 server 1 starts
         1 a asks 1 red
         2 a granted 1 token=1
         3 a believes 1
         10 fault 1 brief-stall a 1 red
         20 a believes 1
         50 healed 1 1
         60 a releases 1
         70 b asks 1 red
         80 b granted 1 token=2
         81 b believes 1
         90 fault 2 stall b 1 red
         99 b believes 1
         900 b loses 1
         950 healed 2 1
         960 c asks 1 red
         970 c granted 1 token=3";
    let both = tally(story, Class::Stall);
    assert_eq!((both.rows[&Class::Stall].brief, both.rows[&Class::Stall].told), (1, 1));
    assert!(both.missing(2, &Coverage::default()).is_empty());
    let (brief, _) = story.split_once("90 fault").unwrap();
    let missing = tally(brief, Class::Stall).missing(1, &Coverage::default());
    assert_eq!(missing, ["stall: it did something 0 times, and at least 1 are wanted"]);
}

#[test]
fn a_class_that_was_never_there_fails_the_run() {
    let missing = tally("0 server 1 starts", Class::Stall).missing(2, &Coverage::default());
    assert!(missing[0].contains("stall: injected 0 times, and at least 1 are wanted"), "{missing:?}");
}

#[test]
fn a_lock_that_is_never_granted_again_fails_the_run() {
    let story = "0 server 1 starts
         1 a asks 1 red
         2 a granted 1 token=1
         3 a believes 1
         10 fault 1 stall a 1 red
         20 a believes 1
         810 a loses 1
         1500 healed 1 1";
    let missing = tally(story, Class::Stall).missing(1, &Coverage::default());
    assert_eq!(missing, ["stall: recovered 0 times, and at least 1 are wanted"]);
}

#[test]
fn a_fault_that_the_harness_saw_nothing_of_fails_the_run() {
    let story = |effect: u32| {
        format!(
            "0 server 1 starts
             1 a asks 1 red
             2 a granted 1 token=1
             3 a believes 1
             10 fault 1 loss a 1 red
             20 a believes 1
             1500 healed 1 {effect}
             1600 b asks 1 red
             1700 b granted 1 token=2"
        )
    };
    assert!(tally(&story(9), Class::Loss).missing(1, &Coverage::default()).is_empty());
    let missing = tally(&story(0), Class::Loss).missing(1, &Coverage::default());
    assert_eq!(missing, ["loss: it did something 0 times, and at least 1 are wanted"]);
}

#[test]
fn a_run_of_all_classes_needs_something_for_each_rule_to_be_about() {
    let (records, audits) = told("0 server 1 starts");
    let timeline = Timeline::new(&records, &audits, &mut Vec::new());
    let missing = Tally::new(&records, &timeline, &Class::ALL).missing(1, &Coverage::default());
    for what in ["stale writes refused", "holds that outlived their server", "pairs of claims"] {
        assert!(missing.iter().any(|missing| missing.contains(what)), "{missing:?}");
    }
}
