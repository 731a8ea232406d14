//! Everything that monolock-core promises, through its public door.
#![expect(clippy::unwrap_used, reason = "a test that unwraps fails where it stands")]

mod agreement;
mod behaviour;
mod glob;
mod invariants;
mod laws;
mod model;
mod scenarios;
mod script;
mod story;
mod vocabulary;
mod wire;
mod world;

/// The example is a promise too.
#[path = "../../examples/embedded_engine.rs"]
mod embedded_engine;

#[test]
fn the_example_tells_its_story() {
    embedded_engine::main();
}
