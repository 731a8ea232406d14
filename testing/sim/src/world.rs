//! The world: true time, what is to happen next, and everybody in it.
//!
//! One queue of events in the order of true time, then of their making; nothing else moves anything. So a seed has one
//! history.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use monolock_core::{LockName, Timestamp};

use crate::Report;
use crate::broken::Broken;
use crate::client::{Host, Slot, What};
use crate::clock::{Clock, MS, SECOND, True};
use crate::ledger::Ledger;
use crate::marks::Marks;
use crate::network::{CLIENT, Conn, ConnId, SERVER, Side};
use crate::oracle::{Breach, Oracle, Violation};
use crate::plan::{Fault, Plan};
use crate::resource::{Resource, Write};
use crate::rng::Rng;
use crate::server::{Life, Server};
use crate::story::{Story, Who};

/// More events at one instant than any honest world has.
const MOST_AT_ONCE: u32 = 50_000;

/// More events than any honest world has.
const MOST_EVENTS: u64 = 5_000_000;

/// What may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    Arrive {
        id: ConnId,
        from: Side,
    },
    Retry {
        id: ConnId,
        from: Side,
    },
    Readable {
        id: ConnId,
        side: Side,
    },
    /// A session of a client is due.
    Due {
        id: ConnId,
        at: Timestamp,
    },
    Act {
        slot: usize,
        epoch: u32,
        what: What,
    },
    WaitLimit {
        slot: usize,
        quest: u32,
    },
    /// The server's one timer.
    Expiry {
        life: u32,
        armed: Timestamp,
    },
    FirstFrame {
        id: ConnId,
    },
    DrainOver {
        id: ConnId,
    },
    TokenCare {
        life: u32,
    },
    Boot,
    Exit {
        life: u32,
    },
    WriteLands {
        write: usize,
    },
    Strikes {
        fault: usize,
    },
    Mends {
        fault: usize,
    },
    Heals,
    Sweep,
    Bound {
        lock: usize,
    },
    BoundOfAll,
}

pub(crate) struct World {
    pub(crate) t: True,
    queue: BinaryHeap<Reverse<(True, u64, Event)>>,
    made: u64,
    steps: u64,
    at_once: u32,
    pub(crate) rng: Rng,
    pub(crate) plan: Plan,
    pub(crate) story: Story,
    pub(crate) marks: Marks,
    pub(crate) violation: Option<Violation>,
    pub(crate) broken: Option<Broken>,
    pub(crate) names: Vec<LockName>,
    pub(crate) server: Server,
    pub(crate) ledger: Ledger,
    pub(crate) hosts: Vec<Host>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) conns: Vec<Conn>,
    /// Whose program has been granted a lock and has neither released nor lost it, by lock.
    pub(crate) believers: Vec<Vec<ConnId>>,
    pub(crate) resources: Vec<Resource>,
    pub(crate) writes: Vec<Write>,
    pub(crate) loss: u64,
    pub(crate) healed: bool,
    /// The server's lives, ended and present.
    pub(crate) lives: Vec<Life>,
    pub(crate) grants: u64,
    pub(crate) era: u32,
    over: bool,
}

