//! What happened in a case, in the order in which it did: the transcript under a failure.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The notes of one case. Clones write into the same.
#[derive(Clone, Debug)]
pub struct Timeline(Arc<Notes>);

#[derive(Debug)]
struct Notes {
    origin: Instant,
    lines: Mutex<Vec<(Duration, String)>>,
}

impl Timeline {
    /// Begins now.
    pub fn new() -> Self {
        Self(Arc::new(Notes { origin: Instant::now(), lines: Mutex::default() }))
    }

    /// Notes what happened at that instant.
    pub fn note(&self, at: Instant, what: impl Into<String>) {
        let since = at.saturating_duration_since(self.0.origin);
        self.0.lines.lock().unwrap_or_else(PoisonError::into_inner).push((since, what.into()));
    }

    /// The instant as this timeline counts it.
    pub fn clock(&self, at: Instant) -> String {
        format!("{:.3} s", at.saturating_duration_since(self.0.origin).as_secs_f64())
    }

    /// All notes, in the order of their instants.
    pub fn transcript(&self) -> Vec<String> {
        let mut lines = self.0.lines.lock().unwrap_or_else(PoisonError::into_inner).clone();
        lines.sort_by_key(|(at, _)| *at);
        lines.into_iter().map(|(at, what)| format!("{:>7.3} s  {what}", at.as_secs_f64())).collect()
    }
}

impl Default for Timeline {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.transcript().iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}
