//! What goes wrong, and how it ends.

use std::io::ErrorKind;

use crate::clock::{MS, SECOND};
use crate::lives::STOP_TIME;
use crate::marks::mark;
use crate::network::{CLIENT, ConnId, SERVER, Side, Stage};
use crate::oracle::Oracle;
use crate::plan::Fault;
use crate::story::{Who, span};
use crate::world::{Event, World};

/// What every bound allows for connecting, retransmitting and backing off.
const SLACK: u64 = 60 * SECOND;

const SWEEP_EVERY: u64 = 5 * SECOND;

impl World {
    pub(crate) fn strikes(&mut self, fault: usize) {
        let kind = self.fault(fault);
        if !matches!(kind, Fault::ForceRelease | Fault::Kick) {
            self.tell(Who::World, 60, || format!("fault: {kind:?}"));
        }
        match kind {
            Fault::Partition { host, up, down, .. } => {
                self.partition(host, up, down, 1);
                self.marks.hit(if up && down { mark!("partition both ways") } else { mark!("partition one way") });
            }
            Fault::Surge { host, extra, .. } => self.hosts[host].link.extra += extra,
            Fault::PauseClient { host, .. } => self.pauses(host, |host| host.paused += 1),
            Fault::SleepClient { host, .. } => {
                self.pauses(host, |host| host.asleep = true);
                self.marks.hit(mark!("client machine asleep"));
            }
            Fault::KillClient { host, .. } => self.client_dies(host, true),
            Fault::UnplugClient { host, .. } => {
                self.client_dies(host, false);
                self.hosts[host].powered = false;
            }
            Fault::PauseServer { .. } => self.server.paused += 1,
            Fault::SleepServer { .. } => self.server_sleeps(),
            Fault::FullDisk { .. } => self.server.disk_is_full += 1,
            Fault::KillServer { lasts, step } => self.server_ends(lasts, step, true),
            Fault::UnplugServer { lasts, step } => self.server_ends(lasts, step, false),
            Fault::StopServer { lasts, step } => self.server_stops(lasts, step),
            Fault::StepWall { step } => {
                self.server.wall.off += step;
                let back = step < 0;
                self.marks.hit(if back {
                    mark!("wall clock stepped back")
                } else {
                    mark!("wall clock stepped forward")
                });
            }
            Fault::Slew { host, drift } => self.slews(host, drift),
            Fault::Forget | Fault::HalfReset => self.on_some_connection(CLIENT, kind),
            Fault::SocketError => self.on_some_connection(SERVER, kind),
            Fault::ForceRelease => self.operate(true),
            Fault::Kick => self.operate(false),
        }
        if let Some(lasts) = kind.lasts() {
            self.schedule(self.t + lasts, Event::Mends { fault });
        }
    }

    pub(crate) fn mends(&mut self, fault: usize) {
        if self.healed {
            return;
        }
        let kind = self.fault(fault);
        self.tell(Who::World, 61, || format!("over: {kind:?}"));
        match kind {
            Fault::Partition { host, up, down, .. } => self.partition(host, up, down, -1),
            Fault::Surge { host, extra, .. } => self.hosts[host].link.extra -= extra,
            Fault::PauseClient { host, .. } => {
                self.hosts[host].paused = self.hosts[host].paused.saturating_sub(1);
                self.goes_on(host);
            }
            Fault::SleepClient { host, .. } => {
                self.hosts[host].asleep = false;
                self.goes_on(host);
            }
            Fault::KillClient { host, .. } | Fault::UnplugClient { host, .. } => self.client_starts(host),
            Fault::PauseServer { .. } => {
                self.server.paused = self.server.paused.saturating_sub(1);
                self.server_goes_on();
            }
            Fault::SleepServer { .. } => {
                self.server_wakes();
                self.server_goes_on();
            }
            Fault::FullDisk { .. } => self.server.disk_is_full -= 1,
            Fault::KillServer { .. }
            | Fault::UnplugServer { .. }
            | Fault::StopServer { .. }
            | Fault::StepWall { .. }
            | Fault::Slew { .. }
            | Fault::Forget
            | Fault::HalfReset
            | Fault::SocketError
            | Fault::ForceRelease
            | Fault::Kick => {}
        }
    }

