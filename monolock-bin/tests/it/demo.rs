//! `monolock demo`: the story as it is told, without its times.

use crate::support::{PATIENCE, assert_in_order, monolock, outcome_within, words};

#[test]
fn the_demo_tells_its_story() {
    let ended = outcome_within(PATIENCE * 3, &mut monolock(words("demo --lease 6s")));
    assert_eq!((ended.status, ended.stderr.as_str()), (0, ""));
    assert_in_order(
        &ended.stdout,
        &[
            "leases of 6s",
            "A  asks first, and owns the lock",
            "B  asks, and queues behind A",
            "C  asks, and queues behind B",
            "controlled stop",
            "A  finishes",
            "B  owns the lock",
            " later",
            "A  comes back, and queues behind C",
            "crash",
            "B  is killed",
            "C  owns the lock",
            " later",
            "hang",
            "C  is frozen",
            "A  owns the lock",
            "after C's last heartbeat",
            "C  wakes up, and sees that it has lost the lock",
            "A  finishes",
            "Four turns in the order of asking",
        ],
    );
}
