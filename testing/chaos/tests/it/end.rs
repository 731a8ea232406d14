//! After the faults.

use monolock_chaos::check::Violation;

use crate::story::{passes, violation};

#[test]
fn everybody_who_lives_is_served_within_the_bound() {
    let story = |at: u32| {
        format!(
            "0 server 1 starts
             1 a asks 1 red
             10 over a within 100
             {at} a granted 1 token=1"
        )
    };
    passes(&story(110));
    for too_early_or_late in [9, 111] {
        assert_eq!(violation(&story(too_early_or_late)), Violation::NotServed { worker: "a.1".to_owned() });
    }
}

#[test]
fn a_server_that_dies_by_itself_is_found() {
    passes("0 server 1 starts\n 9 server 1 stopped");
    assert_eq!(violation("0 server 1 starts\n 9 server 1 dies"), Violation::ServerDied { epoch: 1 });
}

#[test]
fn a_worker_that_dies_by_itself_is_found() {
    passes("0 server 1 starts\n 9 a killed");
    assert_eq!(violation("0 server 1 starts\n 9 a dies"), Violation::WorkerDied { worker: "a.1".to_owned() });
}

#[test]
fn what_is_left_is_found() {
    passes("9 left 0 of 0");
    let left = violation("9 left 1 of 0");
    assert!(matches!(left, Violation::Left { value: 1, limit: 0, .. }), "{left}");
}
