//! What is spoken with a server before the protocol: nothing, or TLS with a server that proves who it is.

use std::fmt;
#[cfg(feature = "tls")]
use std::io;
#[cfg(feature = "tls")]
use std::sync::Arc;

#[cfg(feature = "tls")]
use rustls::pki_types::ServerName;
#[cfg(feature = "tls")]
use rustls::{ClientConfig, ClientConnection};

use crate::error::AttemptFailure;
use crate::transport::Channel;

#[derive(Clone)]
pub(crate) enum Security {
    Plain,
    #[cfg(feature = "tls")]
    Tls {
        config: Arc<ClientConfig>,
        server_name: ServerName<'static>,
    },
}

impl Security {
    #[cfg(feature = "tls")]
    pub(crate) fn tls(config: &Arc<ClientConfig>, server_name: ServerName<'static>) -> Self {
        Self::Tls { config: Arc::clone(config), server_name }
    }

    /// For a connection that has just been made.
    #[cfg_attr(not(feature = "tls"), expect(clippy::unnecessary_wraps, reason = "with TLS it can fail"))]
    pub(crate) fn channel(self) -> Result<Channel, AttemptFailure> {
        match self {
            Self::Plain => Ok(Channel::plain()),
            #[cfg(feature = "tls")]
            Self::Tls { config, server_name } => match ClientConnection::new(config, server_name) {
                Ok(connection) => Ok(Channel::tls(connection)),
                Err(error) => Err(AttemptFailure::Handshake(io::Error::other(error))),
            },
        }
    }

    /// A handshake costs a server more than a connection, so those that come all at once are spread wider.
    pub(crate) const fn is_costly(&self) -> bool {
        !matches!(self, Self::Plain)
    }
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain => f.write_str("Plain"),
            #[cfg(feature = "tls")]
            Self::Tls { server_name, .. } => f.debug_tuple("Tls").field(server_name).finish(),
        }
    }
}
