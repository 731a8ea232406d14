//! Time that stands still until the model lets it pass.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use monolock_core::Timestamp;
use shuttle::sync::atomic::AtomicBool;
use shuttle::thread::JoinHandle;

shuttle::lazy_static! {
    static ref TIME: Time = Time::default();
}

/// Its lock is none of the model's: whatever is done to the time is one step.
#[derive(Debug, Default)]
struct Time(Mutex<Sleepers>);

#[derive(Debug)]
struct Sleepers {
    now: Timestamp,
    next: u64,
    sleeping: Vec<Sleeper>,
}

#[derive(Debug)]
struct Sleeper {
    number: u64,
    until: Timestamp,
    waker: Waker,
}

impl Default for Sleepers {
    fn default() -> Self {
        Self { now: Timestamp::ORIGIN, next: 0, sleeping: Vec::new() }
    }
}

fn time() -> MutexGuard<'static, Sleepers> {
    TIME.0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets time pass, and wakes whom it concerns. They come to it when the scheduler chooses.
pub(crate) fn advance(by: Duration) {
    shuttle::thread::yield_now();
    let mut time = time();
    let now = time.now.saturating_add(by);
    time.now = now;
    let due: Vec<Sleeper> = time.sleeping.extract_if(.., |sleeper| sleeper.until <= now).collect();
    drop(time);
    for sleeper in due {
        sleeper.waker.wake();
    }
}

/// Lets time pass until it is stopped.
#[derive(Debug)]
pub(crate) struct Passing {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Passing {
    /// Begins, in steps of this length.
    pub(crate) fn begin(step: Duration) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_over);
        let thread = shuttle::thread::spawn(move || {
            while !seen.load(Ordering::SeqCst) {
                advance(step);
            }
        });
        Self { is_over, thread }
    }

    pub(crate) fn stop(self) {
        let Self { is_over, thread } = self;
        is_over.store(true, Ordering::SeqCst);
        thread.join().expect("time goes on");
    }
}

/// The model's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// As there is one time for all, nothing but the size of a clock, which is handed around.
    _origin: Timestamp,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { _origin: Timestamp::ORIGIN }
    }

    #[expect(clippy::unused_self, reason = "the server's clock is asked like this")]
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the server's clock is asked like this")]
    pub(crate) fn now(&self) -> Timestamp {
        time().now
    }

    pub(crate) async fn reach(&self, instant: Timestamp, event: impl Future<Output = ()>) {
        let _ = until(instant, event).await;
    }

    pub(crate) fn wall() -> SystemTime {
        UNIX_EPOCH + time().now.since(Timestamp::ORIGIN)
    }

    pub(crate) fn wall_at(timestamp: Timestamp, now: Timestamp, wall: SystemTime) -> SystemTime {
        wall.checked_sub(now.since(timestamp)).unwrap_or(UNIX_EPOCH)
    }

    pub(crate) fn unix_second(wall: SystemTime) -> u64 {
        wall.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }
}

/// The time was over before the future.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elapsed;

pub(crate) async fn timeout<F: Future>(patience: Duration, future: F) -> Result<F::Output, Elapsed> {
    let deadline = time().now.saturating_add(patience);
    until(deadline, future).await
}

async fn until<F: Future>(deadline: Timestamp, future: F) -> Result<F::Output, Elapsed> {
    let mut future = pin!(future);
    let mut sleep = Sleep { deadline, number: None };
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Ok(output)),
        Poll::Pending => sleep.poll(context).map(|()| Err(Elapsed)),
    })
    .await
}

/// Wakes nobody any more once it is dropped: a wake-up for nothing could stand in for one that was lost.
struct Sleep {
    deadline: Timestamp,
    number: Option<u64>,
}

impl Sleep {
    fn poll(&mut self, context: &Context<'_>) -> Poll<()> {
        let mut time = time();
        if time.now >= self.deadline {
            return Poll::Ready(());
        }
        let waker = context.waker().clone();
        if let Some(sleeper) = time.sleeping.iter_mut().find(|sleeper| Some(sleeper.number) == self.number) {
            sleeper.waker = waker;
        } else {
            let number = time.next;
            time.next += 1;
            self.number = Some(number);
            time.sleeping.push(Sleeper { number, until: self.deadline, waker });
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            time().sleeping.retain(|sleeper| sleeper.number != number);
        }
    }
}