impl World {
    pub(crate) fn new(seed: u64, is_told: bool, broken: Option<Broken>) -> Self {
        let mut rng = Rng::new(seed);
        let plan = Plan::draw(seed, &mut rng);
        if broken == Some(Broken::Entropy) {
            Broken::stir(&mut rng);
        }
        let hosts = plan.hosts.iter().map(Host::new).collect();
        let slots = plan.slots.iter().map(Slot::new).collect();
        let server = Server::new(&plan.server);
        let mut world = Self {
            t: 0,
            queue: BinaryHeap::new(),
            made: 0,
            steps: 0,
            at_once: 0,
            rng,
            story: Story::new(is_told),
            marks: Marks::default(),
            violation: None,
            broken,
            names: (0..plan.locks).map(name).collect(),
            server,
            ledger: Ledger::default(),
            hosts,
            slots,
            conns: Vec::new(),
            believers: vec![Vec::new(); plan.locks],
            resources: (0..plan.locks).map(|_| Resource::default()).collect(),
            writes: Vec::new(),
            loss: plan.loss,
            healed: false,
            lives: Vec::new(),
            grants: 0,
            era: 0,
            over: false,
            plan,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        let profile = self.plan.profile;
        let (hosts, slots, locks) = (self.hosts.len(), self.slots.len(), self.plan.locks);
        self.tell(Who::World, 1, || {
            format!(
                "a world of the kind “{}”: {hosts} client machines, {slots} claims over and over, {locks} locks",
                profile.as_str()
            )
        });
        if self.broken == Some(Broken::SlowClients) {
            for host in &mut self.hosts {
                host.clock = Clock::new(host.clock.at(0).as_nanos(), -350);
            }
        }
        if self.broken == Some(Broken::ExpiresEarly) {
            self.server.clock = Clock::new(self.server.clock.at(0).as_nanos(), 400);
        }
        self.boot();
        for slot in 0..self.slots.len() {
            let after = self.rng.below(SECOND);
            self.act(slot, after, What::Begin);
        }
        for fault in 0..self.plan.faults.len() {
            self.schedule(self.plan.faults[fault].0, Event::Strikes { fault });
        }
        self.schedule(self.plan.heals_at, Event::Heals);
    }

    /// Lives through the world.
    pub(crate) fn run(mut self, seed: u64) -> Report {
        while self.violation.is_none() && !self.over {
            let Some(Reverse((at, _, event))) = self.queue.pop() else {
                self.breach(Oracle::Liveness, "nothing happens any more, and not all is done".into());
                break;
            };
            self.at_once = if at == self.t { self.at_once + 1 } else { 0 };
            self.t = at;
            self.steps += 1;
            if self.at_once > MOST_AT_ONCE || self.steps > MOST_EVENTS {
                self.breach(Oracle::Progress, format!("event after event and no end: {event:?}"));
                break;
            }
            self.take(event);
            if self.healed && self.is_quiet() {
                self.over = true;
            }
        }
        let Self { t, steps, story, marks, violation, plan, .. } = self;
        let hash = story.hash();
        Report {
            seed,
            profile: plan.profile,
            steps,
            virtual_nanos: t,
            hash,
            marks,
            violation,
            story: story.into_lines(),
        }
    }

    fn take(&mut self, event: Event) {
        if self.is_for_a_stopped_process(event) {
            return;
        }
        match event {
            Event::Arrive { id, from } => self.arrive(id, from),
            Event::Retry { id, from } => self.retry(id, from),
            Event::Readable { id, side } => {
                self.conns[id].ends[side].is_called = false;
                if side == SERVER { self.server_reads(id) } else { self.client_turn(id) }
            }
            Event::Due { id, at } => self.session_due(id, at),
            Event::Act { slot, epoch, what } => self.acts(slot, epoch, what),
            Event::WaitLimit { slot, quest } => self.wait_is_over(slot, quest),
            Event::Expiry { life, armed } => self.expiry(life, armed),
            Event::FirstFrame { id } => self.first_frame_overdue(id),
            Event::DrainOver { id } => self.drain_is_over(id),
            Event::TokenCare { life } => self.token_care(life),
            Event::Boot => self.boot(),
            Event::Exit { life } => self.exit(life),
            Event::WriteLands { write } => self.write_lands(write),
            Event::Strikes { fault } => self.strikes(fault),
            Event::Mends { fault } => self.mends(fault),
            Event::Heals => self.heals(),
            Event::Sweep => self.sweeps(),
            Event::Bound { lock } => self.bound(lock),
            Event::BoundOfAll => self.bound_of_all(),
        }
    }

    /// Puts an event aside that a process would see to which stands still.
    fn is_for_a_stopped_process(&mut self, event: Event) -> bool {
        let host = if let Event::Due { id, .. } | Event::Readable { id, side: CLIENT } = event {
            Some(self.conns[id].host)
        } else if let Event::Act { slot, .. } | Event::WaitLimit { slot, .. } = event {
            Some(self.slots[slot].host)
        } else {
            None
        };
        let is_servers = matches!(
            event,
            Event::Readable { side: SERVER, .. }
                | Event::Expiry { .. }
                | Event::FirstFrame { .. }
                | Event::DrainOver { .. }
                | Event::TokenCare { .. }
        );
        if let Some(host) = host
            && self.hosts[host].is_stopped()
        {
            self.hosts[host].deferred.push(event);
            return true;
        }
        if is_servers && self.server.is_stopped() {
            self.server.deferred.push(event);
            return true;
        }
        false
    }

    pub(crate) fn schedule(&mut self, at: True, event: Event) {
        self.made += 1;
        self.queue.push(Reverse((at.max(self.t), self.made, event)));
    }

    /// Puts what could not be done while a process stood still in again, in any order: no system promises one.
    pub(crate) fn resume(&mut self, mut deferred: Vec<Event>) {
        self.rng.shuffle(&mut deferred);
        for event in deferred {
            let after = self.rng.below(MS);
            self.schedule(self.t + after, event);
        }
    }

    pub(crate) fn tell(&mut self, who: Who, number: u64, words: impl FnOnce() -> String) {
        self.story.tell(self.t, who, number, words);
    }

    /// Notes a broken promise; the first stands.
    pub(crate) fn breach(&mut self, oracle: Oracle, what: String) {
        if self.violation.is_none() {
            self.violation = Some(Violation { oracle, at: self.t, what });
        }
    }

    pub(crate) fn check(&mut self, checked: Result<(), Breach>) {
        if let Err((oracle, what)) = checked {
            self.breach(oracle, what);
        }
    }

    /// How late something is that should be in time; now and then not at all.
    pub(crate) fn lateness(&mut self) -> u64 {
        if self.rng.chance(100) {
            return 0;
        }
        self.rng.below(self.plan.timer_lateness + 1)
    }

    pub(crate) fn fault(&self, fault: usize) -> Fault {
        self.plan.faults[fault].1
    }

    /// Nobody wants anything any more, and nothing is left.
    fn is_quiet(&self) -> bool {
        self.slots.iter().all(Slot::is_done)
            && self.server.is_idle()
            && self.ledger.session_count() == 0
            && self.server.conns.iter().all(|&id| !self.conns[id].ends[SERVER].open)
    }
}

/// The names of locks: ordinary and odd ones.
fn name(lock: usize) -> LockName {
    let text = match lock {
        0 => "jobs".to_owned(),
        1 => "nächtlich\0/*\n".to_owned(),
        _ => "x".repeat(255),
    };
    LockName::new(&text).expect("it is a name")
}
