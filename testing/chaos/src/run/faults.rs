//! What is done to whom: each class of faults from its beginning to the next grant after it.

use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use monolock_chaos::history::What;
use monolock_chaos::plan::{Class, Fault, LOCKS, LONGEST_LEASE_MS, Target};

use crate::run::Result;
use crate::run::clock::now;
use crate::run::firewall::{Deed, Firewall, Rule};
use crate::run::network::{CROWD, Cable, Network, PORT, SERVER_IP, SERVERS, inside};
use crate::run::proxy::Mode;
use crate::run::server::{ServerPlace, Start, wait};
use crate::run::tools::Tools;
use crate::run::workers::{Place, Workers};
use crate::run::world::{Holder, Live, PATIENCE, World};

/// For how long a holder of the wanted kind is looked for.
const SEARCH: Duration = Duration::from_secs(20);

/// How long a holder may take to say that it keeps its lock.
const WORD: Duration = Duration::from_millis(400);

/// For how much longer than its time a fault goes on that has done nothing yet.
const EXTENSION: Duration = Duration::from_secs(20);

/// Within how long a client is back that has lost its server: what a connection may take, and the pauses between two.
const RECONNECT: Duration = Duration::from_millis(2500 + 200 + 60);

/// Who does things to whom.
pub(crate) struct Faults<'a> {
    tools: &'a Tools,
    world: &'a Arc<World>,
    network: &'a Network,
    workers: &'a Workers,
    firewall: Firewall,
    /// What went wrong with a fault of a client.
    problems: Mutex<Vec<String>>,
}

/// What the harness saw of a fault.
struct Seen {
    /// When it was over.
    healed: u64,
    effect: u64,
}

impl<'a> Faults<'a> {
    pub(crate) fn new(tools: &'a Tools, world: &'a Arc<World>, network: &'a Network, workers: &'a Workers) -> Self {
        let firewall = Firewall::new(tools.filter);
        Self { tools, world, network, workers, firewall, problems: Mutex::new(Vec::new()) }
    }

    /// Does something to a holder, and waits for the next grant of its lock.
    pub(crate) fn of_client(&self, fault: &Fault) {
        if let Err(problem) = self.try_of_client(fault) {
            self.problems.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{fault}: {problem}"));
        }
    }

    fn try_of_client(&self, fault: &Fault) -> Result<()> {
        let lock = LOCKS[fault.lock];
        let wanted = |place: &Place| match fault.class.target() {
            Target::DirectHolder => place.proxy.is_none(),
            Target::ProxiedHolder => place.proxy.is_some(),
            Target::Holder | Target::Server => true,
        };
        let Some((place, holder)) = self.keep(lock, wanted, SEARCH) else {
            return Err("no such holder came".to_owned());
        };
        self.world.note(What::Injected {
            fault: fault.number,
            class: fault.class.to_string(),
            worker: Some(holder.worker.clone()),
            claim: Some(holder.claim),
            lock: Some(lock.to_owned()),
            brief: fault.is_brief(),
        });
        let seen = self.inflict(fault, place, &holder)?;
        place.tell("go");
        self.world.note_at(seen.healed, What::Healed { fault: fault.number, effect: seen.effect });
        self.expect_grant(lock, seen.healed);
        Ok(())
    }

