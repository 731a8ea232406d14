//! A sink of the audit log that lies in memory.

use std::io;
use std::time::Duration;

use crate::audit::{AuditFailure, AuditSink};
use crate::sync::{Condvar, Mutex};

shuttle::lazy_static! {
    static ref WRITTEN: Written = Written::default();
}

#[derive(Default)]
struct Written {
    bytes: Mutex<Vec<u8>>,
    changed: Condvar,
}

/// All that was written.
pub(crate) fn lines() -> String {
    String::from_utf8(WRITTEN.bytes.lock().clone()).expect("the audit log is JSON")
}

/// Waits until so many lines are written.
pub(crate) fn wait_for_lines(count: usize) {
    let mut bytes = WRITTEN.bytes.lock();
    while String::from_utf8_lossy(&bytes).lines().count() < count {
        WRITTEN.changed.wait(&mut bytes);
    }
}

pub(crate) struct Target(AuditSink);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reopened {
    Same,
    Another,
}

#[expect(clippy::unnecessary_wraps, reason = "a sink in the world may fail")]
#[expect(clippy::unused_self, reason = "a sink in the world has a state")]
impl Target {
    pub(crate) fn open(sink: &AuditSink, _on_failure: AuditFailure) -> io::Result<Self> {
        Ok(Self(sink.clone()))
    }

    pub(crate) const fn sink(&self) -> &AuditSink {
        &self.0
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        WRITTEN.bytes.lock().extend_from_slice(bytes);
        WRITTEN.changed.notify_all();
        Ok(bytes.len())
    }

    pub(crate) fn reopen(&mut self) -> io::Result<Reopened> {
        Ok(Reopened::Same)
    }

    pub(crate) fn forget_deleted(&mut self) -> bool {
        false
    }

    pub(crate) fn is_shorter_than(&self, _bytes: usize) -> bool {
        false
    }

    pub(crate) fn wait_for_room(&self, _patience: Duration) -> bool {
        true
    }
}
