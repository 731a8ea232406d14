//! Who believes that it holds a lock, and who may.
//!
//! Asked whenever that can have changed for the worse: when a machine has taken an input, when the engine grants or
//! releases, and when a client hears of its grant.

use monolock_client::session::{Session, Standing};
use monolock_core::{ReleaseReason, Timestamp};

use crate::broken::Broken;
use crate::clock::{Clock, MS, True};
use crate::marks::mark;
use crate::network::ConnId;
use crate::oracle::Oracle;
use crate::story::span;
use crate::world::World;

impl World {
    /// What its program would be told if it asked now whether it holds the lock.
    pub(crate) fn believes(&self, id: ConnId) -> bool {
        let conn = &self.conns[id];
        let Some(session) = &conn.session else { return false };
        let now = self.hosts[conn.host].clock.at(self.t);
        let knows_better = self.broken != Some(Broken::BelievesUntilTold);
        matches!(session.standing(), Standing::Holding { .. })
            && session.gives_up_at().is_some_and(|ends| now < ends || !knows_better)
    }

    /// An input may have moved the give-up instant on; a belief that had ended must not begin again.
    pub(crate) fn belief_changed(&mut self, id: ConnId, now: Timestamp) {
        let believes = self.believes(id);
        let until = self.conns[id].session.as_ref().and_then(Session::gives_up_at).filter(|_| believes);
        let before = std::mem::replace(&mut self.conns[id].watch.believed_until, until);
        if believes && before.is_some_and(|before| before <= now) {
            self.breach(Oracle::GiveUp, "a client that had given up believes again".into());
        }
        if let (true, Some(until)) = (believes, until) {
            self.belief_meets_server(id, until);
        }
    }

    /// The engine has granted a lock: nobody else may believe in it.
    pub(crate) fn grant_meets_believers(&mut self, id: ConnId) {
        let lock = self.conns[id].watch.lock;
        for other in self.believers[lock].clone() {
            if other != id && !self.believes(other) {
                self.marks.hit(mark!("granted before the last holder noticed its loss"));
            } else if other != id {
                self.two_believe(other, id, "the server granted a lock in which another client believes");
            }
        }
    }

    /// A client has heard of its grant: nobody else may believe in that lock.
    pub(crate) fn grant_reaches_client(&mut self, id: ConnId) {
        let lock = self.conns[id].watch.lock;
        if !self.believes(id) {
            return;
        }
        for other in self.believers[lock].clone() {
            if other != id && self.believes(other) {
                self.two_believe(other, id, "two clients believe in one lock");
            }
        }
    }

    /// The old holder still believes while there is a new one. It may, where the documentation says so.
    fn two_believe(&mut self, one: ConnId, two: ConnId, what: &str) {
        let ordinal = |id: ConnId| self.conns[id].watch.grant.map_or(0, |grant| grant.ordinal);
        let (old, new) = if ordinal(one) <= ordinal(two) { (one, two) } else { (two, one) };
        let Some(old_grant) = self.conns[old].watch.grant else { return };
        let new_life = self.conns[new].watch.grant.map_or(old_grant.life, |grant| grant.life);
        let by_force = matches!(self.conns[old].watch.ended, Some((_, ReleaseReason::Force)));
        let names = format!("{} and {}", self.who(old), self.who(new));
        if old_grant.life != new_life {
            let grace = self.lives[new_life as usize - 1].grace;
            let lease_ns = self.conns[old].watch.lease.map_or(0, |lease| u64::from(lease.as_millis()) * MS);
            if grace >= lease_ns && grace > 0 {
                self.breach(Oracle::Exclusion, format!("{what} in spite of the grace: {names}"));
            }
            self.overlap_ends_in_time(old);
            self.marks.hit(mark!("overlap across a restart"));
        } else if by_force {
            self.overlap_ends_in_time(old);
            self.marks.hit(mark!("overlap after a forced release"));
        } else {
            self.breach(Oracle::Exclusion, format!("{what}: {names}"));
        }
    }

    /// The engine has ended a grant: its client must not believe in it any more, but for the two cases in which the
    /// server takes it away from a living client.
    pub(crate) fn release_meets_believer(&mut self, id: ConnId, reason: ReleaseReason) {
        if self.believes(id) && !matches!(reason, ReleaseReason::Force | ReleaseReason::Shutdown) {
            let who = self.who(id);
            self.breach(Oracle::GiveUp, format!("{who} still believed when the server let go ({reason})"));
        }
    }

    /// A client believes, and what it believes in is gone: that ends within the documented window.
    fn overlap_ends_in_time(&mut self, id: ConnId) {
        if let Some(until) = self.conns[id].session.as_ref().and_then(Session::gives_up_at) {
            self.belief_meets_server(id, until);
        }
    }

    /// A client believes until `until` by its clock: the server must count it, or have died or let go by force less than
    /// 0.8 leases ago.
    fn belief_meets_server(&mut self, id: ConnId, until: Timestamp) {
        let watch = &self.conns[id].watch;
        let Some(grant) = watch.grant else {
            self.breach(Oracle::GiveUp, "a client believes and was never granted the lock".into());
            return;
        };
        if watch.hold_ends.is_some_and(|ends| ends < until) {
            self.breach(Oracle::GiveUp, "a client believes beyond max_hold".into());
            return;
        }
        let died = self.lives[grant.life as usize - 1].ended;
        let let_go = watch.ended.map(|(at, _)| at);
        let (Some(since), Some(lease)) = (let_go.or(died), watch.lease) else { return };
        if let Some((_, reason)) = watch.ended
            && !matches!(reason, ReleaseReason::Force | ReleaseReason::Shutdown)
        {
            let who = self.who(id);
            self.breach(Oracle::GiveUp, format!("{who} believes and the server has let go ({reason})"));
            return;
        }
        let host = &self.hosts[self.conns[id].host];
        let ends: True = host.clock.when(until, self.t);
        let window = Clock::true_nanos(-50, u64::from(lease.as_millis()) * MS / 5 * 4);
        if ends > since.saturating_add(window) {
            let who = self.who(id);
            self.breach(
                Oracle::GiveUp,
                format!("{who} would believe for {} after the server let go", span(ends - since)),
            );
        }
    }
}
