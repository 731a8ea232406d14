//! A naive engine, and its agreement with the real one after every input.
//!
//! The model keeps its claims in one list in the order of arrival and looks through all of it for every question:
//! nothing in it is clever, so it can be read as the specification. Effects must be equal and in the same order, every
//! view must show the same, and the deadline must keep its law.

use std::collections::BTreeMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Duration;

use monolock_core::{
    Acquire, Effect, Effects, Lease, LockEngine, LockName, ReleaseReason, SessionId, Standing, Timestamp, Token,
    TokenSequence,
};

use crate::story::{Advance, Input, Pick, Step, Story};

/// Keyed by nothing: the same story takes the same path in every run.
type Engine = LockEngine<BuildHasherDefault<DefaultHasher>>;

#[derive(Debug)]
struct Model {
    now: Timestamp,
    grace: Option<Timestamp>,
    closed: bool,
    /// The living, in the order of arrival.
    claims: Vec<Claim>,
    next_serial: u64,
    next_token: u64,
}

#[derive(Clone, Debug)]
struct Claim {
    id: SessionId,
    name: LockName,
    lease: Lease,
    last_seen: Timestamp,
    since: Timestamp,
    token: Option<Token>,
}

impl Claim {
    fn deadline(&self) -> Timestamp {
        self.last_seen.saturating_add(self.lease.as_duration())
    }
}

impl Model {
    fn new(grace: Option<Timestamp>) -> Self {
        Self { now: Timestamp::ORIGIN, grace, closed: false, claims: Vec::new(), next_serial: 1, next_token: 1 }
    }

    /// Lets time pass. `locks` is the order in which the engine shows its locks: the end of the grace follows it.
    fn tick(&mut self, now: Timestamp, locks: &[LockName], out: &mut Vec<Effect>) {
        let now = self.now.max(now);
        self.now = now;
        let due = |claim: &&Claim| claim.deadline() <= now;
        while let Some(next) = self.claims.iter().filter(due).min_by_key(|claim| (claim.deadline(), claim.id.serial()))
        {
            let id = next.id;
            self.end(id, ReleaseReason::Expired, out);
        }
        if self.grace.is_some_and(|until| until <= self.now) {
            self.grace = None;
            for name in locks {
                self.promote(name, out);
            }
        }
    }

    /// `id` is what the engine answered; a model cannot make one.
    fn acquire(&mut self, name: &LockName, lease: Lease, id: SessionId, out: &mut Vec<Effect>) {
        assert_eq!(id.serial(), self.next_serial, "serials rise by one");
        self.next_serial += 1;
        let ahead = self.claims.iter().filter(|claim| claim.name == *name).count();
        let (name, now) = (name.clone(), self.now);
        self.claims.push(Claim { id, name: name.clone(), lease, last_seen: now, since: now, token: None });
        if ahead == 0 && self.grace.is_none() {
            let token = self.token();
            self.claims.last_mut().unwrap().token = Some(token);
            out.push(Effect::Granted { session: id, name, token, waited: Duration::ZERO });
        } else {
            out.push(Effect::Queued { session: id, name, ahead });
        }
    }

    fn heartbeat(&mut self, id: SessionId, out: &mut Vec<Effect>) -> bool {
        let Some(claim) = self.claims.iter_mut().find(|claim| claim.id == id) else { return false };
        claim.last_seen = self.now;
        let standing = claim.token.map_or(Standing::Waiting, Standing::Holding);
        out.push(Effect::Confirmed { session: id, standing });
        true
    }

    fn release(&mut self, id: SessionId, why: ReleaseReason, out: &mut Vec<Effect>) -> bool {
        let known = self.claims.iter().any(|claim| claim.id == id);
        if known {
            self.end(id, why, out);
        }
        known
    }

    fn close(&mut self, locks: &[LockName], out: &mut Vec<Effect>) {
        self.closed = true;
        for name in locks {
            let (holder, mut order): (Vec<_>, Vec<_>) = self
                .claims
                .iter()
                .filter(|claim| claim.name == *name)
                .cloned()
                .partition(|claim| claim.token.is_some());
            order.extend(holder);
            for claim in order {
                self.end(claim.id, ReleaseReason::Shutdown, out);
            }
        }
    }

    fn end(&mut self, id: SessionId, reason: ReleaseReason, out: &mut Vec<Effect>) {
        let at = self.claims.iter().position(|claim| claim.id == id).expect("only the living end");
        let Claim { id: session, name, since, token, .. } = self.claims.remove(at);
        let lasted = self.now.since(since);
        out.push(match token {
            Some(token) => Effect::Released { session, name: name.clone(), token, held: lasted, reason },
            None => Effect::Withdrawn { session, name: name.clone(), waited: lasted, reason },
        });
        self.promote(&name, out);
    }