    /// Does it, for its time.
    fn inflict(&self, fault: &Fault, place: &Place, holder: &Holder) -> Result<Seen> {
        let number = fault.number;
        let time = Duration::from_millis(holder.lease_ms * fault.percent / 100);
        // Wherever the server is meanwhile.
        let to_server = |deed| SERVERS.map(|server| (server, Rule { fault: number, from: Some(place.address), deed }));
        let to_client = |deed| (place.namespace.as_str(), Rule { fault: number, from: None, deed });
        match fault.class {
            Class::CutBoth => {
                self.filter(fault, place, time, &[&to_server(Deed::Drop)[..], &[to_client(Deed::Drop)]].concat())
            }
            Class::CutToServer => self.filter(fault, place, time, &to_server(Deed::Drop)),
            Class::CutToClient => self.filter(fault, place, time, &[to_client(Deed::Drop)]),
            Class::Loss => {
                let deed = Deed::DropSome(20 + fault.dice % 40);
                // Long enough for a few heartbeats to be lost.
                let rules = [&to_server(deed)[..], &[to_client(deed)]].concat();
                self.filter(fault, place, time.max(Duration::from_secs(2)), &rules)
            }
            Class::Reset => self.filter(fault, place, time, &to_server(Deed::Reset)),
            Class::LinkDown => {
                self.network.cable(&place.namespace, Cable::Out)?;
                let from = now();
                self.world.sleep(time);
                let to = now();
                self.network.cable(&place.namespace, Cable::In)?;
                self.dark(Some(place), from, to);
                Ok(Seen { healed: now(), effect: 1 })
            }
            Class::Delay => {
                let delay = Duration::from_millis(holder.lease_ms * (5 + fault.dice % 15) / 100);
                self.relay(place, Mode::Delay(delay), time)
            }
            Class::Dribble => self.relay(place, Mode::Dribble(Duration::from_millis(5 + fault.dice % 20)), time),
            Class::Stall => self.relay(place, Mode::Stall, time),
            Class::HalfClose => self.relay(place, Mode::HalfClose, time),
            Class::ProxyReset => self.relay(place, Mode::Reset, time),
            Class::KillClient => {
                self.workers.kill(place)?;
                let healed = now();
                // The next one comes when the lock has passed on, or at once.
                if fault.dice.is_multiple_of(2) {
                    self.expect_grant(&holder.lock, healed);
                }
                self.workers.revive(place)?;
                Ok(Seen { healed, effect: 1 })
            }
            Class::PauseClient => {
                place.pause()?;
                let from = now();
                self.world.sleep(time);
                let to = now();
                place.resume()?;
                self.dark(Some(place), from, to);
                Ok(Seen { healed: now(), effect: 1 })
            }
            Class::PauseServer
            | Class::StopServer
            | Class::CrashServer
            | Class::CrashGrace
            | Class::FailoverCrash
            | Class::FailoverCut
            | Class::ClockStep
            | Class::Descriptors
            | Class::MuteCrowd => Err("that is no fault of a client".to_owned()),
        }
    }

    /// Rules for packets, for so long.
    fn filter(&self, fault: &Fault, place: &Place, time: Duration, rules: &[(&str, Rule)]) -> Result<Seen> {
        for (namespace, rule) in rules {
            self.firewall.add(namespace, *rule)?;
        }
        let from = now();
        self.world.sleep(time);
        let met = || rules.iter().map(|(namespace, _)| self.firewall.met(namespace, fault.number)).sum();
        // That the client noticed the others is for the history to say.
        let effect = if fault.class == Class::Loss { self.extend(met)? } else { met()?.max(1) };
        let to = now();
        for (namespace, _) in rules {
            self.firewall.remove(namespace, fault.number)?;
        }
        if rules.iter().any(|(_, rule)| rule.deed == Deed::Drop) {
            self.dark(Some(place), from, to);
        }
        Ok(Seen { healed: now(), effect })
    }

    /// Lets a fault go on until it has had an effect: chance may spare its client for a while, and a client that a busy
    /// machine keeps waiting gives it nothing to do. Says how large the effect is.
    fn extend(&self, effect: impl Fn() -> Result<u64>) -> Result<u64> {
        let deadline = Instant::now() + EXTENSION;
        loop {
            let seen = effect()?;
            if seen > 0 || Instant::now() > deadline {
                return Ok(seen);
            }
            self.world.sleep(Duration::from_millis(100));
            self.world.check_interrupt()?;
        }
    }

    /// A mode of the proxy, for so long.
    fn relay(&self, place: &Place, mode: Mode, time: Duration) -> Result<Seen> {
        let proxy = place.proxy.as_ref().ok_or("there is no proxy")?;
        let before = proxy.touched();
        proxy.set(mode);
        let from = now();
        self.world.sleep(time);
        let extended = self.extend(|| Ok(proxy.touched() - before));
        let to = now();
        proxy.set(Mode::Pass);
        extended?;
        if mode == Mode::Stall {
            self.dark(Some(place), from, to);
        }
        Ok(Seen { healed: now(), effect: proxy.touched() - before })
    }

