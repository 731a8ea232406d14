//! A server in a process of its own, for what concerns a whole process: its descriptors.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use monolock_net::{AdminAccess, AdminListen, AdminSettings};

use crate::server::{TestServer, own_address};

/// What a child says before its addresses.
const GREETING: &str = "serving ";

/// Set in a process that is to be the server of one test.
const MARK: &str = "MONOLOCK_TEST_SERVER";

/// Locked for writing while a child begins: until it is a program of its own it has all open sockets of this process.
static SPAWNING: RwLock<()> = RwLock::new(());

/// As long as this is there, a socket that this process closes is closed.
pub(crate) fn no_child_begins() -> RwLockReadGuard<'static, ()> {
    SPAWNING.read().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
pub(crate) struct ChildServer {
    child: Child,
    /// What else it says is for nobody, but it must be able to say it.
    _output: BufReader<ChildStdout>,
    pub(crate) locks: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) ops: SocketAddr,
}

impl ChildServer {
    /// The server of a test, with so many descriptors to open. The child is this binary again, told to run that test
    /// alone; there it is served here until the test's end, and `None` is returned.
    pub(crate) fn of_test(name: &str, descriptors: usize) -> Option<Self> {
        if std::env::var_os(MARK).is_some() {
            serve();
            return None;
        }
        let alone = SPAWNING.write().unwrap_or_else(PoisonError::into_inner);
        let mut child = Command::new("sh")
            .args(["-c", "ulimit -n \"$2\" && exec \"$0\" --exact \"$1\" --nocapture"])
            .arg(std::env::current_exe().unwrap())
            .args([name, &descriptors.to_string()])
            .env(MARK, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        drop(alone);
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut lines = output.by_ref().lines().map(Result::unwrap);
        let said = lines.find_map(|line| line.split_once(GREETING).map(|(_, addresses)| addresses.to_owned()));
        let said = said.unwrap_or_else(|| panic!("no server of {name} says its addresses"));
        let addresses: Vec<SocketAddr> = said.split(' ').map(|address| address.parse().unwrap()).collect();
        let [locks, admin, ops] = addresses[..] else { panic!("three addresses, not {said:?}") };
        Some(Self { child, _output: output, locks, admin, ops })
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for ChildServer {
    fn drop(&mut self) {
        // The end of its input is the end of the child.
        drop(self.child.stdin.take());
        let _gone = self.child.wait();
    }
}

fn serve() {
    let (admin, ops) = (own_address(), own_address());
    let server = TestServer::with(move |builder| {
        builder.admin(AdminSettings { listen: AdminListen::Tcp(admin), access: AdminAccess::Local }).ops(ops)
    });
    println!("{GREETING}{} {} {}", server.address(), server.admin(), server.ops());
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}
