//! What the client promises, by scenario.

mod blocking;
mod driver;
mod leaks;
mod machine;
mod safety;
mod script;
mod server;
