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
use crate::session::SessionConfig;

/// The shortest lease that a client takes on, in milliseconds.
///
/// Timers fire up to 10 ms late. A heartbeat that goes out after a quarter of the lease plus that must still have its answer by 0.8
/// leases: 0.55 leases must be more than 10 ms.
pub const MIN_LEASE_MS: u32 = 20;

/// The shortest lease that a client takes on: [`MIN_LEASE_MS`].
const MIN_LEASE: Lease = match Lease::from_millis(MIN_LEASE_MS) {
    Some(lease) => lease,
    None => Lease::MAX,
};

const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Settings of a client to be: of [`blocking::Client`](crate::blocking::Client) or of the async `Client`.
pub struct Builder<C> {
    config: Config,
    client: PhantomData<fn() -> C>,
}

impl<C> Builder<C> {
    pub(crate) fn new(address: String) -> Self {
        let config = Config {
            addresses: vec![address],
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            max_hold: None,
            clock: Arc::new(SystemClock),
            resolver: Arc::default(),
            claims: Arc::default(),
        };
        Self { config, client: PhantomData }
    }

    /// One more server address, `host:port`, tried after those before it.
    #[must_use]
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.config.addresses.push(address.into());
        self
    }

    /// How long one attempt may take from the first look-up to the server's first answer, all addresses together. 5 seconds
    /// unless said otherwise. Each address has its share of what is left, so that one which is dead or mute leaves time for the next.
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

    pub(crate) fn into_config(self) -> Result<Arc<Config>, Error> {
        let config = self.config;
        for address in &config.addresses {
            check_address(address)?;
        }
        if config.connect_timeout.is_zero() {
            return Err(Invalid::ConnectTimeout.into());
        }
        if config.max_hold.is_some_and(|max_hold| max_hold.is_zero()) {
            return Err(Invalid::MaxHold.into());
        }
        Ok(Arc::new(config))
    }
}

impl<C> fmt::Debug for Builder<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Builder").field(&self.config).finish()
    }
}

pub(crate) struct Config {
    pub(crate) addresses: Vec<String>,
    pub(crate) connect_timeout: Duration,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) claims: Arc<Claims>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("addresses", &self.addresses)
            .field("connect_timeout", &self.connect_timeout)
            .field("max_hold", &self.max_hold)
            .finish_non_exhaustive()
    }
}

/// One handle's view of a client: the shared settings and what this handle is bound to.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    pub(crate) config: Arc<Config>,
    pub(crate) cancel: Cancel,
    pub(crate) wait_limit: Option<Duration>,
}

impl Handle {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        Self { config, cancel: Cancel::new(), wait_limit: None }
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

fn check_address(address: &str) -> Result<(), Error> {
    if address.is_empty() {
        return Err(Invalid::NoAddress.into());
    }
    let well_formed = match address.rsplit_once(':') {
        Some((host, port)) => !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0),
        None => false,
    };
    if well_formed { Ok(()) } else { Err(Invalid::Address { address: address.to_owned() }.into()) }
}
