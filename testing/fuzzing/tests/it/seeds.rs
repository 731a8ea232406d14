//! The golden vectors are inputs too: what all clients' tests read, the fuzz target has seen.

use std::fs;
use std::path::Path;

use monolock_fuzzing::wire;
use serde_json::Value;

#[test]
fn every_golden_vector_keeps_the_laws_of_the_wire() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/vectors.json");
    let vectors: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let sections = vectors.as_object().unwrap().values().filter_map(Value::as_array);
    let frames: Vec<_> = sections.flatten().filter_map(|vector| vector["hex"].as_str()).collect();
    assert!(frames.len() > 30, "only {} vectors", frames.len());
    for hex in frames {
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        for cuts in 0..4 {
            wire(&[cuts].into_iter().chain((0..hex.len()).step_by(2).map(byte)).collect::<Vec<_>>());
        }
    }
}
