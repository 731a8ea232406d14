//! A client whose TLS is OpenSSL's: the process `openssl s_client` carries its bytes.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::pki::{Authority, Pair};
use crate::support::{Frame, PATIENCE, acquire};

/// A connection over TLS. It ends with this value, without a farewell.
pub(crate) struct TlsClient {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Receiver<Vec<u8>>,
    stderr: Option<thread::JoinHandle<String>>,
    unread: Vec<u8>,
}

impl TlsClient {
    /// Connects, trusts what `authority` signed, and shows a certificate if it has one.
    pub(crate) fn connect(address: SocketAddr, authority: &Authority, own: Option<&Pair>) -> Self {
        Self::connect_with(address, authority, own, &[])
    }

    /// With more flags of `s_client`.
    pub(crate) fn connect_with(address: SocketAddr, authority: &Authority, own: Option<&Pair>, flags: &[&str]) -> Self {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-quiet", "-verify_return_error", "-connect", &address.to_string()]);
        command.args(flags).arg("-CAfile").arg(&authority.own.certificate);
        if let Some(Pair { certificate, key }) = own {
            command.arg("-cert").arg(certificate).arg("-key").arg(key);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, stdout) = channel();
        let mut pipe = child.stdout.take().unwrap();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = pipe.read(&mut bytes) {
                if sender.send(bytes[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        let mut pipe = child.stderr.take().unwrap();
        let stderr = Some(thread::spawn(move || {
            let mut said = String::new();
            let _ = pipe.read_to_string(&mut said);
            said
        }));
        Self { stdin: child.stdin.take(), child, stdout, stderr, unread: Vec::new() }
    }

    /// A session that owns the lock.
    #[track_caller]
    pub(crate) fn hold(address: SocketAddr, authority: &Authority, own: Option<&Pair>, name: &str) -> Self {
        let mut client = Self::connect(address, authority, own);
        client.acquire(name);
        client.expect_acquired();
        client
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// Claims a lock, with a lease that no test outlives.
    pub(crate) fn acquire(&mut self, name: &str) {
        self.send(&acquire(name, 600_000));
    }

    pub(crate) fn heartbeat(&mut self) {
        self.send(&[0x02]);
    }

    pub(crate) fn frame(&mut self) -> Frame {
        loop {
            if let Some(frame) = Frame::take(&mut self.unread) {
                return frame;
            }
            match self.stdout.recv_timeout(PATIENCE) {
                Ok(bytes) => self.unread.extend(bytes),
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return Frame::End,
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("no frame"),
            }
        }
    }

    #[track_caller]
    pub(crate) fn expect(&mut self, frame: Frame) {
        let heard = self.frame();
        assert!(heard == frame, "{frame:?} was expected, {heard:?} came; s_client said {}", self.stderr());
    }

    #[track_caller]
    pub(crate) fn expect_acquired(&mut self) -> u64 {
        match self.frame() {
            Frame::Acquired(token) => token,
            other @ (Frame::Waiting | Frame::Error(_) | Frame::End) => {
                panic!("ACQUIRED was expected, {other:?} came; s_client said {}", self.stderr())
            }
        }
    }

    /// Says that no more will be sent. With the flag `-no_ign_eof` it goes out as a farewell of TLS.
    pub(crate) fn close_stdin(&mut self) {
        drop(self.stdin.take());
    }

    /// Ends it by SIGKILL: the kernel closes its socket, and TLS has no last word.
    pub(crate) fn kill(&mut self) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), Signal::SIGKILL).unwrap();
        self.child.wait().unwrap();
    }

    /// What `s_client` says about its end, which the server causes.
    #[track_caller]
    pub(crate) fn complaint(mut self) -> String {
        self.expect(Frame::End);
        self.stderr()
    }

    fn stderr(&mut self) -> String {
        let _ = self.child.kill();
        self.stderr.take().map(|said| said.join().unwrap()).unwrap_or_default()
    }
}

impl Drop for TlsClient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
