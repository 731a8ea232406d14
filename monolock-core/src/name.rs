//! Names of locks: the one type that proves a name valid.
//!
//! A name is 1 to 255 bytes of UTF-8, taken raw: case-sensitive, never trimmed, never normalised (`docs/protocol.md`,
//! "Frames"). Whoever holds a [`LockName`] or a [`LockNameRef`] need not check again.

use alloc::sync::Arc;
use core::fmt;

/// The longest name, in bytes: what one length field of the wire may say.
pub const MAX_NAME_BYTES: usize = 255;

/// A valid lock name that borrows its text.
///
/// Requests carry this form, so that looking a lock up copies nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockNameRef<'a>(&'a str);

impl<'a> LockNameRef<'a> {
    /// Checks `text`.
    ///
    /// # Errors
    /// [`LockNameError::Empty`] or [`LockNameError::TooLong`].
    pub const fn new(text: &'a str) -> Result<Self, LockNameError> {
        match text.len() {
            0 => Err(LockNameError::Empty),
            1..=MAX_NAME_BYTES => Ok(Self(text)),
            bytes => Err(LockNameError::TooLong { bytes }),
        }
    }

    /// Checks raw bytes, as they come from a wire.
    ///
    /// # Errors
    /// Any [`LockNameError`]; the length is looked at before the encoding.
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Self, LockNameError> {
        match core::str::from_utf8(bytes) {
            Ok(text) => Self::new(text),
            Err(_) if bytes.len() > MAX_NAME_BYTES => Err(LockNameError::TooLong { bytes: bytes.len() }),
            Err(error) => Err(LockNameError::NotUtf8 { valid_up_to: error.valid_up_to() }),
        }
    }

    /// The text.
    pub const fn as_str(self) -> &'a str {
        self.0
    }
}

impl fmt::Debug for LockNameRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0, f)
    }
}

impl fmt::Display for LockNameRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.0, f)
    }
}

/// A valid lock name that owns its text.
///
/// Cloning shares the text, so one lock's name is stored once however many speak of it.
/// `Debug` escapes control characters; `Display` prints the text raw, which is for machines and not for terminals.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(Arc<str>);

impl LockName {
    /// Checks `text` and copies it.
    ///
    /// # Errors
    /// [`LockNameError::Empty`] or [`LockNameError::TooLong`].
    pub fn new(text: &str) -> Result<Self, LockNameError> {
        LockNameRef::new(text).map(Self::from)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The same name, borrowed.
    pub fn as_name_ref(&self) -> LockNameRef<'_> {
        LockNameRef(&self.0)
    }
}

impl From<LockNameRef<'_>> for LockName {
    fn from(name: LockNameRef<'_>) -> Self {
        Self(Arc::from(name.0))
    }
}

impl TryFrom<&str> for LockName {
    type Error = LockNameError;

    fn try_from(text: &str) -> Result<Self, LockNameError> {
        Self::new(text)
    }
}

impl core::str::FromStr for LockName {
    type Err = LockNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&*self.0, f)
    }
}

/// Why a text is not a lock name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockNameError {
    /// It has no bytes.
    Empty,
    /// It has more than [`MAX_NAME_BYTES`] bytes.
    TooLong {
        /// How many bytes it has.
        bytes: usize,
    },
    /// It is not UTF-8.
    NotUtf8 {
        /// How many bytes at its start are.
        valid_up_to: usize,
    },
}

impl fmt::Display for LockNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Empty => f.write_str("empty lock name"),
            Self::TooLong { bytes } => {
                write!(f, "lock name of {bytes} bytes is too long: {MAX_NAME_BYTES} are allowed")
            }
            Self::NotUtf8 { valid_up_to } => write!(f, "lock name is not valid UTF-8 after byte {valid_up_to}"),
        }
    }
}

impl core::error::Error for LockNameError {}
