//! Tokens across restarts, the guarded resource, and the audit log.

use monolock_chaos::check::{Violation, check};
use monolock_chaos::history::{Audit, forget_unheard};

use crate::story::{checked, passes, told, violation};

/// A server grants the token 100, is killed, and the next one grants `token`.
fn restarted(first: &str, between: &str, second: &str, token: u32) -> String {
    format!(
        "0 server 1 starts {first}
         1 a asks 1 red
         2 a granted 1 token=100
         9 server 1 killed
         {between}
         20 server 2 starts {second}
         30 b asks 1 red
         40 b granted 1 token={token}"
    )
}

#[test]
fn b35_tokens_rise_across_a_restart() {
    assert_eq!(passes(&restarted("", "", "", 101)).coverage.rising_restarts, 1);
    let found = violation(&restarted("", "", "", 99));
    assert_eq!(found, Violation::TokensFell { epoch: 2, before: 100, after: 99 });
}

#[test]
fn b35_without_a_token_file_they_may_fall_where_the_clock_has_stepped_back() {
    assert_eq!(passes(&restarted("", "10 clock -3600", "", 99)).coverage.unpromised_restarts, 1);
    assert_eq!(passes(&restarted("tokens", "10 clock -3600", "", 99)).coverage.unpromised_restarts, 1);
    assert!(matches!(violation(&restarted("", "10 clock 3600", "", 99)), Violation::TokensFell { .. }));
    assert!(matches!(
        violation(&restarted("tokens", "10 clock -3600", "tokens", 99)),
        Violation::TokensFell { epoch: 2, .. }
    ));
    // The file's mark may have been ahead of the clock.
    assert_eq!(passes(&restarted("tokens", "", "", 99)).coverage.unpromised_restarts, 1);
    assert!(matches!(violation(&restarted("", "", "tokens", 99)), Violation::TokensFell { .. }));
    // Forward and back: it is where it has been.
    let there_and_back = "10 clock 3600\n 11 clock 0";
    assert_eq!(passes(&restarted("", there_and_back, "", 99)).coverage.unpromised_restarts, 1);
}

#[test]
fn they_rise_though_the_clock_is_behind_by_less_than_the_grace_without_a_second() {
    let moved = |behind: &str| restarted("", behind, "grace=3000", 99).replace("40 b", "4000 b");
    assert!(matches!(violation(&moved("10 clock -2")), Violation::TokensFell { .. }));
    assert_eq!(passes(&moved("10 clock -3")).coverage.unpromised_restarts, 1);
}

#[test]
fn a_server_that_granted_nothing_breaks_no_promise() {
    let found = violation(
        "0 server 1 starts tokens
         1 a asks 1 red
         2 a granted 1 token=100
         9 server 1 killed
         10 clock -3600
         20 server 2 starts tokens
         21 server 2 killed
         30 server 3 starts tokens
         31 b asks 1 red
         32 b granted 1 token=99",
    );
    assert_eq!(found, Violation::TokensFell { epoch: 3, before: 100, after: 99 });
}

#[test]
fn a_stale_write_must_be_refused_and_a_fresh_one_let_in() {
    let verdict = passes("1 b writes red 5 accepted\n 2 a writes red 4 refused\n 3 b writes red 5 accepted");
    assert_eq!((verdict.coverage.writes, verdict.coverage.stale_writes_refused), (2, 1));
    for wrong in ["2 a writes red 4 accepted", "2 a writes red 5 refused"] {
        let found = violation(&format!("1 b writes red 5 accepted\n {wrong}"));
        assert!(matches!(found, Violation::Fencing { .. }), "{found}");
    }
    passes("1 b writes red 5 accepted\n 2 a writes blue 4 accepted");
}

/// A server with this audit log, and what becomes of it.
fn audited(lines: &[&str], end: &str) -> String {
    let lines: String = lines.iter().map(|line| "5 audit 1 ".to_owned() + line + "\n").collect();
    format!("0 server 1 starts\n{lines} 100 server 1 {end}")
}

