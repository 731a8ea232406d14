//! Which session may be out of time next.
//!
//! Each session has one entry, armed when it comes and gone when it goes; a heartbeat does not touch it, so an entry is
//! a lower bound of its session's deadline. Whoever takes an entry out asks the session, and arms it anew if it has
//! been heard since.
//!
//! The entries stand in a hierarchical wheel: eight levels of 64 slots, a slot of level `n` as wide as the whole of
//! level `n − 1`. An entry lies at the level of the highest bit in which its tick differs from the present one, so all
//! of a level come before all of the next. Its list is threaded through the sessions. Arming and disarming touch no
//! more than two neighbours, however many sessions there are.

use alloc::boxed::Box;
use alloc::vec;
use core::num::NonZeroU16;

use crate::Timestamp;
use crate::engine::Session;
use crate::slab::{Key, Slab};

/// A tick is 2^20 ns, 1.05 ms: a slot of level 0. It is no rounding, since a slot knows its earliest instant exactly.
const TICK_BITS: u32 = 20;
const LEVEL_BITS: u32 = 6;
const SLOTS: usize = 1 << LEVEL_BITS;
const SLOT_MASK: u64 = (1 << LEVEL_BITS) - 1;
const LEVELS: usize = 8;
/// Every tick of a [`Timestamp`] finds its level.
const _: () = assert!(LEVELS * LEVEL_BITS as usize >= (u64::BITS - TICK_BITS) as usize);

#[derive(Debug)]
pub(crate) struct Deadlines {
    /// No entry is armed for an earlier tick.
    present: u64,
    /// One bit for each level that has an entry.
    occupied_levels: u8,
    levels: Box<[Level]>,
}

#[derive(Clone, Debug)]
struct Level {
    /// One bit for each slot that has an entry.
    occupied: u64,
    slots: [Slot; SLOTS],
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    first: Option<Key>,
    /// No entry of the slot is earlier.
    earliest: Timestamp,
}

/// A session's place in the wheel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arming {
    previous: Option<Key>,
    next: Option<Key>,
    slot: Option<SlotNumber>,
}

/// Level and slot in one number, plus one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SlotNumber(NonZeroU16);

/// The entries of one slot, taken out of the wheel: each is to be armed again, or its session to be ended.
pub(crate) struct Taken {
    next: Option<Key>,
}

impl Deadlines {
    pub(crate) fn new() -> Self {
        let slot = Slot { first: None, earliest: Timestamp::MAX };
        let level = Level { occupied: 0, slots: [slot; SLOTS] };
        Self { present: 0, occupied_levels: 0, levels: vec![level; LEVELS].into_boxed_slice() }
    }

    /// No session is out of time before this instant; `None` if there are no entries.
    pub(crate) fn earliest(&self) -> Option<Timestamp> {
        self.earliest_slot().map(|(level, slot)| self.levels[level].slots[slot].earliest)
    }

    /// Puts a session's entry in, which has none.
    pub(crate) fn arm(&mut self, sessions: &mut Slab<Session>, key: Key, deadline: Timestamp) {
        let tick = deadline.as_nanos() >> TICK_BITS;
        debug_assert!(tick >= self.present, "a deadline is armed before it is due, and found again no earlier");
        let number = SlotNumber::of(self.present, tick);
        let (level, slot) = number.split();
        let place = &mut self.levels[level].slots[slot];
        let next = place.first.replace(key);
        place.earliest = place.earliest.min(deadline);
        self.levels[level].occupied |= 1 << slot;
        self.occupied_levels |= 1 << level;
        sessions[key].arming = Arming { previous: None, next, slot: Some(number) };
        if let Some(next) = next {
            sessions[next].arming.previous = Some(key);
        }
    }

    /// Takes a session's entry out; nothing happens if it has none.
    pub(crate) fn disarm(&mut self, sessions: &mut Slab<Session>, key: Key) {
        let Arming { previous, next, slot } = core::mem::take(&mut sessions[key].arming);
        let Some(number) = slot else { return };
        if let Some(next) = next {
            sessions[next].arming.previous = previous;
        }
        match previous {
            Some(previous) => sessions[previous].arming.next = next,
            None => self.set_first(number, next),
        }
    }

    /// Takes out all entries of the earliest slot, if its earliest instant is not after `now`.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Option<Taken> {
        let (level, slot) = self.earliest_slot()?;
        let place = self.levels[level].slots[slot];
        if place.earliest > now {
            return None;
        }
        self.set_first(SlotNumber::new(level, slot), None);
        let shift = LEVEL_BITS * u32::try_from(level).expect("there are eight levels");
        let start = (self.present >> shift >> LEVEL_BITS << LEVEL_BITS | slot as u64) << shift;
        self.present = self.present.max(start);
        Some(Taken { next: place.first })
    }

    /// Whether `deadline` lies in the tick whose entries were taken last. Of all deadlines in the wheel those come
    /// first, so their sessions may end now; one that is due as well but lies in a later tick has to wait for those
    /// between.
    pub(crate) fn is_present(&self, deadline: Timestamp) -> bool {
        deadline.as_nanos() >> TICK_BITS == self.present
    }

    fn earliest_slot(&self) -> Option<(usize, usize)> {
        if self.occupied_levels == 0 {
            return None;
        }
        let level = self.occupied_levels.trailing_zeros() as usize;
        Some((level, self.levels[level].occupied.trailing_zeros() as usize))
    }

    fn set_first(&mut self, number: SlotNumber, first: Option<Key>) {
        let (level, slot) = number.split();
        self.levels[level].slots[slot].first = first;
        if first.is_none() {
            self.levels[level].slots[slot].earliest = Timestamp::MAX;
            self.levels[level].occupied &= !(1 << slot);
            if self.levels[level].occupied == 0 {
                self.occupied_levels &= !(1 << level);
            }
        }
    }
}

impl Taken {
    /// The next session that was taken out. It has no entry from now on.
    pub(crate) fn next(&mut self, sessions: &mut Slab<Session>) -> Option<Key> {
        let key = self.next?;
        self.next = core::mem::take(&mut sessions[key].arming).next;
        Some(key)
    }
}

impl SlotNumber {
    fn new(level: usize, slot: usize) -> Self {
        let number = u16::try_from(level * SLOTS + slot + 1).ok().and_then(NonZeroU16::new);
        Self(number.expect("there are 512 slots"))
    }

    fn of(present: u64, tick: u64) -> Self {
        let highest = u64::BITS - 1 - ((present ^ tick) | 1).leading_zeros();
        let level = highest / LEVEL_BITS;
        let slot = ((tick >> (level * LEVEL_BITS)) & SLOT_MASK) as usize;
        Self::new(level as usize, slot)
    }

    fn split(self) -> (usize, usize) {
        let number = usize::from(self.0.get()) - 1;
        (number / SLOTS, number % SLOTS)
    }
}
