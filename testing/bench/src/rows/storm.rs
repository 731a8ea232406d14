//! All clients come back at once to a server that has just started.

use std::io;

use super::Context;
use crate::generator::load;
use crate::sheet::{Goal, Sheet};
use crate::statistics::real;
use crate::target::{Kind, Target};

const CLIENTS: usize = 15_000;

const RATE: &str = "connections a second";

pub(super) fn storm(context: &Context, sheet: &mut Sheet) -> io::Result<()> {
    let clients = context.many(CLIENTS);
    for _ in 0..context.rounds {
        for kind in [Kind::Echo, Kind::Monolock] {
            let target = Target::start(kind, &context.programs)?;
            let load = load(&context.programs, &target, &format!("storm --connections {clients} --duration 1ms"))?;
            sheet.push(RATE, "/s", kind.name(), load.operations_per_second);
            sheet.push("placed again", "", kind.name(), load.operations / real(clients));
            sheet.push("CPU a client", "µs", kind.name(), load.server_process.processor_us_per_operation);
        }
    }
    let [floor, ours] = [Kind::Echo.name(), Kind::Monolock.name()];
    sheet.judge_figure("placed again", ours, Goal::AtLeast(1.0));
    sheet.judge_ratio(RATE, ours, floor, Goal::AtLeast(0.9));
    Ok(())
}
