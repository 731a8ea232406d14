//! What is counted: latencies, failures, and how far behind its own schedule the generator was.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::failures::FailureKind;

/// Longer ones count as this long, in nanoseconds: an hour.
const LONGEST: u64 = 3_600_000_000_000;

/// What one thread has counted, or all together.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Of operations that succeeded, in nanoseconds.
    pub(crate) latency: Histogram<u64>,
    /// How late operations were begun for no fault of the server, in nanoseconds.
    pub(crate) lag: Histogram<u64>,
    pub(crate) failures: Failures,
}

impl Tally {
    pub(crate) fn new() -> Self {
        let histogram = || Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are in order");
        Self { latency: histogram(), lag: histogram(), failures: Failures::default() }
    }

    pub(crate) fn succeeded(&self) -> u64 {
        self.latency.len()
    }

    pub(crate) fn record(&mut self, latency: Duration) {
        self.latency.saturating_record(nanoseconds(latency));
    }

    pub(crate) fn record_lag(&mut self, lag: Duration) {
        self.lag.saturating_record(nanoseconds(lag));
    }

    /// Takes another's counts in.
    pub(crate) fn add(&mut self, other: &Self) {
        let Self { latency, lag, failures } = other;
        self.latency.add(latency).expect("all have the same bounds");
        self.lag.add(lag).expect("all have the same bounds");
        for (kind, count) in &failures.0 {
            *self.failures.0.entry(*kind).or_default() += count;
        }
    }
}

/// Failures by kind. There are fewer than 300 kinds.
#[derive(Debug, Default)]
pub(crate) struct Failures(BTreeMap<FailureKind, u64>);

impl Failures {
    pub(crate) fn count(&mut self, kind: FailureKind) {
        *self.0.entry(kind).or_default() += 1;
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (FailureKind, u64)> + '_ {
        self.0.iter().map(|(kind, count)| (*kind, *count))
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// The most frequent kind.
    pub(crate) fn first(&self) -> Option<FailureKind> {
        self.0.iter().max_by_key(|(_, count)| **count).map(|(kind, _)| *kind)
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
