//! A holder that says nothing more: how long after its lease the next one has the lock.

use std::io;
use std::time::Duration;

use monolock_core::Lease;

use super::Context;
use super::crowd::{Until, crowd};
use super::throughput::CROWD;
use crate::client::Claim;
use crate::sheet::{Goal, Sheet};
use crate::statistics::median;
use crate::target::{Address, Kind, Target};

const LEASE: Duration = Duration::from_millis(150);

pub(super) fn alone(context: &Context, sheet: &mut Sheet) -> io::Result<()> {
    expire(context, sheet, 0)
}

pub(super) fn in_a_crowd(context: &Context, sheet: &mut Sheet) -> io::Result<()> {
    expire(context, sheet, context.many(CROWD))
}

fn expire(context: &Context, sheet: &mut Sheet, others: usize) -> io::Result<()> {
    let target = Target::start(Kind::Monolock, &context.programs)?;
    let _others = crowd(&target.address, others, Until::Later)?;
    let of = target.kind.name();
    for round in 0..context.rounds {
        // Each on a lock of its own: the end of the one before may be read after the next one's claim.
        let late = (0..context.many(10)).map(|number| expire_one(&target.address, &format!("silent/{round}/{number}")));
        let late = late.collect::<io::Result<Vec<_>>>()?;
        sheet.push("after the lease", "ms", of, median(&late));
        sheet.push("after the lease, the latest of a round", "ms", of, late.iter().copied().fold(0.0, f64::max));
    }
    sheet.judge_figure("after the lease", of, Goal::AtMost(3.0));
    sheet.judge_figure("after the lease, the latest of a round", of, Goal::AtMost(3.0));
    Ok(())
}

/// In milliseconds, from the sending of the claim: the server's window begins no earlier.
fn expire_one(address: &Address, name: &str) -> io::Result<f64> {
    let lease = Lease::try_from(LEASE).map_err(io::Error::other)?;
    let mut holder = Claim::make_with(address, name, lease)?;
    holder.expect_acquired()?;
    let mut waiter = Claim::make_with(address, name, Lease::MAX)?;
    waiter.expect_waiting()?;
    waiter.expect_acquired()?;
    Ok((holder.sent.elapsed().as_secs_f64() - LEASE.as_secs_f64()) * 1e3)
}
