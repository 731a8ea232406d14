//! How a connection to the server is made: from which address, and with TLS or without.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use socket2::SockRef;
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::args::{BenchArgs, Close, Scenario};
use super::failures::FailureKind;
use super::plan::Plan;
use super::session::Stream;
use crate::failure::{FAILED, Failure};
use crate::secured::Secured;

/// Connections that one source address is good for, below the number of its ephemeral ports (28 231 on Linux).
const CONNECTIONS_AN_ADDRESS: usize = 20_000;

/// Source addresses for clients whose ports stay in use for a minute after each.
const ADDRESSES_FOR_CYCLES: u32 = 512;

/// Connects to the server.
#[derive(Clone)]
pub(crate) struct Dialler {
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<Tls>,
    close: Close,
    sources: Option<Sources>,
}

/// How TLS is spoken.
#[derive(Clone)]
pub(crate) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
    /// Whether this side shows a certificate.
    pub(crate) is_mutual: bool,
}

/// The source addresses, which take turns: 127.0.0.1 and those after it.
#[derive(Clone)]
struct Sources {
    addresses: u32,
    next: Arc<AtomicU32>,
}

impl Dialler {
    /// Looks the server up, reads the files, and connects once to see that somebody is there.
    ///
    /// # Errors
    /// The first of these that fails.
    pub(crate) fn prepare(args: &BenchArgs, plan: &Plan) -> Result<Self, Failure> {
        let BenchArgs { server, tls, .. } = args;
        let tls = tls.read(server, FAILED)?.map(|Secured { mut config, name, is_mutual }| {
            // Each connection is a new client, as in life.
            config.resumption = Resumption::disabled();
            Tls { connector: TlsConnector::from(Arc::new(config)), name, is_mutual }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::new(FAILED, format_args!("cannot start: {error}")))?;
        let found = runtime.block_on(async {
            let mut failure = "the name has no address".to_owned();
            for address in lookup_host(server).await.map_err(|error| error.to_string())? {
                match timeout(plan.timeout, TcpStream::connect(address)).await {
                    Ok(Ok(_)) => return Ok(address),
                    Ok(Err(error)) => failure = error.to_string(),
                    Err(_elapsed) => failure = format!("no answer within {:?}", plan.timeout),
                }
            }
            Err(failure)
        });
        // A look-up of a name that hangs must not keep the process.
        runtime.shutdown_background();
        let address = found.map_err(|why| {
            let advice = "see that a server runs there, or name another with --server or MONOLOCK_SERVER";
            Failure::new(FAILED, format_args!("no server was reached at {server}: {why}; {advice}"))
        })?;
        Ok(Self { address, tls, close: plan.close, sources: Sources::of(plan, address.ip()) })
    }

    /// A new connection, ready for the first frame.
    pub(crate) async fn connect(&self) -> Result<Stream, FailureKind> {
        let tcp = self.connect_tcp().await.map_err(|error| FailureKind::connecting(&error))?;
        match &self.tls {
            None => Ok(Stream::Plain(tcp)),
            Some(Tls { connector, name, .. }) => match connector.connect(name.clone(), tcp).await {
                Ok(stream) => Ok(Stream::Tls(Box::new(stream))),
                Err(_) => Err(FailureKind::Handshake),
            },
        }
    }

    async fn connect_tcp(&self) -> std::io::Result<TcpStream> {
        let socket = if self.address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        if let Some(sources) = &self.sources {
            // Port 0 is taken when it is bound; the address has enough of them.
            socket.bind(sources.take_turn().into())?;
        }
        if self.close == Close::Reset {
            SockRef::from(&socket).set_linger(Some(std::time::Duration::ZERO))?;
        }
        let tcp = socket.connect(self.address).await?;
        tcp.set_nodelay(true)?;
        Ok(tcp)
    }
}

impl Sources {
    /// None where the system's own choice will do, or where there is no other.
    fn of(plan: &Plan, server: IpAddr) -> Option<Self> {
        let keeps_ports = plan.close == Close::Orderly && plan.scenario == Scenario::Cycle;
        let addresses = match u32::try_from(plan.connections.div_ceil(CONNECTIONS_AN_ADDRESS)) {
            Ok(addresses) if keeps_ports => addresses.max(ADDRESSES_FOR_CYCLES),
            Ok(addresses) => addresses,
            Err(_) => return None,
        };
        let is_here = matches!(server, IpAddr::V4(server) if server.is_loopback());
        // Only Linux has all of 127.0.0.0/8 without being told.
        (cfg!(target_os = "linux") && is_here && addresses > 1)
            .then(|| Self { addresses, next: Arc::new(AtomicU32::new(0)) })
    }

    fn take_turn(&self) -> (Ipv4Addr, u16) {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.addresses;
        (Ipv4Addr::from_bits(Ipv4Addr::LOCALHOST.to_bits() + turn), 0)
    }
}
