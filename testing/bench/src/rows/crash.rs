//! A process that holds the lock is killed; the system closes its socket, and the next is granted.

use std::io::{self, BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::Context;
use crate::client::Claim;
use crate::process::Kept;
use crate::sheet::{Goal, Sheet};
use crate::statistics::median;
use crate::target::{Kind, Target};

const KINDS: [Kind; 3] = [Kind::Relay, Kind::Monolock, Kind::Tls];

const TIME: &str = "kill to grant";

pub(super) fn crash(context: &Context, sheet: &mut Sheet) -> io::Result<()> {
    let targets = Target::start_all(&KINDS, &context.programs)?;
    for _ in 0..context.rounds {
        for target in &targets {
            let times = (0..context.many(20)).map(|_| kill_one(context, target)).collect::<io::Result<Vec<_>>>()?;
            sheet.push(TIME, "µs", target.kind.name(), median(&times));
        }
    }
    let [relay, ours, tls] = KINDS.map(Kind::name);
    sheet.judge_ratio(TIME, ours, relay, Goal::AtMost(1.2));
    sheet.judge_ratio(TIME, tls, relay, Goal::None);
    Ok(())
}

fn kill_one(context: &Context, target: &Target) -> io::Result<f64> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["hold", &target.address.socket.to_string()]);
    if target.kind.is_tls() {
        command.arg(context.programs.certificates.authority_file());
    }
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().expect("standard output is piped");
    let mut holder = Kept(child);
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    if line != "held\n" {
        return Err(io::Error::other("the holder did not get the lock"));
    }
    let mut waiter = Claim::make(&target.address)?;
    waiter.expect_waiting()?;
    let start = Instant::now();
    holder.0.kill()?;
    waiter.expect_acquired()?;
    Ok(start.elapsed().as_secs_f64() * 1e6)
}
