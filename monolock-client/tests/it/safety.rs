//! B01, B02 and B02b for all delays: the client gives up before the server does.
//!
//! The server's half is modelled by its one rule (`docs/protocol.md`, "Session"): it expires a session one lease after
//! the arrival of its last frame. Frames of one direction arrive in order, each after any delay; at some instant each
//! direction goes dark for good.

use std::collections::VecDeque;
use std::time::Duration;

use monolock_client::Timestamp;
use monolock_client::session::{Event, Session, Standing};
use proptest::prelude::*;

use crate::script::{frame, session};

/// A network and a server, seen from one client.
struct World {
    lease: Duration,
    /// Delays in either direction, in thousandths of the lease, used in turn.
    delays: VecDeque<u64>,
    /// When the way to the server goes dark, and the way back.
    dark_up: Timestamp,
    dark_down: Timestamp,
    /// When the lock becomes this client's; before that it waits.
    promoted_at: Timestamp,
    pushed: bool,
    to_server: VecDeque<Timestamp>,
    to_client: VecDeque<(Timestamp, Vec<u8>)>,
    last_to_server: Timestamp,
    last_to_client: Timestamp,
    last_seen: Option<Timestamp>,
}

impl World {
    fn delay(&mut self) -> Duration {
        let thousandths = self.delays.pop_front().unwrap_or(1);
        self.delays.push_back(thousandths);
        self.lease / 1000 * u32::try_from(thousandths).unwrap()
    }

    fn client_sends(&mut self, now: Timestamp) {
        let arrival = now.saturating_add(self.delay()).max(self.last_to_server);
        self.last_to_server = arrival;
        if arrival < self.dark_up {
            self.to_server.push_back(arrival);
        }
    }

    fn server_sends(&mut self, now: Timestamp, bytes: Vec<u8>) {
        let arrival = now.saturating_add(self.delay()).max(self.last_to_client);
        self.last_to_client = arrival;
        if arrival < self.dark_down {
            self.to_client.push_back((arrival, bytes));
        }
    }

    fn expires_at(&self) -> Timestamp {
        self.last_seen.map_or(Timestamp::MAX, |seen| seen.saturating_add(self.lease))
    }

    /// When something happens here next.
    fn next(&self) -> Timestamp {
        let push = if self.pushed || self.last_seen.is_none() { Timestamp::MAX } else { self.promoted_at };
        let server = self.to_server.front().copied().unwrap_or(Timestamp::MAX);
        let client = self.to_client.front().map_or(Timestamp::MAX, |(arrival, _)| *arrival);
        push.min(server).min(client)
    }

    /// The server takes in what has arrived by `now`. Says no when it has expired the session.
    fn serve(&mut self, now: Timestamp) -> bool {
        if now >= self.expires_at() {
            return false;
        }
        if self.last_seen.is_some() && !self.pushed && now >= self.promoted_at {
            self.pushed = true;
            self.server_sends(now, frame("acquired=9"));
        }
        while self.to_server.front().is_some_and(|arrival| *arrival <= now) {
            self.to_server.pop_front();
            let first = self.last_seen.replace(now).is_none();
            if first && now >= self.promoted_at {
                self.pushed = true;
            }
            let reply = if self.pushed { "acquired=9" } else { "waiting" };
            self.server_sends(now, frame(reply));
        }
        true
    }

    fn arrived(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        if self.to_client.front()?.0 > now {
            return None;
        }
        self.to_client.pop_front().map(|(_, bytes)| bytes)
    }
}

/// Plays until the client gives up and says when the server would have: `(client, server)`.
fn play(mut world: World, mut client: Session) -> Option<(Timestamp, Timestamp)> {
    let mut events: Vec<Event> = Vec::new();
    let mut now = Timestamp::ORIGIN;
    loop {
        let mut sent = Vec::new();
        client.transmit(now, &mut sent);
        if !sent.is_empty() {
            world.client_sends(now);
        }
        let deadline = client.next_deadline()?;
        let next = deadline.min(world.next()).max(now);
        assert!(next < Timestamp::MAX);
        let believes = matches!(client.standing(), Standing::Holding { .. } | Standing::Queued);
        if believes && world.expires_at() <= next {
            return Some((next.max(world.expires_at()), world.expires_at()));
        }
        now = next;
        if !world.serve(now) {
            return None;
        }
        client.tick(now, &mut events);
        while let Some(bytes) = world.arrived(now) {
            client.receive(now, &bytes, &mut events);
        }
        if client.standing() == Standing::Over {
            return Some((now, world.expires_at()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn b02_the_client_has_lost_before_the_server_expires(
        lease_ms in 20_u64..100_000,
        delays in proptest::collection::vec(prop_oneof![0_u64..50, 0_u64..400, 0_u64..1000], 1..12),
        dark_up in 0_u64..12_000,
        dark_down in 0_u64..12_000,
        promoted_after in prop_oneof![Just(0), 0_u64..8_000],
    ) {
        let lease = Duration::from_millis(lease_ms);
        let thousandths = |count: u64| {
            Timestamp::ORIGIN.saturating_add(lease / 1000 * u32::try_from(count).unwrap())
        };
        let world = World {
            lease,
            delays: delays.into(),
            dark_up: thousandths(dark_up),
            dark_down: thousandths(dark_down),
            promoted_at: thousandths(promoted_after),
            pushed: false,
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            last_to_server: Timestamp::ORIGIN,
            last_to_client: Timestamp::ORIGIN,
            last_seen: None,
        };
        if let Some((client, server)) = play(world, session(lease)) {
            prop_assert!(client < server, "the client believed until {client:?}, the server let go at {server:?}");
        }
    }
}
