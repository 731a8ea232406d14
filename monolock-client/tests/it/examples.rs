//! The examples run as they stand.

#[path = "../../examples/fencing.rs"]
mod fencing;

#[test]
fn b03_a_stale_holder_is_refused_by_a_fenced_row() {
    fencing::main().unwrap();
}
