//! Plays a scripted server against any client.
fn main() {}
