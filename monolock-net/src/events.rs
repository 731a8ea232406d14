//! The events of all locks, for those who follow them as they happen.
//!
//! They lie in one ring in memory, in the engine's order, and each reader has a place of its own in it. Nobody waits
//! for a reader: one that the ring has overtaken is told so and dropped. While nobody reads, and nobody is likely to
//! come back, nothing is put down.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use monolock_core::Timestamp;
use tokio::sync::futures::Notified;

use crate::clock::Clock;
use crate::event::Event;
use crate::metrics::Metrics;
use crate::shared::Shared;
use crate::sync::{AtomicBool, Mutex, Notify};

/// How many events are kept where nothing else is said. With the longest names they take 13 MB, commonly half of that.
pub(crate) const KEPT_EVENTS: NonZeroUsize = NonZeroUsize::new(1 << 15).expect("more than none");

/// For so long after the last reader has gone events are kept for it to come back to.
const LINGER: Duration = Duration::from_mins(1);

/// How many events a reader takes at once.
pub(crate) const BATCH_EVENTS: usize = 256;

#[derive(Debug)]
pub(crate) struct Events {
    /// Whether events are put down. It is the ring's `is_on`, to be read without its lock.
    is_watched: AtomicBool,
    /// Tells the ids of this server from those of its other lives.
    life: u64,
    kept: NonZeroUsize,
    clock: Clock,
    ring: Mutex<Ring>,
    news: Notify,
    metrics: Metrics,
}

#[derive(Debug)]
struct Ring {
    events: VecDeque<Event>,
    /// The number of the event that comes next. The last in the ring is the one before.
    next: u64,
    /// From this number on all that happened was put down.
    unbroken_from: u64,
    /// What was given up, and is yet to be freed.
    given_up: VecDeque<Event>,
    readers: usize,
    /// When the last reader went.
    deserted_at: Timestamp,
    is_on: bool,
    /// There are no more events to come.
    is_over: bool,
}

/// Names an event, or a place before the first: what comes after it is yet to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventId {
    life: u64,
    number: u64,
}

/// No event has such an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoEventId;

/// There are as many readers as may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyReaders;

/// From where a reader is to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whence {
    /// From now.
    Now,
    /// From the event after this one.
    After(EventId),
    /// From an event that this server cannot have told of.
    Elsewhere,
}

/// What a reader has got by its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// All that follows upon where it wanted to begin.
    Whole,
    /// So many events were put down after that and are gone; `None` where that is not known.
    Missed(Option<u64>),
}

/// What there is for a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// As many as were put into its hands, and the first has this id.
    Events(EventId),
    /// Nothing at the moment.
    Nothing,
    /// Its next event is gone, and so many with it.
    Overrun(u64),
    /// Nothing any more.
    Over,
}

/// A reader, until it is dropped.
#[derive(Debug)]
pub(crate) struct Reader {
    shared: Arc<Shared>,
    /// The number of the event that it wants next.
    next: u64,
    /// Whether others have decided that it has to go.
    is_dropped: bool,
}

impl Events {
    pub(crate) fn new(kept: NonZeroUsize, clock: Clock, metrics: Metrics) -> Self {
        let ring = Ring {
            events: VecDeque::new(),
            next: 1,
            unbroken_from: 1,
            given_up: VecDeque::new(),
            readers: 0,
            deserted_at: Timestamp::ORIGIN,
            is_on: false,
            is_over: false,
        };
        let life = RandomState::new().hash_one(());
        Self {
            is_watched: AtomicBool::new(false),
            life,
            kept,
            clock,
            ring: Mutex::new(ring),
            news: Notify::new(),
            metrics,
        }
    }

    /// Whether there is anybody to put an event down for. All that it costs where there is not.
    pub(crate) fn is_watched(&self) -> bool {
        // Who sets it passes through every shard's lock after that, so it is seen by whatever comes after.
        self.is_watched.load(Ordering::Relaxed)
    }

    /// Puts an event down in memory; the oldest makes room for it. [`announce`](Self::announce) has it read.
    pub(crate) fn record(&self, event: Event) {
        let mut ring = self.ring.lock();
        if ring.readers == 0 && ring.is_on && self.clock.now().since(ring.deserted_at) >= LINGER {
            ring.give_up();
            self.is_watched.store(false, Ordering::Relaxed);
        }
        if ring.is_on {
            let oldest = (ring.events.len() >= self.kept.get()).then(|| ring.events.pop_front());
            ring.events.push_back(event);
            ring.next += 1;
            drop(ring);
            drop(oldest);
        }
    }

    /// Wakes those who wait for events, and frees what nobody will read. Not for under a lock.
    pub(crate) fn announce(&self) {
        self.news.notify_waiters();
        if !self.is_watched() {
            let given_up = std::mem::take(&mut self.ring.lock().given_up);
            drop(given_up);
        }
    }

