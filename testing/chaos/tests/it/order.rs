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

#[test]
fn locks_that_are_let_go_must_not_wait_for_the_lease() {
    let story = |gap: u64, count: u64| {
        let turn = |n: u64| {
            let (at, next) = (n * 10_000, n * 10_000 + 100 + gap);
            format!(
                "{at} a asks {n} red
                 {} a granted {n} token={}
                 {} b asks {n} red
                 {} b queued {n}
                 {} a releases {n}
                 {next} b granted {n} token={}\n",
                at + 1,
                2 * n,
                at + 2,
                at + 3,
                at + 100,
                2 * n + 1,
            )
        };
        "0 server 1 starts\n".to_owned() + &(1..=count).map(turn).collect::<String>()
    };
    assert_eq!(passes(&story(400, 12)).coverage.handovers, 12);
    let found = crate::story::violation(&story(1000, 12));
    assert_eq!(found, Violation::SlowHandovers { median_ns: 1_000_000_000 });
    // Too few to say.
    passes(&story(1000, 9));
}