    /// Does something to the server, and waits for the next grant of each lock.
    ///
    /// # Errors
    /// The server is not there any more.
    pub(crate) fn of_server(&self, fault: &Fault, server: &mut ServerPlace) -> Result<()> {
        // Some hold while it comes, where there are any. Where grants are to go on, one lock is enough.
        let first = usize::try_from(fault.dice).unwrap_or(0) % LOCKS.len();
        let count = if fault.class.costs_the_lock() { LOCKS.len() } else { 1 };
        let locks = LOCKS.into_iter().cycle().skip(first).take(count);
        let mut kept = Vec::new();
        for (number, lock) in locks.enumerate() {
            // The first one may have to be cut off.
            kept.extend(self.keep(lock, |place| number > 0 || place.proxy.is_none(), SEARCH / 4));
        }
        let injected = What::Injected {
            fault: fault.number,
            class: fault.class.to_string(),
            worker: None,
            claim: None,
            lock: None,
            brief: fault.is_brief(),
        };
        let lease_ms = kept.iter().map(|(_, holder)| holder.lease_ms).max().unwrap_or(LONGEST_LEASE_MS);
        let time = Duration::from_millis(lease_ms * fault.percent / 100);
        self.world.note(injected);
        let deaf = kept.first().map(|(place, _)| *place).filter(|place| place.proxy.is_none());
        let seen = self.inflict_on_server(fault, server, time, deaf);
        for (place, _) in &kept {
            place.tell("go");
        }
        let seen = seen?;
        self.world.note_at(seen.healed, What::Healed { fault: fault.number, effect: seen.effect });
        for lock in LOCKS {
            self.expect_grant(lock, seen.healed);
        }
        Ok(())
    }

    /// Does it, for its time. The holder `deaf` does not hear of some of it.
    fn inflict_on_server(
        &self,
        fault: &Fault,
        server: &mut ServerPlace,
        time: Duration,
        deaf: Option<&Place>,
    ) -> Result<Seen> {
        let token_file = fault.dice.is_multiple_of(2);
        match fault.class {
            Class::PauseServer => {
                server.pause()?;
                let from = now();
                self.world.sleep(time);
                let to = now();
                server.resume()?;
                self.dark(None, from, to);
                Ok(Seen { healed: now(), effect: 1 })
            }
            Class::StopServer => {
                server.stop()?;
                server.start(Start { token_file, ..Start::default() })?;
                Ok(Seen { healed: now(), effect: 1 })
            }
            Class::CrashServer => {
                let restart = Start { token_file, ..Start::default() };
                self.crash_unheard(fault, server, restart, time, deaf)
            }
            Class::CrashGrace => {
                let restart = Start { grace: true, token_file: true, ..Start::default() };
                self.crash_unheard(fault, server, restart, time, deaf)
            }
            Class::FailoverCrash | Class::FailoverCut => self.fail_over(fault, server, time, deaf),
            Class::ClockStep => self.step_clock(fault, server),
            Class::Descriptors => {
                server.stop()?;
                server.start(Start { token_file, descriptors: Some(64), ..Start::default() })?;
                // The clients are back before the crowd comes.
                let holders = |live: &mut Live| (live.holders.len() == LOCKS.len()).then_some(());
                let _ = self.world.wait(PATIENCE, holders);
                let effect = self.crowd(server, 150, time, |server| server.metric("monolock_accept_errors_total"))?;
                let healed = now();
                // It accepts again by itself; only then it is restarted with what it needs.
                for lock in LOCKS {
                    self.expect_grant(lock, healed);
                }
                server.stop()?;
                server.start(Start { token_file, ..Start::default() })?;
                Ok(Seen { healed: now(), effect })
            }
            Class::MuteCrowd => {
                let count = 150 + fault.dice % 250;
                let effect = self.crowd(server, count, time, |server| {
                    // Those who mean it are few.
                    Ok(server.metric("monolock_connections_active")? - 50.0)
                })?;
                Ok(Seen { healed: now(), effect })
            }
            Class::CutBoth
            | Class::CutToServer
            | Class::CutToClient
            | Class::Loss
            | Class::Reset
            | Class::LinkDown
            | Class::Delay
            | Class::Stall
            | Class::HalfClose
            | Class::ProxyReset
            | Class::Dribble
            | Class::KillClient
            | Class::PauseClient => Err("that is no fault of the server".to_owned()),
        }
    }

