//! A monolock server inside another program.
//!
//! It listens on a port of its own choice, two clients meet there, the lock passes from one to the other, and the
//! server stops. The clients are raw sockets, to show how little there is to the protocol; a real program takes
//! `monolock-client`.
//!
//! ```text
//! $ cargo run -p monolock-net --example embedded_server
//! alice holds the lock under token #1859838046765057
//! bob waits
//! alice leaves
//! bob holds the lock under token #1859838046765058
//! the server stops and tells bob so: 01
//! ```

use std::io::{self, Write};

use monolock_net::Server;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Version 1, a lease of 30 000 ms, a name of 4 bytes.
const ACQUIRE: &[u8] = b"\x01\x01\x00\x00\x75\x30\x00\x04jobs";

const WAITING: u8 = 0x11;
const ACQUIRED: u8 = 0x12;
const ERROR: u8 = 0x13;

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    hand_over(&mut io::stdout()).await
}

/// A server's whole life, and a handover in it.
pub(crate) async fn hand_over(out: &mut impl Write) -> io::Result<()> {
    let server = Server::builder().listen(([127, 0, 0, 1], 0).into()).bind()?;
    let (address, handle) = (server.local_addr(), server.handle());
    let running = tokio::spawn(server.run());

    let mut alice = TcpStream::connect(address).await?;
    alice.write_all(ACQUIRE).await?;
    expect(&mut alice, ACQUIRED).await?;
    writeln!(out, "alice holds the lock under token #{}", alice.read_u64().await?)?;

    let mut bob = TcpStream::connect(address).await?;
    bob.write_all(ACQUIRE).await?;
    expect(&mut bob, WAITING).await?;
    writeln!(out, "bob waits")?;

    // There is no release message: closing the connection is the release.
    drop(alice);
    writeln!(out, "alice leaves")?;
    expect(&mut bob, ACQUIRED).await?;
    writeln!(out, "bob holds the lock under token #{}", bob.read_u64().await?)?;

    handle.shutdown();
    expect(&mut bob, ERROR).await?;
    writeln!(out, "the server stops and tells bob so: {:02x}", bob.read_u8().await?)?;
    drop(bob);
    running.await.map_err(io::Error::other)?.map_err(io::Error::other)
}

async fn expect(client: &mut TcpStream, frame: u8) -> io::Result<()> {
    let heard = client.read_u8().await?;
    if heard == frame { Ok(()) } else { Err(io::Error::other(format!("{frame:#04x} was expected, not {heard:#04x}"))) }
}
