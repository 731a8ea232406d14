//! The wire format, version 1: frames to bytes and bytes to frames.
//!
//! Decoding is incremental and copies nothing: it looks at the bytes that have come, answers as soon as they decide
//! (about a name, once it is whole), and never asks for a byte that a frame does not need. Where a frame is wrong in
//! several ways, the first wrong field in the order of its bytes decides (`docs/protocol.md`, "Errors"). This module
//! knows nothing of engines and sessions beyond [`Phase`].

use alloc::vec::Vec;
use core::fmt;

use crate::{Lease, LockNameError, LockNameRef, MAX_NAME_BYTES, Token};

/// The version that this module speaks.
pub const VERSION: u8 = 1;

const ACQUIRE: u8 = 0x01;
const HEARTBEAT: u8 = 0x02;
const WAITING: u8 = 0x11;
const ACQUIRED: u8 = 0x12;
const ERROR: u8 = 0x13;

/// The longest frame that a client sends, in bytes: an `ACQUIRE` with the longest name.
pub const MAX_CLIENT_FRAME_BYTES: usize = 8 + MAX_NAME_BYTES;

/// The longest frame that a server sends, in bytes: an `ERROR` with the longest reason.
pub const MAX_SERVER_FRAME_BYTES: usize = 3 + MAX_REASON_BYTES;

/// The longest reason of an `ERROR`, in bytes.
pub const MAX_REASON_BYTES: usize = u8::MAX as usize;

/// A frame from a client to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientFrame<'a> {
    /// `ACQUIRE`: claims a lock. Comes first and once.
    Acquire {
        /// How long the session may be silent.
        lease: Lease,
        /// The lock.
        name: LockNameRef<'a>,
    },
    /// `HEARTBEAT`: the session is alive.
    Heartbeat,
}

impl ClientFrame<'_> {
    /// Appends the frame's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Acquire { lease, name } => {
                let name = name.as_str().as_bytes();
                let name_len = u16::try_from(name.len()).expect("a lock name has at most 255 bytes");
                out.extend_from_slice(&[ACQUIRE, VERSION]);
                out.extend_from_slice(&lease.as_millis().to_be_bytes());
                out.extend_from_slice(&name_len.to_be_bytes());
                out.extend_from_slice(name);
            }
            Self::Heartbeat => out.push(HEARTBEAT),
        }
    }
}

/// Where a session stands, as far as it decides which frame may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing has come: `ACQUIRE` must.
    First,
    /// `ACQUIRE` has come: only `HEARTBEAT` may.
    Later,
}

/// Decodes the frame at the start of `bytes`, and says how many bytes it takes. `Ok(None)`: more bytes are needed.
///
/// # Errors
/// A [`ProtocolError`] as soon as the bytes decide it, whatever else is still to come.
pub fn decode_client(phase: Phase, bytes: &[u8]) -> Result<Option<(ClientFrame<'_>, usize)>, ProtocolError> {
    match (phase, bytes.first()) {
        (_, None) => Ok(None),
        (Phase::First, Some(&ACQUIRE)) => decode_acquire(bytes),
        (Phase::Later, Some(&HEARTBEAT)) => Ok(Some((ClientFrame::Heartbeat, 1))),
        (Phase::First, Some(&HEARTBEAT)) => Err(ProtocolError::FirstMustBeAcquire),
        (Phase::Later, Some(&ACQUIRE)) => Err(ProtocolError::DuplicateAcquire),
        (_, Some(&other)) => Err(ProtocolError::UnknownType(other)),
    }
}

fn decode_acquire(bytes: &[u8]) -> Result<Option<(ClientFrame<'_>, usize)>, ProtocolError> {
    let Some(&version) = bytes.get(1) else { return Ok(None) };
    if version != VERSION {
        return Err(ProtocolError::UnsupportedVersion(version));
    }
    let Some(&lease_ms) = field(bytes, 2) else { return Ok(None) };
    let lease = Lease::from_millis(u32::from_be_bytes(lease_ms)).ok_or(ProtocolError::ZeroLease)?;
    let Some(&name_len) = field(bytes, 6) else { return Ok(None) };
    let name_len = usize::from(u16::from_be_bytes(name_len));
    match name_len {
        0 => return Err(ProtocolError::EmptyName),
        1..=MAX_NAME_BYTES => {}
        bytes => return Err(ProtocolError::NameTooLong { bytes }),
    }
    let Some(name) = bytes.get(8..8 + name_len) else { return Ok(None) };
    let name = LockNameRef::from_bytes(name)?;
    Ok(Some((ClientFrame::Acquire { lease, name }, 8 + name_len)))
}

