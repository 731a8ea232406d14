//! First come, first served.

use monolock_chaos::check::Violation;

use crate::story::passes;

#[test]
fn who_waited_when_another_asked_is_granted_first() {
    let story = |a: u32, b: u32| {
        format!(
            "0 server 1 starts
             1 a asks 1 red
             2 a queued 1
             3 b asks 1 red
             4 b queued 1
             50 a granted 1 token={a}
             60 b granted 1 token={b}"
        )
    };
    assert_eq!(passes(&story(1, 2)).coverage.ordered_pairs, 1);
    let found = crate::story::checked(&story(2, 1)).violations;
    let overtaken = |violation: &Violation| matches!(violation, Violation::Overtaken { first, second, .. } if first.starts_with('a') && second.starts_with('b'));
    assert!(found.iter().any(overtaken), "{found:?}");
}

#[test]
fn who_asked_while_another_did_may_be_before_or_behind_it() {
    passes(
        "0 server 1 starts
         1 a asks 1 red
         3 b asks 1 red
         4 a queued 1
         5 b queued 1
         50 b granted 1 token=1
         60 a granted 1 token=2",
    );
}

#[test]
fn the_order_is_that_of_one_lock_and_of_one_server() {
    passes(
        "0 server 1 starts
         1 a asks 1 red
         2 a queued 1
         3 b asks 1 blue
         50 b granted 1 token=1
         60 a granted 1 token=2",
    );
}

#[test]
fn one_token_for_two_is_found() {
    let found = crate::story::checked(
        "0 server 1 starts
         1 a asks 1 red
         2 a granted 1 token=1
         3 b asks 1 blue
         4 b granted 1 token=1",
    );
    assert!(found.violations.contains(&Violation::TokenTwice { token: 1 }), "{found:?}");
}