    fn promote(&mut self, name: &LockName, out: &mut Vec<Effect>) {
        if self.closed || self.grace.is_some() || self.holder(name).is_some() {
            return;
        }
        let Some(at) = self.claims.iter().position(|claim| claim.name == *name) else { return };
        if self.claims[at].deadline() <= self.now {
            return self.end(self.claims[at].id, ReleaseReason::Expired, out);
        }
        let token = self.token();
        let (now, claim) = (self.now, &mut self.claims[at]);
        let waited = now.since(claim.since);
        (claim.token, claim.since) = (Some(token), now);
        out.push(Effect::Granted { session: claim.id, name: name.clone(), token, waited });
    }

    fn lift(&mut self, second: u64) {
        self.next_token = self.next_token.max(second << 20);
    }

    fn token(&mut self) -> Token {
        self.next_token += 1;
        Token::new(self.next_token - 1).unwrap()
    }

    fn holder(&self, name: &LockName) -> Option<&Claim> {
        self.claims.iter().find(|claim| claim.name == *name && claim.token.is_some())
    }

    fn waiters(&self, name: &LockName) -> Vec<&Claim> {
        self.claims.iter().filter(|claim| claim.name == *name && claim.token.is_none()).collect()
    }

    /// When time alone changes something next.
    fn earliest(&self) -> Option<Timestamp> {
        let grace = self.grace.filter(|_| !self.claims.is_empty());
        self.claims.iter().map(Claim::deadline).chain(grace).min()
    }
}

/// Both engines, side by side.
struct Pair {
    engine: Engine,
    tokens: Arc<TokenSequence>,
    model: Model,
    ever: Vec<SessionId>,
    effects: Effects,
    expected: Vec<Effect>,
    names: Vec<LockName>,
}

/// Tells `story` to the engine and to the model; panics where they differ. `witness` sees the effects of each input.
pub(crate) fn agree(story: &Story, mut witness: impl FnMut(&Effects)) {
    let mut pair = Pair::new(story.grace);
    for step in &story.steps {
        pair.tell(step);
        witness(&pair.effects);
    }
}

impl Pair {
    fn new(grace: Option<Timestamp>) -> Self {
        let tokens = Arc::new(TokenSequence::new());
        let engine = Engine::new(Arc::clone(&tokens), BuildHasherDefault::default());
        Self {
            engine: match grace {
                Some(instant) => engine.granting_from(instant),
                None => engine,
            },
            tokens,
            model: Model::new(grace),
            ever: Vec::new(),
            effects: Effects::new(),
            expected: Vec::new(),
            names: (0..24).map(|number| LockName::new(&format!("lock {number}")).unwrap()).collect(),
        }
    }

    fn tell(&mut self, Step { advance, input }: &Step) {
        let now = self.stamp(*advance);
        let wanted = self.engine.next_deadline();
        let locks: Vec<_> = self.engine.locks().map(|lock| lock.name().clone()).collect();
        self.effects.clear();
        self.expected.clear();
        if let Input::Lift(second) = *input {
            self.tokens.lift_to_unix_second(second);
            return self.model.lift(second);
        }
        self.model.tick(now, &locks, &mut self.expected);
        self.input(now, &locks, *input);
        assert_eq!(self.effects.iter().collect::<Vec<_>>(), self.expected.iter().collect::<Vec<_>>(), "effects");
        if matches!(input, Input::Tick) {
            self.tick_keeps_its_law(now, wanted);
        }
        self.views_agree();
        self.deadline_keeps_its_law();
    }

    fn stamp(&self, advance: Advance) -> Timestamp {
        let now = self.model.now;
        let wanted = self.engine.next_deadline().unwrap_or(now);
        match advance {
            Advance::Still => now,
            Advance::Back(by) => now.saturating_sub(by),
            Advance::By(by) => now.saturating_add(by),
            Advance::BeforeDeadline(by) => wanted.saturating_sub(by),
            Advance::AfterDeadline(by) => wanted.saturating_add(by),
            Advance::ToLeaseOf(nth) => {
                let claims = &self.model.claims;
                claims.get(nth % claims.len().max(1)).map_or(now, Claim::deadline)
            }
        }
    }

