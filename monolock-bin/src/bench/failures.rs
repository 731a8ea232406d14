//! What can go wrong with one operation, by kind: few kinds, so that counting them is bounded.

use std::{fmt, io};

use monolock_core::wire::ErrorCode;
use nix::errno::Errno;

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FailureKind {
    /// Nobody listens there.
    Refused,
    /// The connection was not made in another way.
    NotConnected,
    /// All ports of the address are in use.
    NoPort,
    /// This process may open no more.
    NoDescriptor,
    /// TLS did not come about.
    Handshake,
    /// The server closed the connection, or it broke.
    Closed,
    /// The answer did not come in time.
    TimedOut,
    /// The server said no.
    Error(ErrorCode),
    /// The server said what it must not.
    Unintelligible,
}

impl FailureKind {
    /// Of an attempt to connect.
    pub(crate) fn connecting(error: &io::Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ECONNREFUSED) => Self::Refused,
            Some(Errno::EADDRNOTAVAIL | Errno::EADDRINUSE) => Self::NoPort,
            Some(Errno::EMFILE | Errno::ENFILE) => Self::NoDescriptor,
            Some(_) | None => Self::NotConnected,
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "connection refused",
            Self::NotConnected => "not connected",
            Self::NoPort => "no free local port",
            Self::NoDescriptor => "no free descriptor",
            Self::Handshake => "TLS handshake failed",
            Self::Closed => "closed by the server",
            Self::TimedOut => "timed out",
            Self::Error(code) => return write!(f, "error {code}"),
            Self::Unintelligible => "unintelligible answer",
        })
    }
}