    fn partition(&mut self, host: Option<usize>, up: bool, down: bool, by: i32) {
        for (number, each) in self.hosts.iter_mut().enumerate() {
            if host.is_none_or(|host| host == number) {
                for (side, is_cut) in [(CLIENT, up), (SERVER, down)] {
                    if is_cut {
                        each.link.cut[side] = each.link.cut[side].saturating_add_signed(by);
                    }
                }
            }
        }
    }

    fn pauses(&mut self, host: usize, stop: impl FnOnce(&mut crate::client::Host)) {
        if !self.hosts[host].alive {
            return;
        }
        stop(&mut self.hosts[host]);
        if self.believers.iter().flatten().any(|&id| self.conns[id].host == host) {
            self.marks.hit(mark!("holder paused"));
        }
    }

    fn goes_on(&mut self, host: usize) {
        if !self.hosts[host].is_stopped() {
            let deferred = std::mem::take(&mut self.hosts[host].deferred);
            self.resume(deferred);
        }
    }

    fn server_wakes(&mut self) {
        if std::mem::replace(&mut self.server.asleep, false) {
            let since = self.server.asleep_since;
            self.server.clock.stood_still(since, self.t);
        }
    }

    fn server_goes_on(&mut self) {
        if !self.server.is_stopped() {
            let deferred = std::mem::take(&mut self.server.deferred);
            if !deferred.is_empty() {
                self.marks.hit(mark!("server went on after a pause"));
            }
            self.resume(deferred);
        }
    }

    fn slews(&mut self, host: Option<usize>, drift: i64) {
        match host {
            Some(host) => {
                self.hosts[host].clock.slew(self.t, drift);
                self.hosts[host].drift = drift;
            }
            None if !self.server.asleep => {
                self.server.clock.slew(self.t, drift);
                self.server.drift = drift;
            }
            None => {}
        }
        self.marks.hit(mark!("clock slewed"));
    }

    fn server_sleeps(&mut self) {
        if !self.server.asleep {
            self.server.asleep = true;
            self.server.asleep_since = self.t;
            self.marks.hit(mark!("server machine asleep"));
        }
    }

    fn server_stops(&mut self, lasts: u64, step: i64) {
        if !self.server.is_stopped() && self.server.running.is_some() {
            self.stop();
            self.server.wall.off += step;
            self.schedule(self.t + STOP_TIME + lasts, Event::Boot);
        }
    }

    fn server_ends(&mut self, lasts: u64, step: i64, has_power: bool) {
        if self.server.running.is_none() {
            return;
        }
        self.server_wakes();
        self.die(has_power);
        self.server.powered = has_power;
        self.server.wall.off += step;
        match step {
            ..0 => self.marks.hit(mark!("wall clock stepped back over a restart")),
            0 => {}
            1.. => self.marks.hit(mark!("wall clock stepped forward over a restart")),
        }
        self.schedule(self.t + lasts, Event::Boot);
    }

    /// Something happens to one connection that is open at an end.
    fn on_some_connection(&mut self, side: Side, kind: Fault) {
        let open: Vec<ConnId> = (0..self.conns.len())
            .filter(|&id| {
                let end = &self.conns[id].ends[side];
                let is_served = side == CLIENT || matches!(self.conns[id].stage, Stage::Attending(_));
                end.open && end.established && end.failed.is_none() && is_served
            })
            .collect();
        if open.is_empty() {
            return;
        }
        let id = open[self.rng.index(open.len())];
        let who = self.who(id);
        self.tell(Who::World, 62, || format!("it strikes the connection of {who}"));
        self.conns[id].dark = true;
        if kind == Fault::Forget {
            self.marks.hit(mark!("connection forgotten on the way"));
        } else if kind == Fault::HalfReset {
            self.fail(id, CLIENT, ErrorKind::ConnectionReset);
            self.marks.hit(mark!("reset that only the client heard"));
        } else {
            let error = self.rng.pick(&[ErrorKind::TimedOut, ErrorKind::HostUnreachable, ErrorKind::NetworkDown]);
            self.fail(id, SERVER, error);
        }
    }

