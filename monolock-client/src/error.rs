//! The one error of the client: opaque, with a kind that says what to do.
//!
//! Failures compose (a call may dial several addresses and hear a refusal from each), so [`Error`] hides its inside and
//! answers questions. The kinds bear the same names in every monolock client, and none is found by reading text.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use std::{error, fmt, io};

use monolock_core::wire::{ErrorClass, ErrorCode};
use monolock_core::{Lease, LeaseError, LockName, LockNameError};

use crate::session::LossReason;

/// Why a call of the client failed.
#[derive(Clone)]
pub struct Error(Arc<Cause>);

/// What kind of failure an [`Error`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller's [`Cancel`](crate::Cancel) was used before the lock was obtained.
    Cancelled,
    /// The wait limit passed before the lock was obtained.
    WaitTimeout,
    /// The lock is held by another, and the call was not to wait.
    Contended,
    /// The server's access-control list refuses this lock (code 0x18).
    Denied,
    /// The place in the queue or the lock itself was lost; [`Error::loss`] says how.
    Lost,
    /// No server took the claim in: no connection, no answer in time, or a server condition (a code below 0x10).
    Unreachable,
    /// What was asked for is wrong and will be wrong again: found before dialling, or said by the server (a code from
    /// 0x10 up).
    Invalid,
}