    /// Ready when something has happened since this call.
    pub(crate) fn news(&self) -> Notified<'_> {
        self.news.notified()
    }

    /// There are no more events to come.
    pub(crate) fn end(&self) {
        self.ring.lock().is_over = true;
        self.announce();
    }

    /// How many events a reader that wants `next` can have no more.
    fn lost(&self, next: u64) -> u64 {
        self.ring.lock().first().saturating_sub(next)
    }
}

impl Ring {
    /// The number of the oldest event.
    fn first(&self) -> u64 {
        self.next - self.events.len() as u64
    }

    /// Makes room for all that it commonly holds, so that nothing is moved under a shard's lock.
    fn begin(&mut self, kept: NonZeroUsize) {
        if !self.is_on {
            self.is_on = true;
            self.events = VecDeque::with_capacity(kept.min(KEPT_EVENTS).get());
        }
    }

    /// Forgets all, since what comes is not put down any more. The number that is passed over is that of whatever
    /// happens until somebody reads again.
    fn give_up(&mut self) {
        self.is_on = false;
        self.given_up = std::mem::take(&mut self.events);
        self.next += 1;
        self.unbroken_from = self.next;
    }

    /// Where a reader begins that wants to go on from there.
    fn start(&self, life: u64, from: Whence) -> (u64, Start) {
        match from {
            Whence::Now => (self.next, Start::Whole),
            Whence::After(id) if id.life == life && id.number < self.next => {
                let (wanted, first) = (id.number + 1, self.first());
                if wanted >= first {
                    (wanted, Start::Whole)
                } else {
                    (first, Start::Missed((wanted >= self.unbroken_from).then(|| first - wanted)))
                }
            }
            Whence::After(_) | Whence::Elsewhere => (self.first(), Start::Missed(None)),
        }
    }
}

impl Reader {
    /// One more reader, unless there are `max` of them. What happens from now on is put down, whatever shard it
    /// happens in; what a listing shows that is made after this has happened before or will be read.
    pub(crate) fn begin(shared: &Arc<Shared>, from: Whence, max: usize) -> Result<(Self, Start), TooManyReaders> {
        let events = &shared.witness().events;
        {
            let mut ring = events.ring.lock();
            if ring.readers >= max {
                return Err(TooManyReaders);
            }
            ring.readers += 1;
            ring.begin(events.kept);
            events.is_watched.store(true, Ordering::Relaxed);
        }
        let mut reader = Self { shared: Arc::clone(shared), next: 0, is_dropped: false };
        shared.shards.pass_through();
        let start;
        (reader.next, start) = events.ring.lock().start(events.life, from);
        // Whoever sees it counted knows that it misses nothing from then on.
        events.metrics.event_readers.inc();
        Ok((reader, start))
    }

    /// Takes what there is, up to [`BATCH_EVENTS`].
    pub(crate) fn take(&mut self, batch: &mut Vec<Event>) -> Taken {
        let events = &self.shared.witness().events;
        let ring = events.ring.lock();
        let first = ring.first();
        if self.next < first {
            return Taken::Overrun(first - self.next);
        }
        let id = EventId { life: events.life, number: self.next };
        let at = usize::try_from(self.next - first).unwrap_or(usize::MAX).min(ring.events.len());
        batch.extend(ring.events.range(at..).take(BATCH_EVENTS).cloned());
        let is_over = ring.is_over;
        drop(ring);
        self.next += batch.len() as u64;
        match batch.len() {
            0 if is_over => Taken::Over,
            0 => Taken::Nothing,
            _ => Taken::Events(id),
        }
    }

    /// The id of what it has read last.
    pub(crate) fn id(&self) -> EventId {
        EventId { life: self.shared.witness().events.life, number: self.next - 1 }
    }

    /// It goes since it was too slow, and not of its own will.
    pub(crate) fn note_dropped(&mut self) {
        self.is_dropped = true;
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let events = &self.shared.witness().events;
        if self.is_dropped {
            events.metrics.event_readers_dropped.inc();
            events.metrics.events_dropped.inc_by(events.lost(self.next));
        }
        let now = events.clock.now();
        let mut ring = events.ring.lock();
        ring.readers -= 1;
        ring.deserted_at = now;
        drop(ring);
        // Whoever sees it gone may begin in its place.
        events.metrics.event_readers.dec();
    }
}

impl EventId {
    /// The id of the event that comes `count` after it.
    pub(crate) const fn plus(self, count: u64) -> Self {
        Self { life: self.life, number: self.number + count }
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.life, self.number)
    }
}

impl FromStr for EventId {
    type Err = NoEventId;

    fn from_str(text: &str) -> Result<Self, NoEventId> {
        let (life, number) = text.split_once('-').ok_or(NoEventId)?;
        let is_life = life.len() == 16 && life.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        if !is_life || !is_number {
            return Err(NoEventId);
        }
        let life = u64::from_str_radix(life, 16).map_err(|_| NoEventId)?;
        Ok(Self { life, number: number.parse().map_err(|_| NoEventId)? })
    }
}
