//! What may change while the server runs: its certificates, whom it trusts, and who may claim what. One set, replaced
//! whole or not at all.

use std::path::PathBuf;
use std::sync::Arc;
use std::{fmt, fs, io};

use monolock_core::LockNameRef;
use rustls::ServerConfig;

use crate::acl::{Acl, AclError};
use crate::tls::{TlsError, TlsFiles};

/// The files that the set is read from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PolicyFiles {
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) acl: Option<PathBuf>,
}

/// The set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Policy {
    pub(crate) tls: Option<Arc<ServerConfig>>,
    acl: Option<Acl>,
}

/// Which file of the set is wrong, and how.
#[derive(Debug)]
#[non_exhaustive]
pub enum PolicyError {
    /// A file of TLS.
    Tls(TlsError),
    /// The access-control list cannot be read.
    UnreadableAcl(PathBuf, io::Error),
    /// The access-control list is wrong.
    Acl(PathBuf, AclError),
}

impl PolicyFiles {
    /// Reads the whole set.
    pub(crate) fn load(&self) -> Result<Policy, PolicyError> {
        let Self { tls, acl } = self;
        let tls = tls.as_ref().map(TlsFiles::load).transpose().map_err(PolicyError::Tls)?;
        let acl = acl.as_ref().map(|file| {
            let text = fs::read_to_string(file).map_err(|error| PolicyError::UnreadableAcl(file.clone(), error))?;
            Acl::parse(&text).map_err(|error| PolicyError::Acl(file.clone(), error))
        });
        Ok(Policy { tls, acl: acl.transpose()? })
    }
}

impl Policy {
    /// Whether a client may claim a lock. A claim that was taken in is not asked again.
    pub(crate) fn allows(&self, identity: &str, lock: LockNameRef<'_>) -> bool {
        self.acl.as_ref().is_none_or(|acl| acl.allowing_rule(identity, lock).is_some())
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tls(error) => error.fmt(f),
            Self::UnreadableAcl(file, error) => write!(f, "access-control list {}: {error}", file.display()),
            Self::Acl(file, error) => write!(f, "access-control list {}: {error}", file.display()),
        }
    }
}

impl std::error::Error for PolicyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Tls(error) => error.source(),
            Self::UnreadableAcl(_, error) => Some(error),
            Self::Acl(_, error) => Some(error),
        }
    }
}