impl ErrorKind {
    /// Its name, the same in every monolock client.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::WaitTimeout => "wait_timeout",
            Self::Contended => "contended",
            Self::Denied => "denied",
            Self::Lost => "lost",
            Self::Unreachable => "unreachable",
            Self::Invalid => "invalid",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Error {
    /// What kind of failure it is.
    pub fn kind(&self) -> ErrorKind {
        match &*self.0 {
            Cause::Cancelled { .. } => ErrorKind::Cancelled,
            Cause::WaitTimeout { .. } => ErrorKind::WaitTimeout,
            Cause::Contended { .. } => ErrorKind::Contended,
            Cause::Refused { code: ErrorCode::NOT_AUTHORIZED, .. } => ErrorKind::Denied,
            Cause::Refused { .. } | Cause::Invalid(_) => ErrorKind::Invalid,
            Cause::Lost { .. } => ErrorKind::Lost,
            Cause::Unreachable { .. } => ErrorKind::Unreachable,
        }
    }

    /// The code of the server's `ERROR`, where one came; of several addresses, that of the last which sent one.
    pub fn server_code(&self) -> Option<ErrorCode> {
        match &*self.0 {
            Cause::Refused { code, .. } => Some(*code),
            Cause::Lost { reason, .. } => reason.server_code(),
            Cause::Unreachable { attempts, .. } => attempts.iter().rev().find_map(Attempt::server_code),
            Cause::Cancelled { .. } | Cause::WaitTimeout { .. } | Cause::Contended { .. } | Cause::Invalid(_) => None,
        }
    }

    /// How the lock or the place in the queue was lost, where the kind is [`ErrorKind::Lost`].
    pub fn loss(&self) -> Option<&LossReason> {
        match &*self.0 {
            Cause::Lost { reason, .. } => Some(reason),
            Cause::Cancelled { .. }
            | Cause::WaitTimeout { .. }
            | Cause::Contended { .. }
            | Cause::Refused { .. }
            | Cause::Unreachable { .. }
            | Cause::Invalid(_) => None,
        }
    }

    /// Whether the same call may succeed later without anybody changing it. Codes from 0x10 up never are: the same
    /// bytes fail again (`docs/protocol.md`, "Errors").
    pub fn is_retryable(&self) -> bool {
        match &*self.0 {
            Cause::Unreachable { .. } | Cause::Contended { .. } | Cause::WaitTimeout { .. } => true,
            Cause::Lost { reason, .. } => {
                let final_code = |code: ErrorCode| code.class() == ErrorClass::ClientError;
                *reason != LossReason::MaxHold && !reason.server_code().is_some_and(final_code)
            }
            Cause::Cancelled { .. } | Cause::Refused { .. } | Cause::Invalid(_) => false,
        }
    }

    /// Whether another attempt at obtaining the lock makes sense within the same call.
    pub(crate) fn is_worth_another_attempt(&self) -> bool {
        matches!(self.kind(), ErrorKind::Unreachable | ErrorKind::Lost) && self.is_retryable()
    }

    pub(crate) fn cancelled(name: LockName) -> Self {
        Cause::Cancelled { name }.into()
    }

    pub(crate) fn wait_timeout(name: LockName, wait: Duration) -> Self {
        Cause::WaitTimeout { name, wait }.into()
    }

    pub(crate) fn contended(name: LockName) -> Self {
        Cause::Contended { name }.into()
    }

    pub(crate) fn refused(name: LockName, address: String, code: ErrorCode, reason: String) -> Self {
        Cause::Refused { name, address, code, reason }.into()
    }

    pub(crate) fn lost(name: LockName, reason: LossReason) -> Self {
        Cause::Lost { name, reason }.into()
    }

    pub(crate) fn no_thread(name: LockName, error: io::Error) -> Self {
        let attempt = Attempt { address: "this process".to_owned(), failure: AttemptFailure::Thread(error) };
        Self::unreachable(name, vec![attempt])
    }

    pub(crate) fn unreachable(name: LockName, attempts: Vec<Attempt>) -> Self {
        Cause::Unreachable { name, attempts }.into()
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error").field("kind", &self.kind()).field("message", &format_args!("{self}")).finish()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Cause::Cancelled { name } => write!(f, "cancelled while acquiring lock {name:?}"),
            Cause::WaitTimeout { name, wait } => write!(f, "lock {name:?} was not obtained within {wait:?}"),
            Cause::Contended { name } => write!(f, "lock {name:?} is held by another"),
            Cause::Refused { name, address, code, reason } => {
                write!(f, "{address} refused lock {name:?} with {code}: {}", reason.escape_debug())
            }
            Cause::Lost { name, reason } => write!(f, "lost lock {name:?}: {reason}"),
            Cause::Unreachable { name, attempts } => {
                write!(f, "no server took the claim on lock {name:?} in")?;
                for (number, Attempt { address, failure }) in attempts.iter().enumerate() {
                    let separator = if number == 0 { ": " } else { "; " };
                    write!(f, "{separator}{address}: {failure}")?;
                }
                Ok(())
            }
            Cause::Invalid(invalid) => fmt::Display::fmt(invalid, f),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match &*self.0 {
            Cause::Lost { reason, .. } => Some(reason),
            Cause::Unreachable { attempts, .. } => attempts.last().and_then(|attempt| attempt.failure.source()),
            Cause::Invalid(Invalid::Name(error)) => Some(error),
            Cause::Invalid(Invalid::Lease(error)) => Some(error),
            Cause::Invalid(_)
            | Cause::Cancelled { .. }
            | Cause::WaitTimeout { .. }
            | Cause::Contended { .. }
            | Cause::Refused { .. } => None,
        }
    }
}

impl From<LockNameError> for Error {
    fn from(error: LockNameError) -> Self {
        Invalid::Name(error).into()
    }
}

impl From<LeaseError> for Error {
    fn from(error: LeaseError) -> Self {
        Invalid::Lease(error).into()
    }
}

impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl From<Invalid> for Error {
    fn from(invalid: Invalid) -> Self {
        Cause::Invalid(invalid).into()
    }
}

impl From<Cause> for Error {
    fn from(cause: Cause) -> Self {
        Self(Arc::new(cause))
    }
}

enum Cause {
    Cancelled { name: LockName },
    WaitTimeout { name: LockName, wait: Duration },
    Contended { name: LockName },
    Refused { name: LockName, address: String, code: ErrorCode, reason: String },
    Lost { name: LockName, reason: LossReason },
    Unreachable { name: LockName, attempts: Vec<Attempt> },
    Invalid(Invalid),
}

/// What is wrong with what was asked for.
pub(crate) enum Invalid {
    Name(LockNameError),
    Lease(LeaseError),
    LeaseTooShort {
        lease: Lease,
        shortest: Lease,
    },
    NoAddress,
    Address {
        address: String,
    },
    #[cfg(feature = "tls")]
    ServerName {
        address: String,
    },
    #[cfg(feature = "tls")]
    ServerNameWithoutTls,
    ConnectTimeout,
    MaxHold,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(error) => fmt::Display::fmt(error, f),
            Self::Lease(error) => fmt::Display::fmt(error, f),
            Self::LeaseTooShort { lease, shortest } => {
                write!(f, "a lease of {lease} is too short to be kept: at least {shortest} are needed")
            }
            Self::NoAddress => f.write_str("no server address was given"),
            Self::Address { address } => write!(f, "server address {address:?} is not of the form host:port"),
            #[cfg(feature = "tls")]
            Self::ServerName { address } => {
                write!(f, "the host of server address {address:?} is no name that a certificate can be for")
            }
            #[cfg(feature = "tls")]
            Self::ServerNameWithoutTls => f.write_str("a TLS server name was given, but no TLS configuration"),
            Self::ConnectTimeout => f.write_str("connect_timeout must be positive"),
            Self::MaxHold => f.write_str("max_hold must be positive"),
        }
    }
}

