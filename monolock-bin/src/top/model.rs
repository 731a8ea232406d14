//! What `top` knows of the locks: a listing, and the events since.
//!
//! Events that come while a listing is under way are put aside and applied after it, each with no effect if the listing
//! shows it already (docs/admin-api.md, "Know all locks at any time"). So the picture is whole whenever it is said to
//! be.

use std::collections::{BTreeMap, VecDeque};
use std::time::SystemTime;

use crate::api;
use crate::follow::Event;

/// So many events are put aside during a listing. With more it begins anew.
const PUT_ASIDE: usize = 1 << 16;

/// A session's claim to a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) session: u64,
    pub(crate) identity: String,
    pub(crate) remote_addr: String,
    /// Since when it has held or waited.
    pub(crate) since: SystemTime,
}

/// A lock that somebody claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lock {
    /// With its token.
    pub(crate) holder: Option<(Claim, u64)>,
    pub(crate) waiters: VecDeque<Claim>,
}

/// All locks that somebody claims.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    locks: BTreeMap<String, Lock>,
    /// The listing that is under way, and what has happened since it began.
    listing: Option<(BTreeMap<String, Lock>, Vec<Event>)>,
}

/// What comes after an event or the end of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Nothing,
    /// Too much has happened meanwhile.
    ListAnew,
}

impl Locks {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &Lock)> {
        self.locks.iter()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Lock> {
        self.locks.get(name)
    }

    pub(crate) fn len(&self) -> usize {
        self.locks.len()
    }

    /// Whether all locks are known.
    pub(crate) const fn is_complete(&self) -> bool {
        self.listing.is_none()
    }

    /// A listing begins. What is known stays until it is over.
    pub(crate) fn begin_listing(&mut self) {
        self.listing = Some(Default::default());
    }

    /// A page of the listing.
    pub(crate) fn page(&mut self, page: Vec<api::Lock>) {
        if let Some((locks, _)) = &mut self.listing {
            locks.extend(page.into_iter().map(|lock| (lock.name.clone(), Lock::from(lock))));
        }
    }

    /// The listing has come to its end.
    pub(crate) fn listed(&mut self) {
        if let Some((locks, events)) = self.listing.take() {
            self.locks = locks;
            for event in events {
                self.apply(event);
            }
        }
    }

    /// Something has happened.
    pub(crate) fn happened(&mut self, event: Event) -> Next {
        match &mut self.listing {
            None => self.apply(event),
            Some((_, events)) if events.len() >= PUT_ASIDE => return Next::ListAnew,
            Some((_, events)) => events.push(event),
        }
        Next::Nothing
    }

    fn apply(&mut self, event: Event) {
        let Event { time, kind, lock: name, identity, remote_addr, session, token, .. } = event;
        let (Some(session), Some(since)) = (session, time) else { return };
        let lock = self.locks.entry(name.clone()).or_default();
        let claim = Claim { session, identity, remote_addr, since };
        let is_holder = lock.holder.as_ref().is_some_and(|(holder, _)| holder.session == session);
        let is_there = is_holder || lock.waiters.iter().any(|waiter| waiter.session == session);
        match (kind.as_str(), token) {
            ("queued", _) if !is_there => lock.waiters.push_back(claim),
            ("granted", Some(token)) => {
                lock.leave(session);
                if lock.holder.as_ref().is_none_or(|(_, held)| *held < token) {
                    lock.holder = Some((claim, token));
                }
            }
            ("released", Some(token)) => {
                lock.leave(session);
                lock.holder.take_if(|(_, held)| *held == token);
            }
            ("waiter_gone", _) => lock.leave(session),
            _ => {}
        }
        if lock.holder.is_none() && lock.waiters.is_empty() {
            self.locks.remove(&name);
        }
    }
}

impl Lock {
    fn leave(&mut self, session: u64) {
        // Most leave from the front.
        if let Some(place) = self.waiters.iter().position(|waiter| waiter.session == session) {
            self.waiters.remove(place);
        }
    }

    /// The first in the queue has waited longest.
    pub(crate) fn waiting_since(&self) -> Option<SystemTime> {
        self.waiters.front().map(|waiter| waiter.since)
    }

    pub(crate) fn held_since(&self) -> Option<SystemTime> {
        self.holder.as_ref().map(|(holder, _)| holder.since)
    }
}

impl Claim {
    fn new(client: api::Client, since: SystemTime) -> Self {
        let api::Client { identity, remote_addr, session, .. } = client;
        Self { session, identity, remote_addr, since }
    }
}

