//! Cycles and heartbeats beside a server that only answers: how many, and what each takes of the server's processor.

use std::io;

use super::Context;
use crate::generator::load;
use crate::sheet::{Goal, Sheet};
use crate::statistics::real;
use crate::target::{Kind, Target};

const KINDS: [Kind; 4] = [Kind::Echo, Kind::Monolock, Kind::Tls, Kind::MutualTls];

const RATE: &str = "throughput";
const PROCESSOR: &str = "CPU an operation";

pub(super) fn cycle_of_one(context: &Context, sheet: &mut Sheet) -> io::Result<()> {
    compare(context, sheet, "cycle --connections 1", 1.10)
}

pub(super) fn cycle_of_fifty(context: &Context, sheet: &mut Sheet) -> io::Result<()> {
    compare(context, sheet, "cycle --connections 50", 1.10)
}

pub(super) fn heartbeat_of_one(context: &Context, sheet: &mut Sheet) -> io::Result<()> {
    compare(context, sheet, "heartbeat --connections 1", 1.15)
}

pub(super) fn heartbeat_of_fifty(context: &Context, sheet: &mut Sheet) -> io::Result<()> {
    compare(context, sheet, "heartbeat --connections 50", 1.15)
}

fn compare(context: &Context, sheet: &mut Sheet, scenario: &str, most_processor: f64) -> io::Result<()> {
    let targets = Target::start_all(&KINDS, &context.programs)?;
    let arguments = |ms| format!("{scenario} --duration {}", context.milliseconds(ms));
    for target in &targets {
        // Once for nothing: caches, branch predictors and the allocator's pools.
        load(&context.programs, target, &arguments(200))?;
    }
    for _ in 0..context.rounds {
        for target in &targets {
            let load = load(&context.programs, target, &arguments(1000))?;
            let of = target.kind.name();
            sheet.push(RATE, "/s", of, load.operations_per_second);
            sheet.push(PROCESSOR, "µs", of, load.server_process.processor_us_per_operation);
            sheet.push("median latency", "µs", of, load.latency_us.p50);
            sheet.push("failures", "", of, load.failures.total);
        }
    }
    let [floor, ours] = [Kind::Echo.name(), Kind::Monolock.name()];
    sheet.judge_ratio(RATE, ours, floor, Goal::AtLeast(0.95));
    sheet.judge_ratio(PROCESSOR, ours, floor, Goal::AtMost(most_processor));
    for tls in [Kind::Tls, Kind::MutualTls] {
        sheet.judge_ratio(RATE, tls.name(), ours, Goal::None);
    }
    Ok(())
}

/// As many sessions as a process here has descriptors for.
pub(super) const CROWD: usize = 19_000;

pub(super) fn crowd_of_beats(context: &Context, sheet: &mut Sheet) -> io::Result<()> {
    let connections = context.many(CROWD);
    let duration = context.milliseconds(4000);
    let arguments = format!("heartbeat --connections {connections} --rate {connections} --duration {duration}");
    for _ in 0..context.rounds {
        for kind in [Kind::Echo, Kind::Monolock] {
            let target = Target::start(kind, &context.programs)?;
            let load = load(&context.programs, &target, &arguments)?;
            let of = kind.name();
            sheet.push("CPU a beat", "µs", of, load.server_process.processor_us_per_operation);
            sheet.push("median latency", "µs", of, load.latency_us.p50);
            sheet.push("beats served", "", of, load.operations / (load.operations + load.failures.total));
            let intended = real(connections);
            sheet.push("share of the intended rate", "", of, load.operations / load.elapsed_s / intended);
        }
    }
    let [floor, ours] = [Kind::Echo.name(), Kind::Monolock.name()];
    sheet.judge_figure("beats served", ours, Goal::AtLeast(1.0));
    sheet.judge_figure("share of the intended rate", ours, Goal::AtLeast(0.99));
    sheet.judge_ratio("CPU a beat", ours, floor, Goal::AtMost(1.15));
    Ok(())
}