/// A frame from a server to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerFrame<'a> {
    /// `WAITING`: the session stands in the queue.
    Waiting,
    /// `ACQUIRED`: the session owns the lock.
    Acquired {
        /// Its grant's token.
        token: Token,
    },
    /// `ERROR`: the session is over.
    Error {
        /// What happened, by number.
        code: ErrorCode,
        /// What happened, in words: UTF-8 of at most 255 bytes. For people; a program must not read it.
        reason: &'a [u8],
    },
}

impl ServerFrame<'_> {
    /// Appends the frame's bytes. A reason longer than [`MAX_REASON_BYTES`] is cut there, or before the character that
    /// stands there.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Waiting => out.push(WAITING),
            Self::Acquired { token } => {
                out.push(ACQUIRED);
                out.extend_from_slice(&token.get().to_be_bytes());
            }
            Self::Error { code, reason } => {
                let reason = cut(reason);
                let reason_len = u8::try_from(reason.len()).expect("the reason was just cut to 255 bytes");
                out.extend_from_slice(&[ERROR, code.0, reason_len]);
                out.extend_from_slice(reason);
            }
        }
    }
}

/// Decodes the frame at the start of `bytes`, and says how many bytes it takes. `Ok(None)`: more bytes are needed.
///
/// # Errors
/// [`UnknownServerFrame`] where no server of this version would have sent these bytes.
pub fn decode_server(bytes: &[u8]) -> Result<Option<(ServerFrame<'_>, usize)>, UnknownServerFrame> {
    match bytes.first() {
        None => Ok(None),
        Some(&WAITING) => Ok(Some((ServerFrame::Waiting, 1))),
        Some(&ACQUIRED) => {
            let Some(&token) = field(bytes, 1) else { return Ok(None) };
            let token = Token::new(u64::from_be_bytes(token)).ok_or(UnknownServerFrame::ZeroToken)?;
            Ok(Some((ServerFrame::Acquired { token }, 9)))
        }
        Some(&ERROR) => {
            let Some(&[code, reason_len]) = field(bytes, 1) else { return Ok(None) };
            let end = 3 + usize::from(reason_len);
            let Some(reason) = bytes.get(3..end) else { return Ok(None) };
            Ok(Some((ServerFrame::Error { code: ErrorCode(code), reason }, end)))
        }
        Some(&other) => Err(UnknownServerFrame::Type(other)),
    }
}

/// Bytes that no server of this version sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownServerFrame {
    /// No frame begins with this byte.
    Type(u8),
    /// An `ACQUIRED` with token 0.
    ZeroToken,
}

impl fmt::Display for UnknownServerFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Type(byte) => write!(f, "unknown message type: {byte:#04x}"),
            Self::ZeroToken => f.write_str("ACQUIRED with token 0"),
        }
    }
}

impl core::error::Error for UnknownServerFrame {}

/// The code of an `ERROR` frame. Any byte can come; the range says what to do, so codes that do not exist yet are
/// classified too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode(pub u8);

impl ErrorCode {
    /// The server is shutting down.
    pub const SERVER_SHUTTING_DOWN: Self = Self(0x01);
    /// An administrator ended the session.
    pub const CLOSED_BY_ADMINISTRATOR: Self = Self(0x02);
    /// A limit that the operator turned on is reached.
    pub const LIMIT_REACHED: Self = Self(0x03);
    /// The server does not speak this version.
    pub const UNSUPPORTED_VERSION: Self = Self(0x10);
    /// `HEARTBEAT` came first.
    pub const FIRST_MUST_BE_ACQUIRE: Self = Self(0x11);
    /// `ACQUIRE` came twice.
    pub const DUPLICATE_ACQUIRE: Self = Self(0x12);
    /// No frame begins with this byte.
    pub const UNKNOWN_TYPE: Self = Self(0x13);
    /// The name has no bytes.
    pub const EMPTY_NAME: Self = Self(0x14);
    /// The name has more than 255 bytes.
    pub const NAME_TOO_LONG: Self = Self(0x15);
    /// The name is not UTF-8.
    pub const NAME_NOT_UTF8: Self = Self(0x16);
    /// The lease is 0.
    pub const ZERO_LEASE: Self = Self(0x17);
    /// The access-control list refuses the lock.
    pub const NOT_AUTHORIZED: Self = Self(0x18);
    /// The lease is longer than the operator allows.
    pub const LEASE_TOO_LONG: Self = Self(0x19);

