//! What a session takes of the heap, held to the goals; a binary with one test, because the heap is counted for all of
//! it.

use monolock_capacity::{Claims, measure};

const FEW: usize = 10_000;
const MANY: usize = 40_000;

/// What an idle session may take. A server's goal is 1.25 KiB of memory, the system's part of a socket included.
const BYTES_A_SESSION: usize = 1024;

/// How far the larger crowd may be from the line of the smaller one: tables double.
const BYTES_OFF_THE_LINE: usize = 64;

/// What may be kept for those who have left: the engines' first pages, and places in the lists of the runtime.
const BYTES_KEPT: usize = 256 << 10;

#[test]
fn an_idle_session_takes_less_than_a_kibibyte_on_a_straight_line_and_leaves_nothing() {
    for claims in [Claims::OneQueue, Claims::LocksOfTheirOwn] {
        let [few, many] = [FEW, MANY].map(|sessions| {
            let taken = measure(sessions, claims);
            assert!(taken.kept <= BYTES_KEPT, "{sessions} sessions, {claims:?}: {taken:?}");
            taken.in_all / sessions
        });
        assert!(few.max(many) <= BYTES_A_SESSION, "{claims:?}: {few} and {many} bytes a session");
        assert!(few.abs_diff(many) <= BYTES_OFF_THE_LINE, "{claims:?}: {few} and {many} bytes a session");
    }
}
