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

/// The namespaces of the machines on which there may be a server, each with the address where clients look for it. One
/// of them answers to it.
pub(crate) const SERVERS: [&str; 2] = ["server", "standby"];

/// The namespace of those who connect and say nothing.
pub(crate) const CROWD: &str = "crowd";

/// How many clients' places there are at most.
const PLACES: u8 = 24;

/// The port of the server.
pub(crate) const PORT: u16 = 7070;

/// Where the harness itself is: the proxy listens there.
pub(crate) const HARNESS_IP: Ipv4Addr = Ipv4Addr::new(10, 213, 0, 1);

/// Where the server is.
pub(crate) const SERVER_IP: Ipv4Addr = Ipv4Addr::new(10, 213, 0, 2);

const CROWD_IP: Ipv4Addr = Ipv4Addr::new(10, 213, 0, 3);

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
        for server in SERVERS {
            plug_in(server, SERVER_IP)?;
            // A cable that is put in is announced to everybody, as by those who move an address.
            let setting = "echo 1 >/proc/sys/net/ipv4/conf/eth0/arp_notify";
            call(inside(server, "sh").args(["-c", setting]), "")?;
            ip(&["link", "set", &port(server), "down"])?;
        }
        plug_in(CROWD, CROWD_IP)?;
        Self.announce(SERVERS[0])?;
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

    /// Puts the cable of a server's machine in, which tells everybody that the server's address is there now. The other
    /// machine's cable is out.
    pub(crate) fn announce(&self, machine: &str) -> Result<()> {
        self.cable(machine, Cable::In)?;
        ip(&["-n", machine, "link", "set", "eth0", "down"])?;
        ip(&["-n", machine, "link", "set", "eth0", "up"])
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
