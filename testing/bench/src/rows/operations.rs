//! What TLS, the audit log and the metrics add to a handover and to a heartbeat: one client thread, which closes one
//! socket and reads the next.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::Context;
use crate::client::Claim;
use crate::contest::Pace;
use crate::sheet::{Goal, Sheet};
use crate::statistics::median;
use crate::target::{Address, Kind, Target};

const KINDS: [Kind; 6] = [Kind::Relay, Kind::Monolock, Kind::Audit, Kind::Operations, Kind::Tls, Kind::MutualTls];

const REST: Duration = Duration::from_millis(2);

type Measure = fn(&Address, Pace, usize) -> io::Result<Vec<f64>>;

pub(super) fn operations(context: &Context, sheet: &mut Sheet) -> io::Result<()> {
    let targets = Target::start_all(&KINDS, &context.programs)?;
    let handover: (&str, Measure) = ("handover", handovers);
    let heartbeat: (&str, Measure) = ("heartbeat", heartbeats);
    let paces = [("one after the other", Pace::Hot, 500), ("after 2 ms of rest", Pace::Idle, 100)];
    for (what, measure) in [handover, heartbeat] {
        for (how, pace, count) in paces {
            let name = format!("{what}, {how}");
            // The relay knows no heartbeat.
            let is_known = |target: &&Target| what == "handover" || target.kind != Kind::Relay;
            for _ in 0..context.rounds {
                for target in targets.iter().filter(is_known) {
                    let times = measure(&target.address, pace, context.many(count))?;
                    sheet.push(&name, "µs", target.kind.name(), median(&times));
                }
            }
            let ours = Kind::Monolock.name();
            sheet.judge_ratio(&name, ours, Kind::Relay.name(), Goal::None);
            for kind in [Kind::Audit, Kind::Operations, Kind::Tls, Kind::MutualTls] {
                sheet.judge_ratio(&name, kind.name(), ours, Goal::None);
            }
        }
    }
    Ok(())
}

fn rest(pace: Pace) {
    if pace == Pace::Idle {
        thread::sleep(REST);
    }
}

/// One lock goes from one connection to the next, in microseconds.
fn handovers(server: &Address, pace: Pace, count: usize) -> io::Result<Vec<f64>> {
    let mut times = Vec::with_capacity(count);
    let mut holder = Claim::make(server)?;
    holder.await_acquired()?;
    for _ in 0..count {
        let mut waiter = Claim::make(server)?;
        waiter.expect_waiting()?;
        rest(pace);
        let start = Instant::now();
        drop(holder);
        waiter.expect_acquired()?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
        holder = waiter;
    }
    Ok(times)
}

/// One holder is heard, in microseconds.
fn heartbeats(server: &Address, pace: Pace, count: usize) -> io::Result<Vec<f64>> {
    let mut times = Vec::with_capacity(count);
    let mut holder = Claim::make(server)?;
    holder.await_acquired()?;
    for _ in 0..count {
        rest(pace);
        let start = Instant::now();
        holder.heartbeat()?;
        holder.expect_acquired()?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(times)
}
