#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| monolock_fuzzing::engine(bytes));