    /// The server is killed and started again while a holder is cut off: it believes in its lock for as long as it may.
    fn crash_unheard(
        &self,
        fault: &Fault,
        server: &mut ServerPlace,
        restart: Start,
        time: Duration,
        deaf: Option<&Place>,
    ) -> Result<Seen> {
        let rules = deaf.map_or_else(Vec::new, |place| {
            let rule = |from| Rule { fault: fault.number, from, deed: Deed::Drop };
            vec![(server.machine(), rule(Some(place.address))), (place.namespace.as_str(), rule(None))]
        });
        for (namespace, rule) in &rules {
            self.firewall.add(namespace, *rule)?;
        }
        let from = now();
        server.crash()?;
        server.start(restart)?;
        self.world.sleep(time.saturating_sub(Duration::from_nanos(now() - from)));
        let to = now();
        for (namespace, _) in &rules {
            self.firewall.remove(namespace, fault.number)?;
        }
        if let Some(place) = deaf {
            self.dark(Some(place), from, to);
        }
        Ok(Seen { healed: now(), effect: 1 })
    }

    /// The server's machine is gone for its clients, with the server or without, and its address is moved to the other
    /// machine, where a server is started with a grace. A holder is cut off meanwhile: it hears of nothing, and
    /// believes for as long as it may.
    fn fail_over(&self, fault: &Fault, server: &mut ServerPlace, time: Duration, deaf: Option<&Place>) -> Result<Seen> {
        let rule = Rule { fault: fault.number, from: None, deed: Deed::Drop };
        if let Some(place) = deaf {
            self.firewall.add(&place.namespace, rule)?;
        }
        let from = now();
        let machine = server.machine();
        // Two servers can have one token file only where one of them is dead.
        let token_file = fault.class == Class::FailoverCrash && fault.dice.is_multiple_of(2);
        if fault.class == Class::FailoverCrash {
            server.crash()?;
        } else {
            self.network.cable(machine, Cable::Out)?;
            server.leave_alone()?;
        }
        // Somebody has to find out; the less that takes, the more depends on the grace.
        let detection = Duration::from_millis(fault.dice / 2 % 400);
        self.world.sleep(detection);
        server.change_machine();
        // No two clocks are the same: the other machine's is behind by as much as a grace of two seconds allows.
        server.step_clock(server.clock_offset_s() - 1)?;
        if fault.class == Class::FailoverCrash {
            self.network.take_address(machine)?;
        }
        self.network.give_address(&self.tools.python, server.machine())?;
        let moved = now();
        server.start(Start { grace: true, token_file, ..Start::default() })?;
        let serving = now();
        self.world.sleep(time.saturating_sub(Duration::from_nanos(now() - from)));
        let to = now();
        if let Some(place) = deaf {
            self.firewall.remove(&place.namespace, fault.number)?;
            self.dark(Some(place), from, to);
        }
        let granted =
            self.world.wait(PATIENCE, |live| live.granted_locks.values().filter(|at| **at > serving).min().copied());
        if let Some(granted) = granted {
            let grace = Duration::from_millis(LONGEST_LEASE_MS);
            let start = Duration::from_nanos(serving - moved);
            let first = Duration::from_nanos(granted - moved);
            println!(
                "          found out in {detection:.1?}, first grant {first:.1?} after the address had moved; \
                 at most {:.1?}: start {start:.1?}, the later of grace {grace:.1?} and reconnect {RECONNECT:.1?}",
                start + grace.max(RECONNECT)
            );
        }
        if fault.class == Class::FailoverCut {
            server.end_the_one_alone()?;
            self.network.take_address(machine)?;
            self.network.cable(machine, Cable::In)?;
        }
        Ok(Seen { healed: to, effect: 1 })
    }

