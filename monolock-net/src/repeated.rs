//! Failures that go on are told at a bounded rate, with how many there were.

use std::time::Duration;

use tokio::time::Instant;

use crate::sync::Mutex;

/// Of failures that go on, one a time is told.
const INTERVAL: Duration = Duration::from_secs(5);

/// One kind of failure.
#[derive(Debug, Default)]
pub(crate) struct Repeated {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    untold: u64,
    last_told: Option<Instant>,
}

impl Repeated {
    /// Notes a failure. When it is time to tell of it, says how many there have been since the last that was told.
    pub(crate) fn note(&self) -> Option<u64> {
        let mut state = self.state.lock();
        state.untold += 1;
        if state.last_told.is_some_and(|told| told.elapsed() < INTERVAL) {
            return None;
        }
        state.last_told = Some(Instant::now());
        Some(std::mem::take(&mut state.untold))
    }
}