impl From<api::Lock> for Lock {
    fn from(lock: api::Lock) -> Self {
        let api::Lock { name: _, holder, waiters } = lock;
        Self {
            holder: holder.map(|holder| (Claim::new(holder.client, holder.since), holder.token)),
            waiters: waiters.into_iter().map(|waiter| Claim::new(waiter.client, waiter.queued_at)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::{Locks, Next, PUT_ASIDE};
    use crate::follow::Event;

    fn event(kind: &str, session: u64, token: Option<u64>) -> Event {
        Event {
            time: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(session)),
            kind: kind.to_owned(),
            lock: "jobs".to_owned(),
            session: Some(session),
            token,
            ..Event::default()
        }
    }

    /// `holder:token | waiters`, or nothing.
    fn picture(locks: &Locks) -> String {
        let Some(lock) = locks.get("jobs") else { return String::new() };
        let holder =
            lock.holder.as_ref().map_or_else(|| "-".to_owned(), |(claim, token)| format!("{}:{token}", claim.session));
        let waiters: Vec<String> = lock.waiters.iter().map(|waiter| waiter.session.to_string()).collect();
        format!("{holder} | {}", waiters.join(" "))
    }

    /// A lock's life, as the engine tells it.
    fn life() -> Vec<Event> {
        vec![
            event("granted", 1, Some(10)),
            event("queued", 2, None),
            event("queued", 3, None),
            event("queued", 4, None),
            event("waiter_gone", 3, None),
            event("released", 1, Some(10)),
            event("granted", 2, Some(11)),
            event("queued", 5, None),
            event("released", 2, Some(11)),
            event("granted", 4, Some(12)),
            event("released", 4, Some(12)),
            event("granted", 5, Some(13)),
            event("released", 5, Some(13)),
        ]
    }

    #[test]
    fn events_make_the_picture() {
        let mut locks = Locks::default();
        let pictures = life().into_iter().map(|event| {
            assert_eq!(locks.happened(event), Next::Nothing);
            picture(&locks)
        });
        let pictures: Vec<String> = pictures.collect();
        let expected = [
            "1:10 | ",
            "1:10 | 2",
            "1:10 | 2 3",
            "1:10 | 2 3 4",
            "1:10 | 2 4",
            "- | 2 4",
            "2:11 | 4",
            "2:11 | 4 5",
            "- | 4 5",
            "4:12 | 5",
            "- | 5",
            "5:13 | ",
            "",
        ];
        assert_eq!(pictures, expected);
        assert_eq!(locks.len(), 0);
    }

    /// The lock as a listing shows it after so many events.
    fn snapshot(events: usize) -> Vec<crate::api::Lock> {
        let mut locks = Locks::default();
        for event in life().into_iter().take(events) {
            locks.happened(event);
        }
        let client = |claim: &super::Claim| crate::api::Client {
            identity: String::new(),
            remote_addr: String::new(),
            session: claim.session,
            lease_ms: 1,
            lease_remaining_ms: 1,
        };
        let lock = |lock: &super::Lock| crate::api::Lock {
            name: "jobs".to_owned(),
            holder: lock.holder.as_ref().map(|(claim, token)| crate::api::Holder {
                client: client(claim),
                since: claim.since,
                token: *token,
            }),
            waiters: lock
                .waiters
                .iter()
                .map(|claim| crate::api::Waiter { client: client(claim), queued_at: claim.since })
                .collect(),
        };
        locks.get("jobs").map(lock).into_iter().collect()
    }

    #[test]
    fn wherever_the_listing_falls_among_the_events_the_picture_is_right_in_the_end() {
        let life = life();
        for begun in 0..=life.len() {
            for shown in begun..=life.len() {
                for end in shown..=life.len() {
                    let mut locks = Locks::default();
                    locks.begin_listing();
                    let (before, after) = life[begun..].split_at(shown - begun);
                    // A page may be under way while later events come.
                    for event in before {
                        locks.happened(event.clone());
                    }
                    for event in &after[..end - shown] {
                        locks.happened(event.clone());
                    }
                    locks.page(snapshot(shown));
                    locks.listed();
                    for event in &after[end - shown..] {
                        locks.happened(event.clone());
                    }
                    assert_eq!(picture(&locks), "", "from {begun}, shown {shown}, to {end}");
                    let mut locks = Locks::default();
                    locks.begin_listing();
                    for event in &life[begun..end] {
                        locks.happened(event.clone());
                    }
                    locks.page(snapshot(shown));
                    locks.listed();
                    let mut whole = Locks::default();
                    for event in &life[..end] {
                        whole.happened(event.clone());
                    }
                    assert_eq!(picture(&locks), picture(&whole), "from {begun}, shown {shown}, to {end}");
                }
            }
        }
    }

    #[test]
    fn old_news_moves_nobody() {
        let mut locks = Locks::default();
        locks.begin_listing();
        locks.page(snapshot(8));
        locks.listed();
        for old in [event("granted", 1, Some(10)), event("released", 1, Some(10)), event("queued", 2, None)] {
            locks.happened(old);
            assert_eq!(picture(&locks), "2:11 | 4 5");
        }
    }

    #[test]
    fn a_listing_that_is_overtaken_begins_anew() {
        let mut locks = Locks::default();
        locks.begin_listing();
        for session in 0..PUT_ASIDE as u64 {
            assert_eq!(locks.happened(event("queued", session, None)), Next::Nothing);
        }
        assert_eq!(locks.happened(event("queued", 1, None)), Next::ListAnew);
        locks.begin_listing();
        locks.listed();
        assert!(locks.is_complete());
        assert_eq!(locks.len(), 0);
    }
}
