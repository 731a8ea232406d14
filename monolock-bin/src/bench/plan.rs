//! What is to be done, in numbers that have been checked: none is without a bound.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use monolock_core::{Lease, LockName};
use monolock_net::raise_descriptor_limit;

use super::args::{BenchArgs, Close, Scenario};
use crate::failure::{FAILED, Failure, USAGE};

const MOST_CONNECTIONS: usize = 1_000_000;
const MOST_THREADS: usize = 256;
const MOST_OPERATIONS_A_SECOND: usize = 10_000_000;

/// Longer runs would fill the memory of nobody, but the time of somebody.
const LONGEST_DURATION: Duration = Duration::from_hours(24);

/// Descriptors beside the connections: standard streams, runtimes, files.
const OTHER_DESCRIPTORS: usize = 64;

/// What all clients of a run do.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) scenario: Scenario,
    pub(crate) connections: usize,
    pub(crate) locks: usize,
    /// What their names begin with.
    prefix: Arc<str>,
    pub(crate) threads: usize,
    pub(crate) duration: Duration,
    /// Operations a second, all together.
    pub(crate) rate: Option<f64>,
    pub(crate) lease: Lease,
    pub(crate) close: Close,
    pub(crate) timeout: Duration,
    pub(crate) server_pid: Option<usize>,
}

impl Plan {
    /// # Errors
    /// The first number that cannot be.
    pub(crate) fn make(args: &BenchArgs) -> Result<Self, Failure> {
        let BenchArgs { scenario, duration, lease, close, timeout, .. } = *args;
        let connections = bounded("--connections", args.connections, MOST_CONNECTIONS)?;
        let locks = match args.locks {
            Some(locks) => bounded("--locks", locks, connections)?,
            None => match scenario {
                Scenario::Cycle | Scenario::Heartbeat | Scenario::Storm => connections,
                Scenario::Handover | Scenario::Idle => 1,
            },
        };
        let cores = available_parallelism().map_or(1, NonZeroUsize::get).min(MOST_THREADS);
        let threads = args.threads.map_or(Ok(cores), |threads| bounded("--threads", threads, MOST_THREADS))?;
        let rate = match args.rate {
            None => None,
            Some(rate) => Some(f64::from(
                u32::try_from(bounded("--rate", rate, MOST_OPERATIONS_A_SECOND)?).expect("it has just been bounded"),
            )),
        };
        let paced = matches!(scenario, Scenario::Cycle | Scenario::Heartbeat);
        if rate.is_some() && !paced {
            let scenario = scenario.name();
            return Err(Failure::new(
                USAGE,
                format_args!("--rate goes with cycle and heartbeat, and not with {scenario}"),
            ));
        }
        if scenario == Scenario::Handover && locks == connections {
            let sentence = "handover needs a waiter: give it more --connections than --locks";
            return Err(Failure::new(USAGE, sentence));
        }
        if duration > LONGEST_DURATION {
            return Err(Failure::new(USAGE, "--duration is too long: 24h at most"));
        }
        if scenario == Scenario::Idle && lease.as_duration() <= duration {
            let sentence = "--lease is not longer than --duration: idle sends no heartbeats, so its claims would end";
            return Err(Failure::new(USAGE, sentence));
        }
        if cfg!(not(target_os = "linux")) && args.server_pid.is_some() {
            return Err(Failure::new(USAGE, "--server-pid can be told on Linux alone"));
        }
        check_descriptors(connections)?;
        Ok(Self {
            scenario,
            connections,
            locks,
            prefix: args.prefix.as_str().into(),
            threads: threads.min(connections),
            duration,
            rate,
            lease,
            close,
            timeout,
            server_pid: args.server_pid.map(NonZeroUsize::get),
        })
    }

    /// The lock of a connection.
    pub(crate) const fn lock_of(&self, connection: usize) -> usize {
        connection % self.locks
    }

    /// The name of a lock; with the prefix that nobody chose 30 bytes, as names of the wild have.
    pub(crate) fn lock_name(&self, lock: usize) -> LockName {
        LockName::new(&format!("{}{lock:015}", self.prefix)).expect("the prefix leaves room for 15 digits")
    }

    /// How long one connection has between two operations, and when its first is.
    pub(crate) fn pace(&self, connection: usize) -> Option<Pace> {
        let rate = self.rate?;
        let [connections, connection] = [self.connections, connection]
            .map(|number| f64::from(u32::try_from(number).expect("connections are bounded")));
        Some(Pace {
            first: Duration::from_secs_f64(connection / rate),
            interval: Duration::from_secs_f64(connections / rate),
        })
    }
}

/// When one connection is to begin its operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    pub(crate) first: Duration,
    pub(crate) interval: Duration,
}

fn bounded(flag: &str, number: NonZeroUsize, most: usize) -> Result<usize, Failure> {
    let number = number.get();
    if number > most {
        let reason = if flag == "--locks" { ", which is --connections" } else { "" };
        return Err(Failure::new(USAGE, format_args!("{flag} is {number}, but must be at most {most}{reason}")));
    }
    Ok(number)
}

fn check_descriptors(connections: usize) -> Result<(), Failure> {
    let limit = raise_descriptor_limit();
    let limit =
        limit.map_err(|error| Failure::new(FAILED, format_args!("cannot raise the limit of open files: {error}")))?;
    let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let most = limit.saturating_sub(OTHER_DESCRIPTORS);
    if connections > most {
        return Err(Failure::new(
            FAILED,
            format_args!(
                "--connections is {connections}, but this process may have {limit} files open, which is enough for {most}: \
                 raise the hard limit (ulimit -Hn), or run several processes"
            ),
        ));
    }
    Ok(())
}
