//! Storage by small keys, in pages.
//!
//! Pages make growth cheap (nothing is ever moved) and shrinkage possible (an empty page is given back), so memory
//! follows what is stored and no insertion pays for all earlier ones. A key is reused after its value is gone: whoever
//! keeps keys for long keeps something beside them that tells one tenant from the next.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::ops::{Index, IndexMut};

const PAGE_BITS: u32 = 8;
const PAGE_SLOTS: usize = 1 << PAGE_BITS;

/// Where a value is stored. An `Option<Key>` takes four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(NonZeroU32);

impl Key {
    /// Dense: the smallest indices that are free are given out first.
    pub(crate) const fn index(self) -> usize {
        self.0.get() as usize - 1
    }

    const fn page(self) -> usize {
        self.index() >> PAGE_BITS
    }

    const fn slot(self) -> usize {
        self.index() & (PAGE_SLOTS - 1)
    }

    fn new(page: usize, slot: usize) -> Option<Self> {
        let number = u32::try_from((page << PAGE_BITS) + slot + 1).ok()?;
        NonZeroU32::new(number).map(Self)
    }
}

#[derive(Debug)]
pub(crate) struct Slab<T> {
    pages: Vec<Page<T>>,
    /// The pages with a free slot.
    open: BTreeSet<u32>,
    len: usize,
}

#[derive(Debug)]
struct Page<T> {
    /// Grows to `PAGE_SLOTS`; has no memory while it is empty, but for one empty page that may keep it.
    slots: Vec<Slot<T>>,
    vacant: Option<NonZeroU32>,
    occupied: usize,
}

#[derive(Debug)]
enum Slot<T> {
    Occupied(T),
    Vacant {
        /// The next vacant slot of the page, plus one.
        next: Option<NonZeroU32>,
    },
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { pages: Vec::new(), open: BTreeSet::new(), len: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        match self.pages.get(key.page())?.slots.get(key.slot())? {
            Slot::Occupied(value) => Some(value),
            Slot::Vacant { .. } => None,
        }
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        match self.pages.get_mut(key.page())?.slots.get_mut(key.slot())? {
            Slot::Occupied(value) => Some(value),
            Slot::Vacant { .. } => None,
        }
    }

    /// Whether [`insert`](Self::insert) would find no key: 2^32 − 256 values are stored.
    pub(crate) fn is_full(&self) -> bool {
        self.open.is_empty() && Key::new(self.pages.len(), PAGE_SLOTS - 1).is_none()
    }

    /// Stores `value` in the lowest page that has room.
    pub(crate) fn insert(&mut self, value: T) -> Key {
        let number = self.open_page();
        let page = &mut self.pages[number];
        let slot = if let Some(vacant) = page.vacant {
            let slot = vacant.get() as usize - 1;
            let Slot::Vacant { next } = page.slots[slot] else {
                unreachable!("the list of vacant slots holds vacant slots")
            };
            page.vacant = next;
            page.slots[slot] = Slot::Occupied(value);
            slot
        } else {
            if page.slots.capacity() == 0 {
                page.slots.reserve_exact(PAGE_SLOTS);
            }
            page.slots.push(Slot::Occupied(value));
            page.slots.len() - 1
        };
        page.occupied += 1;
        if page.occupied == PAGE_SLOTS {
            self.open.remove(&page_number(number));
        }
        self.len += 1;
        Key::new(number, slot).expect("the caller asked whether the slab is full")
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let page = self.pages.get_mut(key.page())?;
        let slot = page.slots.get_mut(key.slot())?;
        if matches!(slot, Slot::Vacant { .. }) {
            return None;
        }
        let Slot::Occupied(value) = core::mem::replace(slot, Slot::Vacant { next: page.vacant }) else {
            unreachable!("the slot was just seen to be occupied")
        };
        page.vacant = u32::try_from(key.slot() + 1).ok().and_then(NonZeroU32::new);
        page.occupied -= 1;
        let (was_full, is_empty) = (page.occupied == PAGE_SLOTS - 1, page.occupied == 0);
        if was_full {
            self.open.insert(page_number(key.page()));
        }
        if is_empty {
            self.give_back(key.page());
        }
        self.len -= 1;
        Some(value)
    }