/// One address that was tried, and what came of it.
pub(crate) struct Attempt {
    pub(crate) address: String,
    pub(crate) failure: AttemptFailure,
}

impl Attempt {
    fn server_code(&self) -> Option<ErrorCode> {
        match &self.failure {
            AttemptFailure::Refused(reason) => reason.server_code(),
            AttemptFailure::Lookup(_)
            | AttemptFailure::NoAddress
            | AttemptFailure::Connect(_)
            | AttemptFailure::Handshake(_)
            | AttemptFailure::Thread(_)
            | AttemptFailure::NoTime(_) => None,
        }
    }
}

/// Why an attempt at one address failed.
pub(crate) enum AttemptFailure {
    Lookup(Arc<io::Error>),
    /// The name resolves to nothing.
    NoAddress,
    Connect(io::Error),
    /// There is a connection, and no TLS on it.
    Handshake(io::Error),
    /// There is no thread to keep the claim.
    Thread(io::Error),
    /// It had not come to a first answer when its share of the connect timeout was used up.
    NoTime(Duration),
    Refused(LossReason),
}

impl AttemptFailure {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Lookup(error) => Some(&**error),
            Self::Connect(error) | Self::Handshake(error) | Self::Thread(error) => Some(error),
            Self::Refused(reason) => Some(reason),
            Self::NoAddress | Self::NoTime(_) => None,
        }
    }
}

impl fmt::Display for AttemptFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lookup(error) => write!(f, "the name does not resolve: {error}"),
            Self::NoAddress => f.write_str("the name has no address"),
            Self::Connect(error) => write!(f, "cannot connect: {error}"),
            Self::Handshake(error) => write!(f, "the TLS handshake failed: {error}"),
            Self::Thread(error) => write!(f, "cannot start a thread: {error}"),
            Self::NoTime(share) => write!(f, "no answer within {share:.1?}"),
            Self::Refused(reason) => fmt::Display::fmt(reason, f),
        }
    }
}

/// Why work under a lock has no result.
#[derive(Debug)]
pub enum WithLockError<E> {
    /// The lock was not obtained; the work never ran.
    NotAcquired(Error),
    /// The lock was lost before the work had ended, so what the work did was not guarded to its end.
    Lost(Error),
    /// The work failed. Where the lock was lost as well, the loss stands beside it.
    Work {
        /// The work's own error.
        error: E,
        /// How the lock was lost, if it was.
        loss: Option<LossReason>,
    },
}

impl<E> WithLockError<E> {
    /// The client's part of it; `None` where the work itself failed.
    pub const fn client_error(&self) -> Option<&Error> {
        match self {
            Self::NotAcquired(error) | Self::Lost(error) => Some(error),
            Self::Work { .. } => None,
        }
    }

    /// How the lock was lost, if it was.
    pub fn loss(&self) -> Option<&LossReason> {
        match self {
            Self::NotAcquired(error) | Self::Lost(error) => error.loss(),
            Self::Work { loss, .. } => loss.as_ref(),
        }
    }
}

impl<E: fmt::Display> fmt::Display for WithLockError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAcquired(error) | Self::Lost(error) => fmt::Display::fmt(error, f),
            Self::Work { error, loss: None } => fmt::Display::fmt(error, f),
            Self::Work { error, loss: Some(loss) } => write!(f, "{error} (and the lock was lost: {loss})"),
        }
    }
}

impl<E: error::Error + 'static> error::Error for WithLockError<E> {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::NotAcquired(error) | Self::Lost(error) => error.source(),
            Self::Work { error, .. } => Some(error),
        }
    }
}
