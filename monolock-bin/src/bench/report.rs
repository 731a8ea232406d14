//! What came of a run, for people and as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::args::Close;
use super::crew::{Outcome, ServerUse};
use super::dial::Dialler;
use super::plan::Plan;

/// The whole result. Times are in the unit that their name ends in.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    scenario: &'static str,
    server: String,
    tls: &'static str,
    connections: usize,
    locks: usize,
    threads: usize,
    lease_ms: u32,
    close: &'static str,
    rate: Option<f64>,
    rounds: u64,
    elapsed_s: f64,
    operations: u64,
    operations_per_second: f64,
    failures: Failures,
    latency_us: Latency,
    /// How late the generator was, with `--rate`.
    lag_us: Option<Lag>,
    server_process: Option<ServerProcess>,
}

#[derive(Debug, Serialize)]
struct Failures {
    total: u64,
    kinds: BTreeMap<String, u64>,
}

#[derive(Debug, Serialize)]
struct Latency {
    measured_from: MeasuredFrom,
    p50: f64,
    p90: f64,
    p99: f64,
    #[serde(rename = "p99.9")]
    p99_9: f64,
    #[serde(rename = "p99.99")]
    p99_99: f64,
    max: f64,
    mean: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum MeasuredFrom {
    /// Corrected for coordinated omission.
    Intended,
    /// Of a closed loop.
    Sent,
}

#[derive(Debug, Serialize)]
struct Lag {
    p50: f64,
    p99: f64,
    max: f64,
}

#[derive(Debug, Serialize)]
struct ServerProcess {
    processor_s: f64,
    processor_us_per_operation: f64,
    resident_before_bytes: u64,
    resident_at_end_bytes: u64,
    resident_after_bytes: u64,
}

impl Report {
    pub(crate) fn new(plan: &Plan, dialler: &Dialler, outcome: &Outcome) -> Self {
        let Outcome { tally, rounds, elapsed, server } = outcome;
        let operations = tally.succeeded();
        let measured_from = if plan.rate.is_some() { MeasuredFrom::Intended } else { MeasuredFrom::Sent };
        Self {
            scenario: plan.scenario.name(),
            server: dialler.address.to_string(),
            tls: match &dialler.tls {
                None => "none",
                Some(tls) if tls.is_mutual => "mutual",
                Some(_) => "server",
            },
            connections: plan.connections,
            locks: plan.locks,
            threads: plan.threads,
            lease_ms: plan.lease.as_millis(),
            close: match plan.close {
                Close::Reset => "reset",
                Close::Orderly => "orderly",
            },
            rate: plan.rate,
            rounds: *rounds,
            elapsed_s: elapsed.as_secs_f64(),
            operations,
            operations_per_second: ratio(real(operations), elapsed.as_secs_f64()),
            failures: Failures {
                total: tally.failures.total(),
                kinds: tally.failures.iter().map(|(kind, count)| (kind.to_string(), count)).collect(),
            },
            latency_us: Latency {
                measured_from,
                p50: quantile(&tally.latency, 0.5),
                p90: quantile(&tally.latency, 0.9),
                p99: quantile(&tally.latency, 0.99),
                p99_9: quantile(&tally.latency, 0.999),
                p99_99: quantile(&tally.latency, 0.9999),
                max: quantile(&tally.latency, 1.0),
                mean: tally.latency.mean() / 1000.0,
            },
            lag_us: plan.rate.map(|_| Lag {
                p50: quantile(&tally.lag, 0.5),
                p99: quantile(&tally.lag, 0.99),
                max: quantile(&tally.lag, 1.0),
            }),
            server_process: server.map(|server| ServerProcess::new(server, operations)),
        }
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("all of it can be JSON")
    }
}

impl ServerProcess {
    fn new(server: ServerUse, operations: u64) -> Self {
        let ServerUse { processor, resident_before, resident_at_end, resident_after } = server;
        Self {
            processor_s: processor.as_secs_f64(),
            processor_us_per_operation: ratio(processor.as_secs_f64() * 1e6, real(operations)),
            resident_before_bytes: resident_before,
            resident_at_end_bytes: resident_at_end,
            resident_after_bytes: resident_after,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, server, connections, locks, elapsed_s, operations, operations_per_second, .. } = self;
        let transport = match self.tls {
            "none" => "plain TCP",
            "mutual" => "mutual TLS",
            _ => "TLS",
        };
        let locks = if *locks == 1 { "1 lock".to_owned() } else { format!("{locks} locks") };
        writeln!(
            f,
            "{scenario} at {server}: {connections} connections, {locks}, {transport}, {} threads",
            self.threads
        )?;
        writeln!(f, "operations  {operations} in {elapsed_s:.2} s, {operations_per_second:.0} a second")?;
        match self.failures.total {
            0 => writeln!(f, "failures    none")?,
            total => {
                let kinds: Vec<String> =
                    self.failures.kinds.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
                writeln!(f, "failures    {total}: {}", kinds.join(", "))?;
            }
        }
        let from = match self.latency_us.measured_from {
            MeasuredFrom::Intended => "from the intended instant: corrected for coordinated omission",
            MeasuredFrom::Sent => "from the real beginning: a closed loop",
        };
        writeln!(f, "latency     {from}")?;
        let Latency { p50, p90, p99, p99_9, p99_99, max, .. } = self.latency_us;
        let quantiles = [("p50", p50), ("p90", p90), ("p99", p99), ("p99.9", p99_9), ("p99.99", p99_99), ("max", max)];
        let lines: Vec<String> =
            quantiles.iter().map(|(name, value)| format!("  {name:<8}  {:>10}", time(*value))).collect();
        write!(f, "{}", lines.join("\n"))?;
        if let Some(Lag { p99, max, .. }) = self.lag_us {
            write!(f, "\nlag         the generator itself was late by {} at p99, {} at most", time(p99), time(max))?;
        }
        if let Some(server) = &self.server_process {
            let memory = [server.resident_before_bytes, server.resident_at_end_bytes, server.resident_after_bytes];
            let [before, at_end, after] = memory.map(|bytes| format!("{:.1} MiB", real(bytes) / 1_048_576.0));
            write!(
                f,
                "\nserver      {} of processor time an operation; memory {before} before, {at_end} at the end, {after} when \
                 all had left",
                time(server.processor_us_per_operation)
            )?;
        }
        Ok(())
    }
}

/// Microseconds, readable.
fn time(microseconds: f64) -> String {
    let microseconds = if microseconds.is_finite() { microseconds.max(0.0) } else { 0.0 };
    format!("{:.1?}", Duration::from_secs_f64(microseconds / 1e6))
}

fn quantile(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    if histogram.is_empty() { 0.0 } else { real(histogram.value_at_quantile(quantile)) / 1000.0 }
}

fn ratio(of: f64, to: f64) -> f64 {
    if to > 0.0 { of / to } else { 0.0 }
}

#[expect(clippy::cast_precision_loss, reason = "figures have three digits that count")]
const fn real(number: u64) -> f64 {
    number as f64
}
