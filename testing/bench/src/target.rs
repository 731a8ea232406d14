//! The measured servers, each a process of its own with the same runtime.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStdin, Command, Stdio};

use clap::ValueEnum;
use monolock_net::Server;
use tokio::net::TcpListener;

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Kind {
    Relay,
    Monolock,
}

/// A server that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct Target {
    child: Child,
    /// Its end is the server's.
    stdin: Option<ChildStdin>,
    address: SocketAddr,
}

impl Target {
    pub(crate) fn start(kind: Kind) -> io::Result<Self> {
        let kind = kind.to_possible_value().expect("no kind is hidden");
        let mut child = Command::new(std::env::current_exe()?)
            .args(["serve", kind.get_name()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("standard output is piped");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line.trim().parse().map_err(|_| io::Error::other("the server did not say its address"))?;
        Ok(Self { child, stdin, address })
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // It ends by itself; what it says is of no use any more.
        let _ = self.child.wait();
    }
}

/// Is the server of this kind, until standard input ends.
pub(crate) fn serve(kind: Kind) -> io::Result<()> {
    std::thread::spawn(|| {
        let _ = io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        match kind {
            Kind::Relay => {
                let listener = TcpListener::bind(any).await?;
                println!("{}", listener.local_addr()?);
                crate::relay::serve(listener).await
            }
            Kind::Monolock => {
                let server = Server::builder().listen(any).bind()?;
                println!("{}", server.local_addr());
                server.run().await;
                Ok(())
            }
        }
    })
}