    /// In the order of the keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.iter_from(0)
    }

    /// Those whose key's index is at least `index`, in the order of the keys.
    pub(crate) fn iter_from(&self, index: usize) -> impl Iterator<Item = (Key, &T)> {
        let (first_page, first_slot) = (index >> PAGE_BITS, index & (PAGE_SLOTS - 1));
        self.pages.iter().enumerate().skip(first_page).flat_map(move |(number, page)| {
            let skipped = if number == first_page { first_slot } else { 0 };
            page.slots.iter().enumerate().skip(skipped).filter_map(move |(slot, content)| match content {
                Slot::Occupied(value) => Key::new(number, slot).map(|key| (key, value)),
                Slot::Vacant { .. } => None,
            })
        })
    }

    fn open_page(&mut self) -> usize {
        if let Some(&number) = self.open.first() {
            return number as usize;
        }
        let number = self.pages.len();
        self.pages.push(Page { slots: Vec::new(), vacant: None, occupied: 0 });
        self.open.insert(page_number(number));
        number
    }

    /// Frees an empty page, unless it is the only one with room: then the next insertion wants it.
    fn give_back(&mut self, number: usize) {
        if self.open.len() == 1 {
            return;
        }
        self.pages[number] = Page { slots: Vec::new(), vacant: None, occupied: 0 };
        while self.pages.last().is_some_and(|page| page.slots.capacity() == 0) {
            self.pages.pop();
            self.open.remove(&page_number(self.pages.len()));
        }
        if self.pages.len() < self.pages.capacity() / 4 {
            self.pages.shrink_to(self.pages.len() * 2);
        }
    }
}

impl<T> Index<Key> for Slab<T> {
    type Output = T;

    fn index(&self, key: Key) -> &T {
        self.get(key).expect("a link leads to a stored value")
    }
}

impl<T> IndexMut<Key> for Slab<T> {
    fn index_mut(&mut self, key: Key) -> &mut T {
        self.get_mut(key).expect("a link leads to a stored value")
    }
}

fn page_number(page: usize) -> u32 {
    u32::try_from(page).expect("a page holds 256 of less than 2^32 keys")
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::{PAGE_SLOTS, Slab};

    proptest! {
        #[test]
        fn agrees_with_a_map(story in proptest::collection::vec((0..3_u8, any::<prop::sample::Index>()), 0..2000)) {
            let mut slab = Slab::new();
            let mut map = BTreeMap::new();
            for (step, (what, which)) in story.into_iter().enumerate() {
                if what > 0 || map.is_empty() {
                    prop_assert!(map.insert(slab.insert(step), step).is_none());
                } else {
                    let key = *which.get(&map.keys().copied().collect::<Vec<_>>());
                    prop_assert_eq!(slab.remove(key), map.remove(&key));
                    prop_assert_eq!(slab.remove(key), None);
                }
                prop_assert_eq!(slab.len(), map.len());
            }
            prop_assert!(slab.iter().map(|(key, &value)| (key, value)).eq(map.iter().map(|(&key, &value)| (key, value))));
        }
    }

    #[test]
    fn gives_pages_back() {
        let mut slab = Slab::new();
        let keys: Vec<_> = (0..100 * PAGE_SLOTS).map(|value| slab.insert(value)).collect();
        for key in keys {
            slab.remove(key);
        }
        let kept: usize = slab.pages.iter().map(|page| page.slots.capacity()).sum();
        assert!(kept <= PAGE_SLOTS, "an empty slab keeps {kept} slots");
        assert!(slab.pages.capacity() < 100);
    }
}
