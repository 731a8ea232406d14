//! The rows of the table of goals: each measures, in rounds that go from server to server, and judges.

mod crash;
mod crowd;
mod expiry;
mod handover;
mod idle;
mod operations;
mod scaling;
mod start;
mod storm;
mod tail;
mod throughput;

use std::io;

use crate::peers::Peers;
use crate::sheet::Sheet;
use crate::target::Programs;

/// What rows are measured with.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) programs: Programs,
    pub(crate) peers: Option<Peers>,
    pub(crate) rounds: usize,
    /// Small and short: to see that it works.
    pub(crate) quick: bool,
}

impl Context {
    /// As many as asked for, or a tenth of it where it is only tried out.
    pub(crate) const fn many(&self, number: usize) -> usize {
        if self.quick { number.div_ceil(10) } else { number }
    }

    /// How long a load lasts, as `monolock bench` takes it.
    pub(crate) fn milliseconds(&self, duration_ms: usize) -> String {
        format!("{}ms", if self.quick { duration_ms.div_ceil(5) } else { duration_ms })
    }
}

/// A row of the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    measure: fn(&Context, &mut Sheet) -> io::Result<()>,
}

impl Row {
    pub(crate) fn run(&self, context: &Context) -> io::Result<Sheet> {
        let mut sheet = Sheet::new(self.id, self.title);
        (self.measure)(context, &mut sheet).map_err(|error| io::Error::other(format!("{}: {error}", self.id)))?;
        Ok(sheet)
    }
}

pub(crate) const ROWS: &[Row] = &[
    Row { id: "cycle-1", title: "Acquire and close, 1 client", measure: throughput::cycle_of_one },
    Row { id: "cycle-50", title: "Acquire and close, 50 clients", measure: throughput::cycle_of_fifty },
    Row { id: "heartbeat-1", title: "Heartbeat, 1 client", measure: throughput::heartbeat_of_one },
    Row { id: "heartbeat-50", title: "Heartbeat, 50 clients", measure: throughput::heartbeat_of_fifty },
    Row { id: "handover-1-idle", title: "Handover, 1 waiter, idle cores", measure: handover::one_idle },
    Row { id: "handover-1-hot", title: "Handover, 1 waiter, hot", measure: handover::one_hot },
    Row { id: "handover-100-idle", title: "Handover, 100 waiters, idle cores", measure: handover::hundred_idle },
    Row { id: "handover-100-hot", title: "Handover, 100 waiters, hot", measure: handover::hundred_hot },
    Row { id: "handover-chain", title: "Handover down a chain of 3000", measure: handover::chain },
    Row { id: "crash", title: "kill -9 of the holder to the next grant", measure: crash::crash },
    Row { id: "expiry", title: "A silent holder's lease to the next grant", measure: expiry::alone },
    Row { id: "expiry-19000", title: "The same among 19 000 sessions", measure: expiry::in_a_crowd },
    Row { id: "memory", title: "Memory of idle waiters, plain", measure: idle::plain },
    Row { id: "memory-tls", title: "Memory of idle waiters, TLS", measure: idle::tls },
    Row { id: "beats-19000", title: "19 000 sessions, each beating every second", measure: throughput::crowd_of_beats },
    Row { id: "tail-expiry", title: "Heartbeats while 10 000 leases expire in one instant", measure: tail::expiry },
    Row { id: "tail-listing", title: "Heartbeats while 15 000 locks are listed", measure: tail::listing },
    Row {
        id: "tail-handshakes",
        title: "Heartbeats while 1000 TLS handshakes a second arrive",
        measure: tail::handshakes,
    },
    Row { id: "tail-computing", title: "Heartbeats while another program computes", measure: tail::computing },
    Row { id: "storm", title: "15 000 clients return after a restart", measure: storm::storm },
    Row { id: "start", title: "Start, rest, size", measure: start::start },
    Row { id: "scaling", title: "One thread and two, one shard and many", measure: scaling::scaling },
    Row { id: "operations", title: "What TLS and operations cost", measure: operations::operations },
];

/// The row of this name.
///
/// # Errors
/// Names the rows that there are.
pub(crate) fn find(id: &str) -> Result<&'static Row, String> {
    ROWS.iter().find(|row| row.id == id).ok_or_else(|| {
        let ids: Vec<_> = ROWS.iter().map(|row| row.id).collect();
        format!("there are the rows {}", ids.join(", "))
    })
}
