//! What is measured, and how soon one measurement follows the other.

use std::fmt;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use crate::client::Claim;
use crate::target::{Kind, Target};

/// What a client waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Measure {
    /// From the holder's close to the waiter's reading of `ACQUIRED`.
    Handover,
    /// From a holder's `HEARTBEAT` to its answer.
    Heartbeat,
}

/// How soon one measurement follows the other.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// At once: the cores are awake.
    Hot,
    /// After a pause: the cores have gone to sleep.
    Idle,
}

impl Measure {
    pub(crate) const ALL: [Self; 2] = [Self::Handover, Self::Heartbeat];

    /// Whether a server can be measured: the relay knows no heartbeat.
    pub(crate) const fn knows(self, kind: Kind) -> bool {
        match (self, kind) {
            (Self::Heartbeat, Kind::Relay) => false,
            (Self::Heartbeat | Self::Handover, _) => true,
        }
    }

    /// Measures so many, and gives their median.
    pub(crate) fn take(self, server: &Target, pace: Pace, count: usize) -> io::Result<Duration> {
        let mut times = match self {
            Self::Handover => handovers(server, pace, pace.share(count))?,
            Self::Heartbeat => heartbeats(server, pace, pace.share(count))?,
        };
        times.sort_unstable();
        Ok(times[times.len() / 2])
    }
}

impl Pace {
    pub(crate) const ALL: [Self; 2] = [Self::Hot, Self::Idle];

    const fn pause(self) -> Duration {
        match self {
            Self::Hot => Duration::ZERO,
            Self::Idle => Duration::from_millis(2),
        }
    }

    /// With pauses a round is kept short.
    const fn share(self, count: usize) -> usize {
        match self {
            Self::Hot => count,
            Self::Idle => count.div_ceil(5),
        }
    }

    fn rest(self) {
        if !self.pause().is_zero() {
            thread::sleep(self.pause());
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Handover => "handover",
            Self::Heartbeat => "heartbeat and answer",
        })
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hot => "one after the other",
            Self::Idle => "after 2 ms of rest",
        })
    }
}

/// One lock goes from one connection to the next.
fn handovers(server: &Target, pace: Pace, count: usize) -> io::Result<Vec<Duration>> {
    let mut times = Vec::with_capacity(count);
    let mut holder = Claim::make(server)?;
    holder.expect_acquired()?;
    for _ in 0..count {
        let mut waiter = Claim::make(server)?;
        waiter.expect_waiting()?;
        pace.rest();
        let start = Instant::now();
        drop(holder);
        waiter.expect_acquired()?;
        times.push(start.elapsed());
        holder = waiter;
    }
    Ok(times)
}

/// One holder is heard.
fn heartbeats(server: &Target, pace: Pace, count: usize) -> io::Result<Vec<Duration>> {
    let mut times = Vec::with_capacity(count);
    let mut holder = Claim::make(server)?;
    holder.expect_acquired()?;
    for _ in 0..count {
        pace.rest();
        let start = Instant::now();
        holder.heartbeat()?;
        holder.expect_acquired()?;
        times.push(start.elapsed());
    }
    Ok(times)
}