    /// The wall clock jumps about, and comes to rest no earlier than it had ever been.
    fn step_clock(&self, fault: &Fault, server: &mut ServerPlace) -> Result<Seen> {
        const DAY_S: i64 = 24 * 3600;
        let rest = server.clock_offset_s();
        let far = i64::try_from(fault.dice).unwrap_or(0) % (400 * DAY_S) + 3600;
        let mut effect = 0;
        for step in [far, -far, 3600, -3600] {
            server.step_clock(rest + step)?;
            let since = now();
            let granted =
                |live: &mut Live| (live.granted_locks.values().filter(|at| **at > since).count() > 1).then_some(());
            let _ = self.world.wait(Duration::from_secs(5), granted);
            // The audit log says what the server takes for the time.
            effect += u64::from(server.is_off_by(rest + step));
        }
        server.step_clock(rest + far)?;
        Ok(Seen { healed: now(), effect })
    }

    /// A crowd that connects and says nothing; says how large `measure` became meanwhile.
    fn crowd(
        &self,
        server: &mut ServerPlace,
        count: u64,
        time: Duration,
        measure: impl Fn(&ServerPlace) -> Result<f64>,
    ) -> Result<u64> {
        let milliseconds = time.max(Duration::from_secs(2)).as_millis().to_string();
        let mut command = inside(CROWD, &self.tools.worker);
        command.args(["flood", "--server", &format!("{SERVER_IP}:{PORT}"), "--count", &count.to_string()]);
        command.args(["--milliseconds", &milliseconds]).stdin(Stdio::null()).stdout(Stdio::null());
        let mut flood = command.spawn().map_err(|error| format!("the crowd cannot be started: {error}"))?;
        let mut most = 0.0_f64;
        while flood.try_wait().is_ok_and(|status| status.is_none()) {
            server.check()?;
            // It can be looked after however full it is.
            most = most.max(measure(server)?);
            server.counts()?;
            self.world.sleep(Duration::from_millis(100));
            self.world.check_interrupt()?;
        }
        let _ = wait(&mut flood);
        // What only grows is there still, however seldom it was looked at.
        most = most.max(measure(server)?);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
        Ok(most.max(0.0) as u64)
    }

    /// Finds a holder of a lock and lets it hold until it is told to go.
    fn keep(&self, lock: &str, wanted: impl Fn(&Place) -> bool, search: Duration) -> Option<(&'a Place, Holder)> {
        let deadline = now() + u64::try_from(search.as_nanos()).unwrap_or(u64::MAX);
        let mut tried: Option<(String, u64)> = None;
        while now() < deadline {
            let remaining = Duration::from_nanos(deadline.saturating_sub(now()));
            let workers = self.workers;
            let (place, holder) = self.world.wait(remaining, |live| {
                let holder = live.holders.get(lock)?;
                let place = workers.place_of(&holder.worker)?;
                let is_new = tried.as_ref() != Some(&(holder.worker.clone(), holder.claim));
                (is_new && wanted(place)).then(|| (place, holder.clone()))
            })?;
            let claim = (holder.worker.clone(), holder.claim);
            place.tell(&format!("keep {}", holder.claim));
            if self.world.wait(WORD, |live| live.kept.contains(&claim).then_some(())).is_some() {
                return Some((place, holder));
            }
            place.tell("go");
            tried = Some(claim);
        }
        None
    }

    /// Waits until a lock has been granted anew. Whether it was is for the history to say.
    fn expect_grant(&self, lock: &str, since: u64) {
        let _ =
            self.world.wait(PATIENCE, |live| live.granted_locks.get(lock).is_some_and(|at| *at >= since).then_some(()));
    }

    fn dark(&self, place: Option<&Place>, from: u64, to: u64) {
        self.world.note(What::Dark { worker: place.map(|place| place.name.clone()), from, to });
    }

    /// What went wrong with faults of clients since this was asked last.
    pub(crate) fn problems(&self) -> Vec<String> {
        std::mem::take(&mut *self.problems.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
