//! Waiting that does not oversleep the machine's own sleep.
//!
//! The timers of runtimes and sockets stand still while the machine is suspended, so after waking they would tell of a
//! lost lock only when the rest of their time has passed. On Linux and Android an alarm is a timer of the kernel on the
//! clock that runs on; it goes off at waking. Elsewhere, and where no descriptor is left for it, it is the ordinary
//! timer: the loss is told late by at most the time to the next heartbeat. [`Held::is_held`](crate::Held::is_held) is
//! right at once either way.

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) use kernel::BootTimer;

#[cfg(any(target_os = "linux", target_os = "android"))]
mod kernel {
    use std::io;
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
    use std::time::Duration;

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
    };

    /// A descriptor that becomes readable when its time has passed, suspend included.
    #[derive(Debug)]
    pub(crate) struct BootTimer(OwnedFd);

    impl BootTimer {
        pub(crate) fn new() -> io::Result<Self> {
            let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
            Ok(Self(timerfd_create(TimerfdClockId::Boottime, flags)?))
        }

        /// Sets it, whatever it was set to.
        pub(crate) fn set(&self, after: Duration) -> io::Result<()> {
            // Zero would switch it off.
            let after = after.max(Duration::from_nanos(1));
            let it_value = Timespec {
                tv_sec: after.as_secs().try_into().unwrap_or(i64::from(u32::MAX)),
                tv_nsec: after.subsec_nanos().into(),
            };
            let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
            timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &Itimerspec { it_interval, it_value })?;
            Ok(())
        }

        /// Takes note that it went off; `WouldBlock` where it did not.
        #[cfg(feature = "tokio")]
        pub(crate) fn take(&self) -> io::Result<()> {
            rustix::io::read(&self.0, &mut [0_u8; 8])?;
            Ok(())
        }
    }

    impl AsFd for BootTimer {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    impl AsRawFd for BootTimer {
        fn as_raw_fd(&self) -> RawFd {
            self.0.as_raw_fd()
        }
    }
}

/// Has the runtime watch the timer.
#[cfg(all(feature = "tokio", any(target_os = "linux", target_os = "android")))]
#[expect(
    deprecated,
    reason = "its heir is unsafe for types whose descriptor may change; a BootTimer keeps its own for life"
)]
fn watched(timer: BootTimer) -> std::io::Result<tokio::io::unix::AsyncFd<BootTimer>> {
    tokio::io::unix::AsyncFd::with_interest(timer, tokio::io::Interest::READABLE)
}

/// Wakes a task.
#[cfg(feature = "tokio")]
#[derive(Debug)]
pub(crate) struct Alarm {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    timer: Option<tokio::io::unix::AsyncFd<BootTimer>>,
}

#[cfg(feature = "tokio")]
impl Alarm {
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(any(target_os = "linux", target_os = "android"))]
            timer: BootTimer::new().and_then(watched).ok(),
        }
    }

    /// Returns when so much time has passed.
    pub(crate) async fn after(&self, duration: std::time::Duration) {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if let Some(timer) = &self.timer
            && timer.get_ref().set(duration).is_ok()
        {
            // Readiness may be left over from an earlier setting: only taking the expiry proves it.
            while let Ok(mut ready) = timer.readable().await {
                if ready.try_io(|timer| timer.get_ref().take()).is_ok() {
                    break;
                }
            }
            return;
        }
        tokio::time::sleep(duration).await;
    }
}

/// What a thread waits for at a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    Readable,
    /// One of the two.
    ReadableOrWritable,
}

/// Wakes a thread that waits for a socket.
#[derive(Debug)]
pub(crate) struct SocketWait {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    timer: Option<BootTimer>,
}

impl SocketWait {
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(any(target_os = "linux", target_os = "android"))]
            timer: BootTimer::new().ok(),
        }
    }

    /// Returns when `stream` has what is awaited, or when so much time has passed, or a moment too early.
    pub(crate) fn wait(
        &self,
        stream: &std::net::TcpStream,
        awaited: Awaited,
        timeout: std::time::Duration,
    ) -> std::io::Result<()> {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if let Some(timer) = &self.timer {
            timer.set(timeout)?;
            return interruptible(rustix::event::poll(
                &mut [poll_fd(stream, awaited), rustix::event::PollFd::new(timer, rustix::event::PollFlags::IN)],
                None,
            ));
        }
        wait_without_alarm(stream, awaited, timeout)
    }
}

#[cfg(unix)]
fn wait_without_alarm(
    stream: &std::net::TcpStream,
    awaited: Awaited,
    timeout: std::time::Duration,
) -> std::io::Result<()> {
    let timeout = rustix::event::Timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(i64::from(u32::MAX)),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    interruptible(rustix::event::poll(&mut [poll_fd(stream, awaited)], Some(&timeout)))
}

#[cfg(unix)]
fn poll_fd(stream: &std::net::TcpStream, awaited: Awaited) -> rustix::event::PollFd<'_> {
    use rustix::event::{PollFd, PollFlags};

    let flags = match awaited {
        Awaited::Readable => PollFlags::IN,
        Awaited::ReadableOrWritable => PollFlags::IN | PollFlags::OUT,
    };
    PollFd::new(stream, flags)
}

/// A signal that comes between ends the wait and nothing else.
#[cfg(unix)]
fn interruptible(polled: Result<usize, rustix::io::Errno>) -> std::io::Result<()> {
    match polled {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Without a way to wait for two things at once: for reading as long as asked, for writing in short naps.
#[cfg(not(unix))]
fn wait_without_alarm(
    stream: &std::net::TcpStream,
    awaited: Awaited,
    timeout: std::time::Duration,
) -> std::io::Result<()> {
    if awaited == Awaited::ReadableOrWritable {
        std::thread::sleep(timeout.min(NAP));
        return Ok(());
    }
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(timeout))?;
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(true)?;
    match peeked {
        Err(error) if !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
            Err(error)
        }
        _ => Ok(()),
    }
}

#[cfg(not(unix))]
const NAP: std::time::Duration = std::time::Duration::from_millis(2);
