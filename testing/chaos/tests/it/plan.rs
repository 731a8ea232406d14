//! What a seed brings.

use std::collections::HashSet;

use monolock_chaos::plan::{Class, Fault, Plan, Target};

#[test]
fn a_seed_brings_the_same_faults_again_and_another_seed_others() {
    let plan = |seed| Plan::new(seed, &Class::ALL).take(100).collect::<Vec<_>>();
    assert_eq!(plan(7), plan(7));
    assert_ne!(plan(7), plan(8));
}

#[test]
fn each_round_has_each_class_once() {
    for seed in 0..50 {
        let mut plan = Plan::new(seed, &Class::ALL);
        for round in 1..=4 {
            let mut classes = Vec::new();
            while plan.whole_rounds() < round {
                classes.extend(plan.next().unwrap().into_iter().map(|fault| fault.class));
            }
            classes.sort();
            assert_eq!(classes, Class::ALL);
        }
    }
}

#[test]
fn at_one_time_there_is_one_fault_of_the_server_and_one_of_each_lock() {
    for seed in 0..50 {
        for slot in Plan::new(seed, &Class::ALL).take(100) {
            let (server, clients): (Vec<&Fault>, Vec<&Fault>) =
                slot.iter().partition(|fault| fault.class.target() == Target::Server);
            assert!(server.len() <= 1, "{slot:?}");
            let locks: HashSet<_> = clients.iter().map(|fault| fault.lock).collect();
            assert_eq!(locks.len(), clients.len(), "{slot:?}");
        }
    }
}

#[test]
fn in_the_first_round_nothing_is_too_brief_to_be_noticed() {
    for seed in 0..50 {
        let mut plan = Plan::new(seed, &Class::ALL);
        while plan.whole_rounds() < 1 {
            assert!(plan.next().unwrap().iter().all(|fault| !fault.is_brief()));
        }
    }
}

#[test]
fn classes_are_called_by_their_names() {
    for class in Class::ALL {
        assert_eq!(class.as_str().parse(), Ok(class));
    }
    assert!("cut".parse::<Class>().unwrap_err().contains("cut-both, "));
}

#[test]
fn no_class_brings_nothing() {
    assert_eq!(Plan::new(1, &[]).next(), None);
}
