//! Whether more cores help, and whether shards do. The load generator has to live on the same cores.

use std::io;

use super::Context;
use crate::generator::load;
use crate::sheet::{Goal, Sheet};
use crate::target::{Kind, Target};

const KINDS: [Kind; 4] = [Kind::OneWorker, Kind::Monolock, Kind::OneShard, Kind::ManyShards];

pub(super) fn scaling(context: &Context, sheet: &mut Sheet) -> io::Result<()> {
    let targets = Target::start_all(&KINDS, &context.programs)?;
    for scenario in ["cycle", "heartbeat"] {
        let rate = format!("{scenario}s");
        let processor = format!("CPU a {scenario}");
        let arguments = format!("{scenario} --connections 50 --duration {}", context.milliseconds(1000));
        for _ in 0..context.rounds {
            for target in &targets {
                let load = load(&context.programs, target, &arguments)?;
                sheet.push(&rate, "/s", target.kind.name(), load.operations_per_second);
                sheet.push(&processor, "µs", target.kind.name(), load.server_process.processor_us_per_operation);
            }
        }
        sheet.judge_ratio(&rate, Kind::Monolock.name(), Kind::OneWorker.name(), Goal::None);
        sheet.judge_ratio(&rate, Kind::ManyShards.name(), Kind::OneShard.name(), Goal::None);
    }
    Ok(())
}
