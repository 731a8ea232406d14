//! A TCP relay between a client and the server that can be slow, mute, or half gone.
//!
//! It never tells the server that a client is gone before the client is told or has gone itself: a middle that did
//! would take a lock from a client that still believes, which no lock service can prevent.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use monolock_chaos::plan::LONGEST_LEASE_MS;
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::run::Result;

/// How the relay treats what it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Pass,
    /// Everything arrives so much later.
    Delay(Duration),
    /// Nothing arrives.
    Stall,
    /// One byte at a time, with so much between two.
    Dribble(Duration),
    /// The way to the client is closed; what the client sends arrives.
    HalfClose,
    /// The client's connection is reset. The server's stays until no client can believe any more.
    Reset,
}

/// The relay of one client.
#[derive(Debug)]
pub(crate) struct Proxy {
    mode: watch::Sender<Mode>,
    /// How many bytes were not simply passed on, and how many connections were closed.
    touched: Arc<AtomicU64>,
}

impl Proxy {
    /// Listens on `address` and relays to `server`.
    pub(crate) fn start(runtime: &Runtime, address: (Ipv4Addr, u16), server: (Ipv4Addr, u16)) -> Result<Self> {
        let (sender, mode) = watch::channel(Mode::Pass);
        let touched = Arc::new(AtomicU64::new(0));
        let listener = runtime.block_on(TcpListener::bind(SocketAddr::from(address)));
        let listener = listener.map_err(|error| format!("the proxy cannot listen: {error}"))?;
        let relay = Relay { server: server.into(), mode, touched: Arc::clone(&touched) };
        runtime.spawn(async move {
            loop {
                if let Ok((client, _)) = listener.accept().await {
                    tokio::spawn(relay.clone().serve(client));
                }
            }
        });
        Ok(Self { mode: sender, touched })
    }

    /// Treats everything so from now on.
    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    pub(crate) fn touched(&self) -> u64 {
        self.touched.load(Ordering::SeqCst)
    }
}

#[derive(Clone)]
struct Relay {
    server: SocketAddr,
    mode: watch::Receiver<Mode>,
    touched: Arc<AtomicU64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    ToServer,
    ToClient,
}

impl Relay {
    async fn serve(self, mut client: TcpStream) {
        let Ok(mut server) = TcpStream::connect(self.server).await else { return };
        let (_, _) = (client.set_nodelay(true), server.set_nodelay(true));
        let mut mode = self.mode.clone();
        let is_reset = {
            let (from_client, to_client) = client.split();
            let (from_server, to_server) = server.split();
            let pumping = async {
                let _ = tokio::join!(
                    self.pump(from_client, to_server, Way::ToServer),
                    self.pump(from_server, to_client, Way::ToClient)
                );
            };
            tokio::select! {
                () = pumping => false,
                () = becomes(&mut mode, Mode::Reset) => true,
            }
        };
        if is_reset {
            // A close that lingers for no time is a reset.
            let _ = SockRef::from(&client).set_linger(Some(Duration::ZERO));
            drop(client);
            self.touch(1);
            sleep(Duration::from_millis(LONGEST_LEASE_MS)).await;
        }
        drop(server);
    }

    /// Carries bytes one way, until that ends.
    async fn pump(&self, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, way: Way) -> io::Result<()> {
        let mut mode = self.mode.clone();
        let mut buffer = [0; 256];
        loop {
            let read = tokio::select! {
                read = from.read(&mut buffer) => read,
                () = becomes(&mut mode, Mode::HalfClose), if way == Way::ToClient => {
                    self.touch(1);
                    return to.shutdown().await;
                }
            };
            // Whatever its mode was as the bytes came: nothing leaves a relay that stands still.
            let is_moving = |mode: &Mode| *mode != Mode::Stall;
            let stands = !is_moving(&mode.borrow());
            if stands {
                self.touch(1);
            }
            let now = mode.wait_for(is_moving).await.map(|mode| *mode).map_err(io::Error::other)?;
            let bytes = match read {
                Ok(0) | Err(_) => return to.shutdown().await,
                Ok(bytes) => &buffer[..bytes],
            };
            match now {
                Mode::Delay(time) => {
                    self.touch(bytes.len());
                    sleep(time).await;
                    to.write_all(bytes).await?;
                }
                Mode::Dribble(time) => {
                    self.touch(bytes.len());
                    for byte in bytes {
                        to.write_all(&[*byte]).await?;
                        sleep(time).await;
                    }
                }
                Mode::Pass | Mode::Stall | Mode::HalfClose | Mode::Reset => to.write_all(bytes).await?,
            }
        }
    }

    fn touch(&self, count: usize) {
        self.touched.fetch_add(count as u64, Ordering::SeqCst);
    }
}

/// Waits until a mode is set; for ever where nobody can set it any more.
async fn becomes(mode: &mut watch::Receiver<Mode>, wanted: Mode) {
    if mode.wait_for(|mode| *mode == wanted).await.is_err() {
        std::future::pending::<()>().await;
    }
}