#[test]
fn b64_an_audit_log_alternates() {
    let granted_twice = audited(&["granted red 1", "granted red 2", "released red 2"], "killed");
    assert!(matches!(violation(&granted_twice), Violation::Audit { epoch: 1, line: 2, .. }));
    let released_after_the_next = audited(&["granted red 1", "granted red 2", "released red 1"], "killed");
    let found = checked(&released_after_the_next).violations;
    assert!(matches!(found[..], [Violation::Audit { line: 2, .. }, Violation::Audit { line: 3, .. }]), "{found:?}");
    let released_twice = audited(&["granted red 1", "released red 1", "released red 1"], "killed");
    assert!(matches!(violation(&released_twice), Violation::Audit { line: 3, .. }));
    let falling = audited(&["granted red 2", "released red 2", "granted red 1", "released red 1"], "killed");
    assert!(matches!(violation(&falling), Violation::Audit { line: 3, .. }));
    passes(&audited(&["granted red 1", "granted blue 2", "released red 1", "released blue 2"], "killed"));
}

#[test]
fn b64_a_server_that_stops_in_order_releases_all() {
    let left = ["granted red 1"];
    passes(&audited(&left, "killed"));
    assert!(matches!(violation(&audited(&left, "stopped")), Violation::Audit { .. }));
}

#[test]
fn b34_nothing_lasts_longer_than_the_server() {
    passes(&audited(&["granted red 1 wait=100", "released red 1 held=100"], "stopped"));
    let found = violation(&audited(&["granted red 1 wait=101", "released red 1 held=0"], "stopped"));
    assert!(matches!(found, Violation::Audit { line: 1, .. }), "{found}");
    let found = violation(&audited(&["granted red 1", "released red 1 held=3600000"], "stopped"));
    assert!(matches!(found, Violation::Audit { line: 2, .. }), "{found}");
}

#[test]
fn a_line_that_cannot_be_read_is_found_and_one_that_was_cut_off_is_none() {
    let whole = r#"{"event":"granted","lock":"red","token":1}"#;
    let cut = Audit::parse(1, &format!("{whole}\n{}", &whole[..9]));
    assert_eq!((cut.lines.len(), cut.unreadable), (1, None));
    let broken = Audit::parse(1, &format!("{}\n{whole}\n", &whole[..9]));
    assert_eq!((broken.lines.len(), broken.unreadable), (1, Some(1)));
    let found = monolock_chaos::check::check(&[], &[broken]).violations;
    assert!(found.iter().any(|violation| matches!(violation, Violation::Audit { line: 1, .. })), "{found:?}");
}

#[test]
fn a_grant_that_no_audit_log_knows_is_found() {
    let story = |written: u32, end: &str, granted_at: u32| {
        format!(
            "0 server 1 starts
             1 audit 1 granted red {written}
             1 audit 1 released red {written}
             2 a asks 1 red
             {granted_at} a granted 1 token=2
             9000 server 1 {end}"
        )
    };
    assert!(matches!(violation(&story(1, "stopped", 8900)), Violation::Unaudited { .. }));
    assert!(matches!(violation(&story(1, "killed", 3)), Violation::Unaudited { .. }));
    // What was not written when it was killed.
    passes(&story(1, "killed", 8900));
    // What came after it was.
    assert!(matches!(violation(&story(3, "killed", 8900)), Violation::Unaudited { .. }));
}

#[test]
fn a_grant_of_another_lock_is_none() {
    let found = violation(
        "0 server 1 starts
         1 audit 1 granted blue 2
         1 audit 1 released blue 2
         2 a asks 1 red
         3 a granted 1 token=2
         9 server 1 killed",
    );
    assert!(matches!(found, Violation::Unaudited { .. }), "{found}");
}

#[test]
fn what_a_server_that_is_cut_off_grants_to_nobody_says_nothing_about_tokens() {
    // The first server goes on after nobody hears it, and the second one begins with the same number.
    let alone = |epoch: u32| {
        format!(
            "0 server 1 starts
             1 a asks 1 red
             2 audit 1 granted red 100
             2 a granted 1 token=100
             3 a loses 1
             9 server {epoch} unreachable
             9 audit 1 released red 100
             10 audit 1 granted red 102
             11 audit 1 released red 102
             20 server 2 starts
             30 b asks 1 red
             40 audit 2 granted red 102
             40 b granted 1 token=102
             41 b releases 1
             42 audit 2 released red 102
             50 server 1 killed"
        )
    };
    let violations = |epoch: u32| {
        let (records, mut audits) = told(&alone(epoch));
        forget_unheard(&records, &mut audits);
        check(&records, &audits).violations
    };
    assert_eq!(violations(1), []);
    // Where clients could hear it, the number was granted twice.
    assert!(violations(3).contains(&Violation::TokenTwice { token: 102 }));
}
