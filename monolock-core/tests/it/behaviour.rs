//! What a human tells about locks.

use crate::script::check;

#[test]
fn a_free_lock_is_granted_and_the_rest_queue_in_order() {
    check(
        "
         0s acquire jobs a lease=10s   -> a granted #1
         1s acquire jobs b lease=10s   -> b queued behind 1
         2s acquire jobs c lease=10s   -> c queued behind 2
            show jobs                  -> a holds #1; b waits; c waits
         3s release a                  -> a released #1; b granted #2
         4s acquire jobs a lease=10s   -> a queued behind 2
         5s release b                  -> b released #2; c granted #3
         6s release c                  -> c released #3; a granted #4
         7s release a                  -> a released #4
            show jobs                  -> nobody
            deadline                   -> never
        ",
    );
}

#[test]
fn locks_know_nothing_of_each_other() {
    check(
        "
        0s acquire jobs a lease=2s    -> a granted #1
        0s acquire mail b lease=9s    -> b granted #2
        0s acquire Jobs c lease=9s    -> c granted #3
        1s acquire mail d lease=9s    -> d queued behind 1
        2s tick                       -> a expired #1
           show mail                  -> b holds #2; d waits
        ",
    );
}

#[test]
fn a_silent_holder_loses_the_lock_when_its_lease_is_out() {
    check(
        "
         0s acquire jobs a lease=10s   -> a granted #1
         4s acquire jobs b lease=7s    -> b queued behind 1
            deadline                   -> 10s
         9.999999999s tick             -> nothing
        10s tick                       -> a expired #1 held=10s; b granted #2 waited=6s
            deadline                   -> 11s
        11s tick                       -> b expired #2 held=1s
        ",
    );
}

#[test]
fn a_heartbeat_runs_the_lease_anew() {
    check(
        "
         0s acquire jobs a lease=10s   -> a granted #1
         1s acquire jobs b lease=4s    -> b queued behind 1
         4s heartbeat b                -> b waits
         9s heartbeat a                -> b expired; a holds #1
            deadline                   -> 10s
        10s tick                       -> nothing
            deadline                   -> 19s
        18.999s heartbeat a            -> a holds #1
        19s tick                       -> nothing
        28.999s tick                   -> a expired #1 held=28.999s
        ",
    );
}

#[test]
fn a_grant_is_no_sign_of_life() {
    check(
        "
        0s acquire jobs a lease=1m    -> a granted #1
        1s acquire jobs b lease=5s    -> b queued behind 1
        4s release a                  -> a released #1; b granted #2
        6s tick                       -> b expired #2 held=2s
        ",
    );
}

#[test]
fn a_waiter_in_mid_queue_leaves_the_order_of_the_rest() {
    check(
        "
        0s acquire jobs a lease=1m    -> a granted #1
        0s acquire jobs b lease=1m    -> b queued behind 1
        0s acquire jobs c lease=1m    -> c queued behind 2
        0s acquire jobs d lease=1m    -> d queued behind 3
        0s acquire jobs e lease=1m    -> e queued behind 4
        1s release c                  -> c withdrawn waited=1s
           show jobs                  -> a holds #1; b waits; d waits; e waits
        2s release e force            -> e withdrawn force
        3s release b io_timeout       -> b withdrawn io_timeout
           show jobs                  -> a holds #1; d waits
        4s acquire jobs f lease=1m    -> f queued behind 2
        5s release a                  -> a released #1; d granted #2
        6s release d                  -> d released #2; f granted #3
        ",
    );
}

#[test]
fn a_late_tick_ends_in_the_order_of_the_deadlines() {
    check(
        "
         0s acquire x a lease=9s       -> a granted #1
         0s acquire y b lease=3s       -> b granted #2
         0s acquire z c lease=6s       -> c granted #3
         0s acquire z d lease=6s       -> d queued behind 1
         2s heartbeat b                -> b holds #2
        60s tick                       -> b expired #2; c expired #3; d expired; a expired #1
        ",
    );
}

#[test]
fn a_late_tick_puts_a_session_that_was_heard_where_its_new_deadline_lies() {
    check(
        "
          0s acquire x a lease=10ms     -> a granted #1
          0s acquire y b lease=12ms     -> b granted #2
         5ms heartbeat a                -> a holds #1
          1h tick                       -> b expired #2; a expired #1
        ",
    );
}

#[test]
fn equal_deadlines_end_in_the_order_of_arrival() {
    check(
        "
        0s acquire x c lease=2s       -> c granted #1
        1s acquire y a lease=1s       -> a granted #2
        1s acquire z b lease=1s       -> b granted #3
        9s tick                       -> c expired #1; a expired #2; b expired #3
        ",
    );
}

#[test]
fn a_waiter_that_is_out_of_time_at_its_turn_is_passed_over() {
    check(
        "
        0s acquire jobs a lease=3s    -> a granted #1
        0s acquire jobs b lease=5s    -> b queued behind 1
        0s acquire jobs c lease=4s    -> c queued behind 2
        0s acquire jobs d lease=9s    -> d queued behind 3
        6s tick                       -> a expired #1; b expired; c expired; d granted #2
        ",
    );
}

#[test]
fn every_input_settles_the_past_first() {
    check(
        "
        0s acquire jobs a lease=3s    -> a granted #1
        0s acquire jobs b lease=9s    -> b queued behind 1
        3s heartbeat a                -> a expired #1; b granted #2; a: no such session
        9s acquire jobs c lease=3s    -> b expired #2; c granted #3
        12s close                     -> c expired #3
        ",
    );
}

