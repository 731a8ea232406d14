//! One switch, and on it the server, the machine that may take its place, a crowd and every client, each in a network
//! namespace of its own.
//!
//! All of it lies in the network namespace of the run, which goes with its last process.

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::run::Result;
use crate::run::tools::call;

/// The namespaces of the machines on which there may be a server. One of them has the address where clients look for
/// it.
pub(crate) const SERVERS: [&str; 2] = ["server", "standby"];

/// The namespace of those who connect and say nothing.
pub(crate) const CROWD: &str = "crowd";

/// How many clients' places there are at most.
const PLACES: u8 = 24;

/// The port of the server.
pub(crate) const PORT: u16 = 7070;

/// Where the harness itself is: the proxy listens there.
pub(crate) const HARNESS_IP: Ipv4Addr = Ipv4Addr::new(10, 213, 0, 1);

/// Where clients look for the server.
pub(crate) const SERVER_IP: Ipv4Addr = Ipv4Addr::new(10, 213, 0, 2);

/// [`SERVER_IP`], as it is given to a machine.
const SERVER_ADDRESS: &str = "10.213.0.2/32";

const CROWD_IP: Ipv4Addr = Ipv4Addr::new(10, 213, 0, 3);

/// What the machines of [`SERVERS`] are called for themselves.
const MACHINE_IPS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 213, 0, 4), Ipv4Addr::new(10, 213, 0, 5)];

/// Tells a network, from the namespace that it runs in, that an address is there: as those do who move one.
const ANNOUNCE: &str = "
import socket, sys
address = socket.inet_aton(sys.argv[1])
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as packets:
    packets.bind(('eth0', 0x0806))
    own, everybody = packets.getsockname()[4], bytes([255] * 6)
    request = bytes.fromhex('0001080006040001')
    packets.send(everybody + own + bytes.fromhex('0806') + request + own + address + everybody + address)
";

/// The network.
#[derive(Debug)]
pub(crate) struct Network;

impl Network {
    /// Builds it.
    pub(crate) fn build() -> Result<Self> {
        // Names of namespaces are files under /run, which is to be the run's own.
        call(Command::new("mount").args(["-t", "tmpfs", "tmpfs", "/run"]), "")?;
        ip(&["link", "set", "lo", "up"])?;
        ip(&["link", "add", "switch", "type", "bridge"])?;
        ip(&["address", "add", &format!("{HARNESS_IP}/24"), "dev", "switch"])?;
        ip(&["link", "set", "switch", "up"])?;
        for (server, address) in SERVERS.iter().zip(MACHINE_IPS) {
            plug_in(server, address)?;
        }
        ip(&["-n", SERVERS[0], "address", "add", SERVER_ADDRESS, "dev", "eth0"])?;
        plug_in(CROWD, CROWD_IP)?;
        Ok(Self)
    }

    /// The namespace of a client's place; made where it is new.
    #[expect(clippy::unused_self, reason = "a place is of a network that is there")]
    pub(crate) fn place(&self, number: u8) -> Result<(String, Ipv4Addr)> {
        assert!(number < PLACES, "there is no address for the place {number}");
        let (name, address) = (format!("place{number}"), Ipv4Addr::new(10, 213, 0, 10 + number));
        plug_in(&name, address)?;
        Ok((name, address))
    }

    /// Pulls the cable of a namespace, or puts it in again.
    #[expect(clippy::unused_self, reason = "a cable is of a network that is there")]
    pub(crate) fn cable(&self, namespace: &str, state: Cable) -> Result<()> {
        ip(&["link", "set", &port(namespace), if state == Cable::In { "up" } else { "down" }])
    }

    /// Gives the server's address to a machine, and tells everybody.
    #[expect(clippy::unused_self, reason = "an address is of a network that is there")]
    pub(crate) fn give_address(&self, python: &str, machine: &str) -> Result<()> {
        ip(&["-n", machine, "address", "add", SERVER_ADDRESS, "dev", "eth0"])?;
        call(inside(machine, python).args(["-c", ANNOUNCE, &SERVER_IP.to_string()]), "").map(drop)
    }

    /// Takes it from a machine.
    #[expect(clippy::unused_self, reason = "an address is of a network that is there")]
    pub(crate) fn take_address(&self, machine: &str) -> Result<()> {
        ip(&["-n", machine, "address", "delete", SERVER_ADDRESS, "dev", "eth0"])
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cable {
    In,
    Out,
}

/// A program in a namespace. The process that is started becomes the program's.
pub(crate) fn inside(namespace: &str, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("ip");
    // Ctrl-C is for the harness alone, which ends the others in order.
    command.args(["netns", "exec", namespace]).arg(program).process_group(0);
    command
}

/// The switch's end of the cable.
fn port(namespace: &str) -> String {
    format!("to-{namespace}")
}

fn plug_in(namespace: &str, address: Ipv4Addr) -> Result<()> {
    let port = port(namespace);
    ip(&["netns", "add", namespace])?;
    ip(&["link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", namespace])?;
    ip(&["link", "set", &port, "master", "switch", "up"])?;
    ip(&["-n", namespace, "address", "add", &format!("{address}/24"), "dev", "eth0"])?;
    ip(&["-n", namespace, "link", "set", "eth0", "up"])?;
    ip(&["-n", namespace, "link", "set", "lo", "up"])
}

fn ip(arguments: &[&str]) -> Result<()> {
    call(Command::new("ip").args(arguments), "").map(drop)
}
