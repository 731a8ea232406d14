//! What an idle waiter takes of the server's memory, and whether it comes back.

use std::io;

use super::Context;
use crate::generator::load;
use crate::sheet::{Goal, Sheet};
use crate::statistics::{Line, real};
use crate::target::{Kind, Target};

const WAITERS: [usize; 4] = [1_000, 5_000, 10_000, 19_000];

/// Clients before those that are counted: few, since what they leave in the heap is taken by the others.
const FIRST: usize = 2;

/// Handshakes take long, and memory hardly differs from round to round.
const ROUNDS_OF_TLS: usize = 2;

pub(super) fn plain(context: &Context, sheet: &mut Sheet) -> io::Result<()> {
    compare(context, sheet, Kind::Monolock, context.rounds, 1.25)
}

pub(super) fn tls(context: &Context, sheet: &mut Sheet) -> io::Result<()> {
    compare(context, sheet, Kind::Tls, context.rounds.min(ROUNDS_OF_TLS), 10.0)
}

fn compare(context: &Context, sheet: &mut Sheet, kind: Kind, rounds: usize, most: f64) -> io::Result<()> {
    let mut straightness = Vec::new();
    for _ in 0..rounds {
        let mut points = Vec::new();
        for waiters in WAITERS.map(|waiters| context.many(waiters)) {
            let target = Target::start(kind, &context.programs)?;
            // Once for nothing: what the first clients make the program load is nobody's memory in particular.
            load(&context.programs, &target, &format!("idle --connections {FIRST} --duration 1ms"))?;
            let load = load(&context.programs, &target, &format!("idle --connections {waiters} --duration 500ms"))?;
            if load.failures.total > 0.0 {
                return Err(io::Error::other(format!("{} of {waiters} waiters failed", load.failures.total)));
            }
            let memory = load.server_process;
            let grown = memory.resident_at_end_bytes - memory.resident_before_bytes;
            let kept = memory.resident_after_bytes - memory.resident_before_bytes;
            points.push((real(waiters), grown / 1024.0));
            let of = format!("{waiters} waiters");
            sheet.push("memory a waiter", "KiB", &of, grown / 1024.0 / real(waiters));
            sheet.push("memory grown", "MiB", &of, grown / 1_048_576.0);
            sheet.push("share kept when they have left", "", &of, (kept / grown).max(0.0));
        }
        if let Some(line) = Line::through(&points) {
            sheet.push("slope", "KiB", kind.name(), line.slope);
            straightness.push(line.r_squared);
        }
    }
    let [least, .., largest] = WAITERS.map(|waiters| format!("{} waiters", context.many(waiters)));
    sheet.judge_figure("memory a waiter", &least, Goal::AtMost(most));
    sheet.judge_figure("memory a waiter", &largest, Goal::AtMost(most));
    sheet.judge_figure("slope", kind.name(), Goal::AtMost(most));
    sheet.judge("how straight the line is (R²)".to_owned(), "", &straightness, Goal::AtLeast(0.99));
    sheet.judge_figure("share kept when they have left", &largest, Goal::AtMost(0.25));
    Ok(())
}