#[test]
fn b27_a_client_that_asks_twice_queues_behind_itself() {
    check(
        "
        0s acquire jobs a lease=9s        -> a granted #1
        1s acquire jobs a-again lease=9s  -> a-again queued behind 1
           show jobs                      -> a holds #1; a-again waits
        2s release a                      -> a released #1; a-again granted #2
        ",
    );
}

#[test]
fn a_stale_id_finds_nothing() {
    check(
        "
        0s acquire jobs a lease=9s    -> a granted #1
        1s release a                  -> a released #1
        1s release a                  -> a: no such session
        1s acquire jobs b lease=9s    -> b granted #2
        2s heartbeat a                -> a: no such session
        2s release a force            -> a: no such session
           show jobs                  -> b holds #2
        ",
    );
}

#[test]
fn in_the_grace_claims_only_queue() {
    check(
        "
        granting from 5s
        0s acquire jobs a lease=9s    -> a queued behind 0
        1s acquire jobs b lease=9s    -> b queued behind 1
        1s acquire mail c lease=2s    -> c queued behind 0
        2s heartbeat a                -> a waits
           show jobs                  -> a waits; b waits
           deadline                   -> 3s
        3s tick                       -> c expired
           deadline                   -> 5s
        4.999s tick                   -> nothing
        5s tick                       -> a granted #1 waited=5s
        6s acquire mail d lease=2s    -> d granted #2
        ",
    );
}

#[test]
fn expiries_come_before_the_end_of_the_grace() {
    check(
        "
        granting from 5s
         0s acquire jobs a lease=4s    -> a queued behind 0
         0s acquire jobs b lease=7s    -> b queued behind 1
         0s acquire jobs c lease=1m    -> c queued behind 2
        10s tick                       -> a expired; b expired; c granted #1
        ",
    );
}

#[test]
fn a_waiter_of_the_grace_can_leave() {
    check(
        "
        granting from 5s
        0s acquire jobs a lease=9s    -> a queued behind 0
        0s acquire jobs b lease=9s    -> b queued behind 1
        1s release a                  -> a withdrawn
        1s release b                  -> b withdrawn
           show jobs                  -> nobody
           deadline                   -> never
        ",
    );
}

#[test]
fn a_grace_in_which_nobody_came_is_over_all_the_same() {
    check(
        "
        granting from 5s
           deadline                   -> never
        5s acquire jobs a lease=9s    -> a granted #1
        ",
    );
}

#[test]
fn closing_ends_all_and_promotes_nobody() {
    check(
        "
        0s acquire jobs a lease=9s    -> a granted #1
        1s acquire jobs b lease=9s    -> b queued behind 1
        1s acquire jobs c lease=9s    -> c queued behind 2
        1s acquire mail d lease=9s    -> d granted #2
        2s close -> b withdrawn shutdown; c withdrawn shutdown; a released #1 shutdown; d released #2 shutdown
        3s acquire jobs e lease=9s    -> e refused: the engine is closed
        3s heartbeat a                -> a: no such session
        4s close                      -> nothing
           deadline                   -> never
        ",
    );
}

#[test]
fn closing_in_the_grace_grants_nothing() {
    check(
        "
        granting from 5s
        0s acquire jobs a lease=9s    -> a queued behind 0
        1s close                      -> a withdrawn shutdown
        9s tick                       -> nothing
        ",
    );
}

#[test]
fn time_that_steps_back_stands_still() {
    check(
        "
        10s acquire jobs a lease=5s    -> a granted #1
         2s acquire jobs b lease=9s    -> b queued behind 1
         3s heartbeat a                -> a holds #1
            deadline                   -> 15s
         0s tick                       -> nothing
        14s tick                       -> nothing
         1s release a                  -> a released #1 held=4s; b granted #2 waited=4s
        19s tick                       -> b expired #2 held=5s
        ",
    );
}

#[test]
fn a_clock_that_leaps_ends_what_is_out_of_time_and_no_more() {
    check(
        "
          0s acquire jobs a lease=49d   -> a granted #1
          0s acquire jobs b lease=1ms   -> b queued behind 1
        48d tick                        -> b expired
        49d tick                        -> a expired #1
        ",
    );
}

#[test]
fn tokens_follow_the_wall_clock_up_and_never_down() {
    check(
        "
        wall 0s
        0s acquire x a lease=9s       -> a granted #1
        wall 1s
        0s acquire y b lease=9s       -> b granted #1048576
        wall 0s
        0s acquire z c lease=9s       -> c granted #1048577
        ",
    );
}

#[test]
fn without_tokens_claims_only_queue_and_are_granted_in_order_when_there_are_new_ones() {
    check(
        "
        tokens below 3
         0s acquire jobs a lease=10s   -> a granted #1
         0s acquire jobs b lease=60s   -> b queued behind 1
         0s acquire jobs c lease=60s   -> c queued behind 2
         1s acquire mail d lease=60s   -> d granted #2
         2s release a                  -> a released #1
         2s acquire news e lease=60s   -> e queued behind 0
         3s acquire jobs f lease=60s   -> f queued behind 2
         4s heartbeat b                -> b waits
         4s release b                  -> b withdrawn
        tokens below 100
         5s tick                       -> c granted #4; e granted #5
         6s release c                  -> c released #4; f granted #6
        ",
    );
}

#[test]
fn without_tokens_a_waiter_still_expires_and_the_last_one_leaves_nothing() {
    check(
        "
        tokens below 1
         0s acquire jobs a lease=10s   -> a queued behind 0
        show jobs                      -> a waits
        10s tick                       -> a expired
        show jobs                      -> nobody
        tokens below 9
        11s acquire jobs b lease=10s   -> b granted #2
        ",
    );
}
