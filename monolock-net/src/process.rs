//! What Linux says about the process, under the names that every Prometheus client uses.

use std::fmt;

use procfs::process::{LimitValue, Process};
use procfs::{ProcError, ProcResult};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Reads `/proc` at each scrape. What cannot be read is left out.
#[derive(Debug)]
pub(crate) struct ProcessCollector {
    /// In seconds of Unix time.
    start_time: Option<f64>,
}

/// A reading of `/proc`.
struct Reading {
    cpu_seconds: f64,
    resident_bytes: u64,
    virtual_bytes: u64,
    open_descriptors: Option<u64>,
    max_descriptors: Option<u64>,
}

impl ProcessCollector {
    pub(crate) fn new() -> Self {
        Self { start_time: start_time().ok() }
    }
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        if let Some(start_time) = self.start_time {
            gauge(&mut encoder, "start_time_seconds", "When the process began, in seconds of Unix time.", start_time)?;
        }
        let Ok(Reading { cpu_seconds, resident_bytes, virtual_bytes, open_descriptors, max_descriptors }) = read()
        else {
            return Ok(());
        };
        let cpu = ConstCounter::new(cpu_seconds);
        cpu.encode(encoder.encode_descriptor(
            "cpu_seconds",
            "User and system time of the process, in seconds.",
            None,
            cpu.metric_type(),
        )?)?;
        gauge(&mut encoder, "resident_memory_bytes", "Memory of the process in bytes.", number(resident_bytes))?;
        gauge(&mut encoder, "virtual_memory_bytes", "Address space of the process in bytes.", number(virtual_bytes))?;
        if let Some(open) = open_descriptors {
            gauge(&mut encoder, "open_fds", "Descriptors that are open.", number(open))?;
        }
        if let Some(max) = max_descriptors {
            gauge(&mut encoder, "max_fds", "Descriptors that may be open.", number(max))?;
        }
        Ok(())
    }
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: f64) -> Result<(), fmt::Error> {
    let gauge = ConstGauge::new(value);
    gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
}

fn start_time() -> ProcResult<f64> {
    let ticks = Process::myself()?.stat()?.starttime;
    Ok(number(procfs::boot_time_secs()?) + seconds(ticks))
}

fn read() -> Result<Reading, ProcError> {
    let process = Process::myself()?;
    let stat = process.stat()?;
    let max_descriptors = process.limits().ok().and_then(|limits| match limits.max_open_files.soft_limit {
        LimitValue::Value(limit) => Some(limit),
        LimitValue::Unlimited => None,
    });
    Ok(Reading {
        cpu_seconds: seconds(stat.utime + stat.stime),
        resident_bytes: stat.rss.saturating_mul(procfs::page_size()),
        virtual_bytes: stat.vsize,
        open_descriptors: process.fd_count().ok().map(|count| count as u64),
        max_descriptors,
    })
}

fn seconds(ticks: u64) -> f64 {
    number(ticks) / number(procfs::ticks_per_second())
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus knows no other numbers")]
fn number(value: u64) -> f64 {
    value as f64
}
