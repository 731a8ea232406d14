//! What a client is told once: where the servers are, and how patient to be. Shared by both drivers.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use monolock_core::{Lease, LockName, Timestamp};

use crate::cancel::Cancel;
use crate::claims::Claims;
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Invalid};
use crate::resolve::Resolver;
use crate::security::Security;
use crate::session::SessionConfig;

/// The shortest lease that a client takes on, in milliseconds.
///
/// Timers fire up to 10 ms late. A heartbeat that goes out after a quarter of the lease plus that must still have its
/// answer by 0.8 leases: 0.55 leases must be more than 10 ms.
pub const MIN_LEASE_MS: u32 = 20;

/// The shortest lease that a client takes on: [`MIN_LEASE_MS`].
const MIN_LEASE: Lease = match Lease::from_millis(MIN_LEASE_MS) {
    Some(lease) => lease,
    None => Lease::MAX,
};

const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Settings of a client to be: of [`blocking::Client`](crate::blocking::Client) or of the async `Client`.
pub struct Builder<C> {
    addresses: Vec<String>,
    #[cfg(feature = "tls")]
    tls: Option<Arc<rustls::ClientConfig>>,
    #[cfg(feature = "tls")]
    server_name: Option<rustls::pki_types::ServerName<'static>>,
    config: Config,
    client: PhantomData<fn() -> C>,
}

impl<C> Builder<C> {
    pub(crate) fn new(address: String) -> Self {
        let config = Config {
            servers: Vec::new(),
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            max_hold: None,
            clock: Arc::new(SystemClock),
            resolver: Arc::default(),
            claims: Arc::default(),
        };
        Self {
            addresses: vec![address],
            #[cfg(feature = "tls")]
            tls: None,
            #[cfg(feature = "tls")]
            server_name: None,
            config,
            client: PhantomData,
        }
    }

    /// One more server address, `host:port`, tried after those before it.
    #[must_use]
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.addresses.push(address.into());
        self
    }

    /// Speaks TLS, as configured: which authorities are trusted, and for mutual TLS which certificate this client
    /// shows. A server must prove to be the host of the address that it was found by, unless
    /// [`tls_server_name`](Self::tls_server_name) says otherwise. The handshake counts towards the connect timeout;
    /// one that fails is a reason to try the next address.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use monolock_client::rustls::{ClientConfig, RootCertStore};
    /// use monolock_client::blocking::Client;
    ///
    /// # fn authorities() -> RootCertStore { RootCertStore::empty() }
    /// let config = ClientConfig::builder().with_root_certificates(authorities()).with_no_client_auth();
    /// let client = Client::builder("locks.example.org:7070").tls(Arc::new(config)).build()?;
    /// # Ok::<(), monolock_client::Error>(())
    /// ```
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, config: impl Into<Arc<rustls::ClientConfig>>) -> Self {
        self.tls = Some(config.into());
        self
    }

    /// Whom every server must prove to be, whatever its address.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls_server_name(mut self, name: rustls::pki_types::ServerName<'static>) -> Self {
        self.server_name = Some(name);
        self
    }

    /// How long one attempt may take from the first look-up to the server's first answer, all addresses together. 5
    /// seconds unless said otherwise. Each address has its share of what is left, so that one which is dead or mute
    /// leaves time for the next.
    #[must_use]
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.config.connect_timeout = timeout;
        self
    }

    /// A hold that lasts longer than this counts as lost. Without it a hold lasts as long as it is confirmed.
    #[must_use]
    pub const fn max_hold(mut self, max_hold: Duration) -> Self {
        self.config.max_hold = Some(max_hold);
        self
    }

    /// The clock to live by, for tests: leases and limits are reckoned with it, while waiting takes real time.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.config.clock = clock;
        self
    }

    pub(crate) fn into_config(mut self) -> Result<Arc<Config>, Error> {
        for address in std::mem::take(&mut self.addresses) {
            let host = check_address(&address)?;
            let security = self.security(&address, host)?;
            self.config.servers.push(Server { address, security });
        }
        let config = self.config;
        if config.connect_timeout.is_zero() {
            return Err(Invalid::ConnectTimeout.into());
        }
        if config.max_hold.is_some_and(|max_hold| max_hold.is_zero()) {
            return Err(Invalid::MaxHold.into());
        }
        Ok(Arc::new(config))
    }

    #[cfg(not(feature = "tls"))]
    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "with TLS there is more to it")]
    const fn security(&self, _address: &str, _host: &str) -> Result<Security, Error> {
        Ok(Security::Plain)
    }

    #[cfg(feature = "tls")]
    fn security(&self, address: &str, host: &str) -> Result<Security, Error> {
        use rustls::pki_types::ServerName;

        match (&self.tls, &self.server_name) {
            (None, None) => Ok(Security::Plain),
            (None, Some(_)) => Err(Invalid::ServerNameWithoutTls.into()),
            (Some(config), Some(name)) => Ok(Security::tls(config, name.clone())),
            (Some(config), None) => match ServerName::try_from(host.to_owned()) {
                Ok(name) => Ok(Security::tls(config, name)),
                Err(_) => Err(Invalid::ServerName { address: address.to_owned() }.into()),
            },
        }
    }
}

impl<C> fmt::Debug for Builder<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("addresses", &self.addresses)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

pub(crate) struct Config {
    pub(crate) servers: Vec<Server>,
    pub(crate) connect_timeout: Duration,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) claims: Arc<Claims>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("servers", &self.servers)
            .field("connect_timeout", &self.connect_timeout)
            .field("max_hold", &self.max_hold)
            .finish_non_exhaustive()
    }
}

/// One configured address, `host:port`, and what is spoken there.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: String,
    pub(crate) security: Security,
}

/// Whom to tell that the wait in the queue begins.
#[derive(Clone)]
pub(crate) struct OnQueued(Arc<dyn Fn(&LockName) + Send + Sync>);

impl OnQueued {
    pub(crate) fn new(callback: impl Fn(&LockName) + Send + Sync + 'static) -> Self {
        Self(Arc::new(callback))
    }

    pub(crate) fn call(&self, name: &LockName) {
        (self.0)(name);
    }
}

impl fmt::Debug for OnQueued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnQueued")
    }
}

/// One handle's view of a client: the shared settings and what this handle is bound to.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    pub(crate) config: Arc<Config>,
    pub(crate) cancel: Cancel,
    pub(crate) wait_limit: Option<Duration>,
    pub(crate) on_queued: Option<OnQueued>,
}

impl Handle {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        Self { config, cancel: Cancel::new(), wait_limit: None, on_queued: None }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.config.clock.now()
    }

    /// Checks what is asked for, before anything is dialled.
    pub(crate) fn request(
        &self,
        name: impl TryInto<LockName, Error: Into<Error>>,
        lease: impl TryInto<Lease, Error: Into<Error>>,
    ) -> Result<SessionConfig, Error> {
        let name = name.try_into().map_err(Into::into)?;
        let lease = lease.try_into().map_err(Into::into)?;
        if lease < MIN_LEASE {
            return Err(Invalid::LeaseTooShort { lease, shortest: MIN_LEASE }.into());
        }
        Ok(SessionConfig { name, lease, max_hold: self.config.max_hold })
    }
}

/// The host of `host:port`, an IPv6 one without its brackets.
fn check_address(address: &str) -> Result<&str, Error> {
    if address.is_empty() {
        return Err(Invalid::NoAddress.into());
    }
    match address.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0) => {
            Ok(host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host))
        }
        Some(_) | None => Err(Invalid::Address { address: address.to_owned() }.into()),
    }
}