    /// The faults end. What is begun is brought to its end, and nothing is begun any more.
    pub(crate) fn heals(&mut self) {
        self.tell(Who::World, 63, || "all faults are over; who waits now is to be served".into());
        self.healed = true;
        self.loss = 0;
        for host in 0..self.hosts.len() {
            let link = &mut self.hosts[host].link;
            link.extra = 0;
            link.cut = [0, 0];
            link.delay = link.delay.map(|delay| delay.min(20 * MS));
            link.jitter = link.jitter.min(20 * MS);
            self.hosts[host].paused = 0;
            self.hosts[host].asleep = false;
            self.client_starts(host);
            self.goes_on(host);
        }
        self.server_wakes();
        self.server.paused = 0;
        self.server.disk_is_full = 0;
        self.server_goes_on();
        if self.server.running.is_none() {
            self.schedule(self.t + SECOND, Event::Boot);
        }
        // Stalled connections are tried again soon.
        for id in 0..self.conns.len() {
            for from in [CLIENT, SERVER] {
                let after = self.rng.below(SECOND);
                if self.conns[id].paths[from].is_stalled() {
                    self.schedule(self.t + after, Event::Retry { id, from });
                }
            }
        }
        for slot in &mut self.slots {
            if slot.is_thinking() {
                slot.finish();
            }
        }
        self.set_bounds();
    }

    /// A waiter is served once all who are before it have held, or have been silent, for their time: each claim may hold
    /// for as long as its program wants, and its lease may run out twice, once for the session that the faults killed and
    /// once for the one after it.
    fn set_bounds(&mut self) {
        let grace = self.plan.server.grace;
        let mut all = 0;
        for lock in 0..self.plan.locks {
            let claims = self.slots.iter().filter(|slot| slot.plan.lock == lock);
            let bound: u64 = claims
                .map(|slot| {
                    let lease_ms = slot.plan.lease_ms.min(crate::plan::LONG_LEASE_MS);
                    slot.plan.hold.1 + 2 * u64::from(lease_ms) * MS
                })
                .sum();
            let bound = SLACK + 2 * grace + bound + bound / 10;
            all = all.max(bound);
            self.schedule(self.t + bound, Event::Bound { lock });
        }
        self.tell(Who::World, 64, || format!("everything is to be quiet within {}", span(all + SLACK)));
        self.schedule(self.t + all + SLACK, Event::BoundOfAll);
        self.schedule(self.t + SWEEP_EVERY, Event::Sweep);
    }

    /// Somebody looks at what would last for hours.
    pub(crate) fn sweeps(&mut self) {
        self.restart_stuck_clients();
        self.end_abandoned_claims();
        self.schedule(self.t + SWEEP_EVERY, Event::Sweep);
    }

    pub(crate) fn bound(&mut self, lock: usize) {
        if let Some(slot) =
            (0..self.slots.len()).find(|&slot| self.slots[slot].plan.lock == lock && !self.slots[slot].is_done())
        {
            let who = Who::Slot(self.slots[slot].host, slot);
            self.breach(Oracle::Liveness, format!("{who} is still not served"));
        }
    }

    pub(crate) fn bound_of_all(&mut self) {
        let sessions = self.ledger.session_count();
        let open = self.server.conns.iter().filter(|&&id| self.conns[id].ends[SERVER].open).count();
        self.breach(Oracle::Idle, format!("{sessions} sessions and {open} connections are left"));
    }
}