    fn input(&mut self, now: Timestamp, locks: &[LockName], input: Input) {
        let Self { engine, model, effects, expected, .. } = self;
        match input {
            Input::Acquire { name, lease } => {
                let name = &self.names[name];
                let answer = engine.acquire(now, Acquire { name: name.as_name_ref(), lease }, effects);
                assert_eq!(answer.is_err(), model.closed, "a claim is refused once closed");
                if let Ok(id) = answer {
                    let taken = model.claims.iter().any(|claim| claim.id.index() == id.index());
                    assert!(!taken, "the living share no index");
                    model.acquire(name, lease, id, expected);
                    self.ever.push(id);
                }
            }
            Input::Heartbeat(pick) => {
                let Some(id) = self.pick(pick) else { return self.engine.tick(now, &mut self.effects) };
                let known = self.engine.heartbeat(now, id, &mut self.effects).is_ok();
                assert_eq!(known, self.model.heartbeat(id, &mut self.expected), "a heartbeat finds the living");
            }
            Input::Release(pick, why) => {
                let Some(id) = self.pick(pick) else { return self.engine.tick(now, &mut self.effects) };
                let known = self.engine.release(now, id, why, &mut self.effects).is_ok();
                assert_eq!(known, self.model.release(id, why, &mut self.expected), "a release finds the living");
            }
            Input::Tick => engine.tick(now, effects),
            Input::Lift(_) => unreachable!("it was told before"),
            Input::Close => {
                engine.close(now, effects);
                model.close(locks, expected);
            }
        }
    }

    /// Who is meant; `None` before the first claim. The claims that this very input ends by its time count as living
    /// still.
    fn pick(&self, pick: Pick) -> Option<SessionId> {
        let (nth, order): (_, Vec<_>) = match pick {
            Pick::Living(nth) => (nth, self.model.claims.iter().map(|claim| claim.id).collect()),
            Pick::Ever(nth) => (nth, self.ever.iter().rev().copied().collect()),
        };
        let count = order.len().max(1);
        order.get(nth % count).or(self.ever.last()).copied()
    }

    fn tick_keeps_its_law(&self, now: Timestamp, wanted: Option<Timestamp>) {
        let after = self.engine.next_deadline();
        match wanted {
            Some(wanted) if wanted <= now => {
                let later = after.is_none_or(|after| after > wanted);
                assert!(later || !self.effects.is_empty(), "a due tick makes progress: {wanted:?}, then {after:?}");
            }
            _ => {
                assert!(self.effects.is_empty(), "an early tick does nothing");
                assert_eq!(after, wanted, "an early tick does nothing");
            }
        }
    }

    fn views_agree(&self) {
        let Self { engine, model, .. } = self;
        let mut by_name: BTreeMap<&LockName, usize> = BTreeMap::new();
        model.claims.iter().for_each(|claim| *by_name.entry(&claim.name).or_default() += 1);
        assert_eq!(engine.session_count(), model.claims.len(), "session count");
        assert_eq!(engine.lock_count(), by_name.len(), "lock count");
        assert_eq!(engine.locks().count(), by_name.len(), "each lock is shown once");
        for name in by_name.keys() {
            let lock = engine.lock(name.as_name_ref()).expect("a lock that is claimed is found");
            assert_eq!(lock.name(), *name);
            let waiters = model.waiters(name);
            assert_eq!(lock.holder().map(|holder| holder.id()), model.holder(name).map(|claim| claim.id), "holder");
            assert!(lock.waiters().map(|waiter| waiter.id()).eq(waiters.iter().map(|claim| claim.id)), "queue");
            assert_eq!(lock.waiter_count(), waiters.len());
        }
        assert!(engine.locks().all(|lock| by_name.contains_key(lock.name())), "an unclaimed lock is shown");
        for claim in &model.claims {
            let seen = engine.session(claim.id).expect("the living are found");
            assert_eq!(seen.id(), claim.id);
            assert_eq!(seen.standing(), claim.token.map_or(Standing::Waiting, Standing::Holding));
            assert_eq!((seen.lease(), seen.since()), (claim.lease, claim.since));
            assert_eq!((seen.last_seen(), seen.deadline()), (claim.last_seen, claim.deadline()));
        }
        let gone = self.ever.iter().rev().take(8).filter(|&&id| model.claims.iter().all(|claim| claim.id != id));
        gone.for_each(|&id| assert!(engine.session(id).is_none(), "a stale id finds nothing"));
    }

    fn deadline_keeps_its_law(&self) {
        let (wanted, earliest) = (self.engine.next_deadline(), self.model.earliest());
        assert_eq!(wanted.is_some(), earliest.is_some(), "there is a deadline while time can change something");
        assert!(wanted <= earliest, "the engine asks for {wanted:?}, but something is due at {earliest:?}");
        // At the end of time a lease has no length.
        assert!(
            self.model.now == Timestamp::MAX || wanted.is_none_or(|wanted| wanted > self.model.now),
            "nothing stays due"
        );
    }
}
