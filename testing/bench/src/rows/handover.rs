//! From the holder's close to the next one's grant, beside the relay and beside what people would use instead.

use std::io;
use std::time::Duration;

use super::Context;
use crate::contest::{Contender, Contest, Pace, Session, contest};
use crate::generator::load;
use crate::peers::Way;
use crate::sheet::{Goal, Sheet};
use crate::statistics::{median, real};
use crate::target::{Kind, Target};

const KINDS: [Kind; 4] = [Kind::Relay, Kind::Monolock, Kind::Tls, Kind::MutualTls];

const HANDOVER: &str = "handover";

/// A contest is not longer than this, since some peers take a tenth of a second for each.
const LONGEST: Duration = Duration::from_millis(1500);

const CHAIN: usize = 3000;

pub(super) fn one_idle(context: &Context, sheet: &mut Sheet) -> io::Result<()> {
    compare(context, sheet, 1, Pace::Idle)
}

pub(super) fn one_hot(context: &Context, sheet: &mut Sheet) -> io::Result<()> {
    compare(context, sheet, 1, Pace::Hot)
}

pub(super) fn hundred_idle(context: &Context, sheet: &mut Sheet) -> io::Result<()> {
    compare(context, sheet, 100, Pace::Idle)
}

pub(super) fn hundred_hot(context: &Context, sheet: &mut Sheet) -> io::Result<()> {
    compare(context, sheet, 100, Pace::Hot)
}

/// Who gives the lock.
enum Giver<'a> {
    Server(&'a Target),
    Peer(Way),
}

impl Giver<'_> {
    const fn name(&self) -> &'static str {
        match self {
            Self::Server(target) => target.kind.name(),
            Self::Peer(way) => way.name(),
        }
    }

    fn contender(&self, context: &Context) -> io::Result<Box<dyn Contender>> {
        match (self, &context.peers) {
            (Self::Server(target), _) => Ok(Session::boxed(&target.address)),
            (Self::Peer(way), Some(peers)) => peers.contender(*way),
            (Self::Peer(_), None) => Err(io::Error::other("the peers do not run")),
        }
    }
}

fn compare(context: &Context, sheet: &mut Sheet, waiters: usize, pace: Pace) -> io::Result<()> {
    let targets = Target::start_all(&KINDS, &context.programs)?;
    let ways: &[Way] = if context.peers.is_some() { &Way::ALL } else { &[] };
    let servers = targets.iter().map(Giver::Server);
    let givers: Vec<Giver<'_>> = servers.chain(ways.iter().map(|way| Giver::Peer(*way))).collect();
    let count = context.many(match pace {
        Pace::Hot => 400,
        Pace::Idle => 100,
    });
    for _ in 0..context.rounds {
        for giver in &givers {
            let contenders = (0..=waiters).map(|_| giver.contender(context)).collect::<io::Result<Vec<_>>>()?;
            let Contest { handovers, served } = contest(contenders, pace, count, LONGEST)?;
            sheet.push(HANDOVER, "µs", giver.name(), median(&handovers));
            if waiters > 1 {
                sheet.push("contenders that had a turn", "", giver.name(), real(served));
            }
        }
    }
    let [relay, ours, tls, mutual] = KINDS.map(Kind::name);
    sheet.judge_ratio(HANDOVER, ours, relay, Goal::AtMost(1.10));
    sheet.judge_ratio(HANDOVER, tls, relay, Goal::AtMost(1.35));
    sheet.judge_ratio(HANDOVER, mutual, relay, Goal::None);
    for way in ways {
        let goal = if *way == Way::Postgres { 0.5 } else { 1.0 };
        sheet.judge_ratio(HANDOVER, ours, way.name(), Goal::AtMost(goal));
    }
    if !ways.is_empty() {
        sheet.notes.push("peers keep their connections; monolock's contenders connect anew for each claim".to_owned());
    }
    Ok(())
}

pub(super) fn chain(context: &Context, sheet: &mut Sheet) -> io::Result<()> {
    let kinds = [Kind::Relay, Kind::Monolock, Kind::Tls];
    let targets = Target::start_all(&kinds, &context.programs)?;
    let arguments = format!("handover --connections {} --duration 1ms", context.many(CHAIN) + 1);
    for _ in 0..context.rounds {
        for target in &targets {
            let load = load(&context.programs, target, &arguments)?;
            sheet.push(HANDOVER, "µs", target.kind.name(), 1e6 / load.operations_per_second);
            sheet.push("handovers a second", "/s", target.kind.name(), load.operations_per_second);
        }
    }
    let [relay, ours, tls] = kinds.map(Kind::name);
    sheet.judge_ratio(HANDOVER, ours, relay, Goal::AtMost(1.10));
    sheet.judge_ratio(HANDOVER, tls, relay, Goal::AtMost(1.35));
    sheet
        .notes
        .push("without the peers, none of which takes 3000 sessions as it comes: see 100 waiters, hot".to_owned());
    Ok(())
}