    /// What the code asks of the client: by the range, never by a list (`docs/protocol.md`, "Errors").
    pub const fn class(self) -> ErrorClass {
        if self.0 < 0x10 { ErrorClass::ServerCondition } else { ErrorClass::ClientError }
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#04x}", self.0)
    }
}

/// What an [`ErrorCode`] asks of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// Codes below 0x10: try again, at once after 0x01, with backoff after any other.
    ServerCondition,
    /// Codes from 0x10 up: the same bytes fail again, so report and stop.
    ClientError,
}

/// What a client did wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// `ACQUIRE` of another version than [`VERSION`].
    UnsupportedVersion(u8),
    /// `HEARTBEAT` before `ACQUIRE`.
    FirstMustBeAcquire,
    /// A second `ACQUIRE`.
    DuplicateAcquire,
    /// No frame begins with this byte.
    UnknownType(u8),
    /// A lease of 0.
    ZeroLease,
    /// A name of 0 bytes.
    EmptyName,
    /// A name of more than [`MAX_NAME_BYTES`].
    NameTooLong {
        /// What the length field says.
        bytes: usize,
    },
    /// A name that is not UTF-8.
    NameNotUtf8,
}

impl ProtocolError {
    /// The code that tells the client.
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::UnsupportedVersion(_) => ErrorCode::UNSUPPORTED_VERSION,
            Self::FirstMustBeAcquire => ErrorCode::FIRST_MUST_BE_ACQUIRE,
            Self::DuplicateAcquire => ErrorCode::DUPLICATE_ACQUIRE,
            Self::UnknownType(_) => ErrorCode::UNKNOWN_TYPE,
            Self::ZeroLease => ErrorCode::ZERO_LEASE,
            Self::EmptyName => ErrorCode::EMPTY_NAME,
            Self::NameTooLong { .. } => ErrorCode::NAME_TOO_LONG,
            Self::NameNotUtf8 => ErrorCode::NAME_NOT_UTF8,
        }
    }
}

impl From<LockNameError> for ProtocolError {
    fn from(error: LockNameError) -> Self {
        match error {
            LockNameError::Empty => Self::EmptyName,
            LockNameError::TooLong { bytes } => Self::NameTooLong { bytes },
            LockNameError::NotUtf8 { .. } => Self::NameNotUtf8,
        }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnsupportedVersion(version) => write!(f, "unsupported protocol version: {version}"),
            Self::FirstMustBeAcquire => f.write_str("first message must be ACQUIRE"),
            Self::DuplicateAcquire => f.write_str("duplicate ACQUIRE"),
            Self::UnknownType(byte) => write!(f, "unknown message type: {byte:#04x}"),
            Self::ZeroLease => f.write_str("lease must be positive"),
            Self::EmptyName => f.write_str("empty lock name"),
            Self::NameTooLong { bytes } => write!(f, "lock name too long: {bytes} bytes, {MAX_NAME_BYTES} are allowed"),
            Self::NameNotUtf8 => f.write_str("lock name is not valid UTF-8"),
        }
    }
}

impl core::error::Error for ProtocolError {}

/// As much of a reason as fits. What is cut is text still: the last character is whole or gone.
fn cut(reason: &[u8]) -> &[u8] {
    let Some(whole) = reason.get(..MAX_REASON_BYTES).filter(|_| reason.len() > MAX_REASON_BYTES) else { return reason };
    match core::str::from_utf8(whole) {
        Err(error) if error.error_len().is_none() => &whole[..error.valid_up_to()],
        Ok(_) | Err(_) => whole,
    }
}

/// The `N` bytes at `offset`, where they have come.
fn field<const N: usize>(bytes: &[u8], offset: usize) -> Option<&[u8; N]> {
    bytes.get(offset..)?.first_chunk()
}
