//! The command line.

use std::process::{Command, Output};

fn sim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_monolock-sim")).args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn one_seed_tells_its_story_the_same_each_time() {
    let first = sim(&["--seed", "3"]);
    assert!(first.status.success(), "{first:?}");
    assert!(text(&first).lines().any(|line| line.contains("server       grants lock 0 to client-")), "{first:?}");
    assert_eq!(text(&first), text(&sim(&["--seed", "3"])));
}

#[test]
fn many_seeds_end_well_with_their_marks() {
    let run = sim(&["--seeds", "8", "--from", "100", "--no-marks"]);
    assert!(run.status.success(), "{run:?}");
    assert!(text(&run).contains("write let in"));
    assert!(text(&run).ends_with("no violation\n"));
    // So few seeds cannot be expected to show everything.
    assert!(sim(&["--seeds", "8", "--from", "100", "--stop-at-first"]).status.success());
}

#[test]
fn a_fresh_run_says_first_how_to_repeat_it() {
    let run = sim(&["--seeds", "4", "--fresh", "--no-marks"]);
    assert!(run.status.success(), "{run:?}");
    let text = text(&run);
    let first = text.lines().next().unwrap();
    let from = first.strip_prefix("seeds from ").and_then(|rest| rest.split(':').next()).unwrap();
    assert_eq!(first, format!("seeds from {from}: --seeds 4 --from {from} runs them again"));
}

#[test]
fn what_makes_no_sense_is_refused() {
    for arguments in
        [&["--seeds", "0"][..], &["--seed", "1", "--seeds", "2"], &["--seeds", "2", "--fresh", "--from", "1"], &[]]
    {
        assert_eq!(sim(arguments).status.code(), Some(2), "{arguments:?}");
    }
}
