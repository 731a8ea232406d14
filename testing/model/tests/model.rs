//! Every model, in as many interleavings as `MONOLOCK_SCHEDULES` says.

use monolock_model::{Search, check, scenarios};

macro_rules! models {
    ($($search:ident $model:ident),* $(,)?) => {
        $(
            #[test]
            fn $model() {
                check(stringify!($model), Search::$search, scenarios::$model);
            }
        )*
    };
}

models! {
    Random a_release_meets_heartbeats,
    Random a_slow_reader_is_promoted,
    Random a_client_leaves_while_it_is_promoted,
    Random a_client_resets_while_it_is_promoted,
    Random a_client_babbles_while_it_is_promoted,
    Random an_operator_ends_claims,
    Random a_lease_runs_out,
    Random an_expiry_meets_a_kick,
    Random a_stop_meets_everything,
    Random a_stop_meets_the_first_claim,
    Random a_write_takes_too_long,
    Random a_network_fails,
    Random a_grace_ends,
    Random all_at_once,
    Random audit_lines_are_written,
    Exhaustive an_end_meets_a_write,
    Random writers_share_a_connection,
    Random writers_share_a_slow_connection,
}
