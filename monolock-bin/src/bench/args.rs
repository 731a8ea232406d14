//! The flags of `monolock bench`.

use std::num::NonZeroUsize;
use std::time::Duration;

use clap::{Args, ValueEnum};
use monolock_core::Lease;

use crate::secured::TlsArgs;
use crate::value::{Checked, count, lease, name_prefix, positive_duration, server_address, switch};

/// Settings of `bench`.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// What the clients do
    #[arg(value_name = "SCENARIO")]
    pub(crate) scenario: Scenario,

    /// The server, host:port
    #[arg(long, env = "MONOLOCK_SERVER", hide_env_values = true, value_name = "ADDRESS")]
    #[arg(default_value = "127.0.0.1:7070", value_parser = Checked(server_address))]
    pub(crate) server: String,

    /// How many connections, at most 1000000
    #[arg(long, env = "MONOLOCK_BENCH_CONNECTIONS", hide_env_values = true, value_name = "COUNT")]
    #[arg(default_value = "50", value_parser = Checked(count))]
    pub(crate) connections: NonZeroUsize,

    /// Over how many locks they are spread; without it one each, and one for all with handover and idle
    #[arg(long, env = "MONOLOCK_BENCH_LOCKS", hide_env_values = true, value_name = "COUNT")]
    #[arg(value_parser = Checked(count))]
    pub(crate) locks: Option<NonZeroUsize>,

    /// What the names of the locks begin with; 15 digits follow, so two runs with one prefix meet at the same locks
    #[arg(long, env = "MONOLOCK_BENCH_PREFIX", hide_env_values = true, value_name = "PREFIX")]
    #[arg(default_value = "monolock-bench/", value_parser = Checked(name_prefix))]
    pub(crate) prefix: String,

    /// How long it is measured; handover and storm begin a last round within it, and finish it
    #[arg(long, env = "MONOLOCK_BENCH_DURATION", hide_env_values = true, value_name = "DURATION")]
    #[arg(default_value = "10s", value_parser = Checked(positive_duration))]
    pub(crate) duration: Duration,

    /// How many operations to begin each second, all connections together; without it each follows the last
    #[arg(long, env = "MONOLOCK_BENCH_RATE", hide_env_values = true, value_name = "COUNT")]
    #[arg(value_parser = Checked(count))]
    pub(crate) rate: Option<NonZeroUsize>,

    /// The lease of the claims: only heartbeat renews it, so idle must be over before
    #[arg(long, env = "MONOLOCK_BENCH_LEASE", hide_env_values = true, value_name = "DURATION")]
    #[arg(default_value = "1h", value_parser = Checked(lease))]
    pub(crate) lease: Lease,

    /// How connections are closed: reset (the server sees their end as well, and no port is kept) or orderly
    #[arg(long, env = "MONOLOCK_BENCH_CLOSE", hide_env_values = true, value_name = "HOW")]
    #[arg(default_value = "reset", value_parser = Checked(close))]
    pub(crate) close: Close,

    /// How long a connection or an answer may take before it counts as failed; a wait in a queue is none
    #[arg(long, env = "MONOLOCK_BENCH_TIMEOUT", hide_env_values = true, value_name = "DURATION")]
    #[arg(default_value = "5s", value_parser = Checked(positive_duration))]
    pub(crate) timeout: Duration,

    /// How many threads make the load; without it one a core
    #[arg(long, env = "MONOLOCK_BENCH_THREADS", hide_env_values = true, value_name = "COUNT")]
    #[arg(value_parser = Checked(count))]
    pub(crate) threads: Option<NonZeroUsize>,

    /// Also tell what processor time and memory this process took meanwhile: the server, on this machine (Linux)
    #[arg(long, env = "MONOLOCK_BENCH_SERVER_PID", hide_env_values = true, value_name = "PID")]
    #[arg(value_parser = Checked(count))]
    pub(crate) server_pid: Option<NonZeroUsize>,

    /// Tell the result as one JSON object
    #[arg(long, env = "MONOLOCK_BENCH_JSON", hide_env_values = true, value_parser = Checked(switch))]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) tls: TlsArgs,
}

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// Connect, acquire, close, again and again
    Cycle,
    /// Hold a lock and send heartbeats
    Heartbeat,
    /// Queue for a lock, and hand it down the whole chain of waiters
    Handover,
    /// Hold or wait, and do nothing
    Idle,
    /// Connect and claim all at once; then all are cut and return at once
    Storm,
}

impl Scenario {
    /// Its name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Cycle => "cycle",
            Self::Heartbeat => "heartbeat",
            Self::Handover => "handover",
            Self::Idle => "idle",
            Self::Storm => "storm",
        }
    }
}

/// How a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Close {
    /// By a reset, after which neither side keeps its port.
    Reset,
    /// By the end of the stream; the port is kept for a minute.
    Orderly,
}

fn close(text: &str) -> Result<Close, String> {
    match text.to_ascii_lowercase().as_str() {
        "reset" => Ok(Close::Reset),
        "orderly" => Ok(Close::Orderly),
        _ => Err("must be reset or orderly".to_owned()),
    }
}

/// What else is to be known, below the flags.
pub(crate) const BENCH_HELP: &str = "\
Scenarios:
\x20 cycle      operation: connect, acquire, close. Latency: from the connecting to the ACQUIRED
\x20 heartbeat  operation: a heartbeat. Latency: to its answer
\x20 handover   operation: a lock passes on. Latency: from the holder's close to the next one's reading of ACQUIRED
\x20 idle       operation: a claim is placed, held or queued. Latency: from the connecting to the first answer
\x20 storm      the same, all at once

Rate: with --rate operations begin at set instants, whether or not earlier ones were answered in time. One that had to stand back behind \
a late answer is measured from the instant at which it was to begin, so the figures are corrected for coordinated omission. Without it a slow answer \
delays the next question, and the figures are those of a closed loop.

Ports: a client that closes first in an orderly way keeps its port for a minute, which caps a generator near 470 cycles a second and \
address, and near 14000 on Linux's loopback. Connections to this machine itself (127.0.0.0/8) are spread over as many source addresses as they need.

Exit status: 0, failures or not (they are in the report); 1 if not one operation succeeded; 2 if the command line or a variable is wrong.";
