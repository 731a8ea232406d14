//! A sink of the audit log that lies in memory.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::audit::{AuditFailure, AuditSink};

shuttle::lazy_static! {
    static ref LINES: Mutex<Vec<u8>> = Mutex::default();
}

/// All that was written.
pub(crate) fn lines() -> String {
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    String::from_utf8(lines.clone()).expect("the audit log is JSON")
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
        shuttle::thread::yield_now();
        LINES.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
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
