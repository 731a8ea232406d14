//! `monolock demo`: the story as it is told, without its times.

use crate::support::{assert_in_order, monolock, outcome, words};

#[test]
fn the_demo_tells_its_story() {
    let ended = outcome(&mut monolock(words("demo --lease 1500ms")));
    assert_eq!((ended.status, ended.stderr.as_str()), (0, ""));
    assert_in_order(
        &ended.stdout,
        &[
            "leases of 1.5s",
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
