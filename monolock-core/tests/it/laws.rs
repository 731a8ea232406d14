//! The laws of the engine, each by its name.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::RandomState;
use std::sync::Arc;
use std::time::Duration;

use monolock_core::{
    Acquire, Effect, Effects, Lease, LockEngine, LockName, SessionId, Timestamp, Token, TokenSequence,
};

use crate::story::{Advance, Dice, Input, Pick, Seeded, Step, Story};
use crate::world::{Engine, World, granted, lease, ms};

const STORIES: u64 = 2_000;

/// Tells a story to one engine, input by input.
struct Teller {
    world: World,
    ever: Vec<SessionId>,
    now: Timestamp,
}

impl Teller {
    fn new(story: &Story) -> Self {
        let mut world = World::new();
        if let Some(instant) = story.grace {
            world.engine = world.engine.granting_from(instant);
        }
        Self { world, ever: Vec::new(), now: Timestamp::ORIGIN }
    }

    fn stamp(&self, advance: Advance) -> Timestamp {
        let wanted = self.world.engine.next_deadline().unwrap_or(self.now);
        match advance {
            Advance::Still => self.now,
            Advance::Back(by) => self.now.saturating_sub(by),
            Advance::By(by) => self.now.saturating_add(by),
            Advance::BeforeDeadline(by) => wanted.saturating_sub(by),
            Advance::AfterDeadline(by) => wanted.saturating_add(by),
            Advance::ToLeaseOf(nth) => {
                let living: Vec<_> = self.living();
                let id = living.get(nth % living.len().max(1));
                id.and_then(|&id| self.world.engine.session(id)).map_or(self.now, |session| session.deadline())
            }
        }
    }

    fn tell(&mut self, now: Timestamp, input: Input) -> Vec<Effect> {
        self.now = self.now.max(now);
        let World { engine, effects } = &mut self.world;
        match input {
            Input::Acquire { name, lease } => {
                let name = LockName::new(&format!("lock {name}")).unwrap();
                let id = engine.acquire(now, Acquire { name: name.as_name_ref(), lease }, effects);
                self.ever.extend(id);
            }
            Input::Heartbeat(pick) => match self.pick(pick) {
                Some(id) => drop(self.world.heartbeat(now, id)),
                None => self.world.tick(now),
            },
            Input::Release(pick, why) => match self.pick(pick) {
                Some(id) => drop(self.world.engine.release(now, id, why, &mut self.world.effects)),
                None => self.world.tick(now),
            },
            Input::Tick | Input::Lift(_) => engine.tick(now, effects),
            Input::Close => engine.close(now, effects),
        }
        self.world.effects()
    }

    fn pick(&self, pick: Pick) -> Option<SessionId> {
        let (nth, order) = match pick {
            Pick::Living(nth) => (nth, self.living()),
            Pick::Ever(nth) => (nth, self.ever.clone()),
        };
        order.get(nth % order.len().max(1)).copied()
    }

    fn living(&self) -> Vec<SessionId> {
        self.ever.iter().copied().filter(|&id| self.world.engine.session(id).is_some()).collect()
    }

    /// All that there is to see.
    fn state(&self) -> String {
        let engine = &self.world.engine;
        let locks: Vec<_> = engine.locks().collect();
        let queues: Vec<_> = locks.iter().map(|lock| lock.waiters().collect::<Vec<_>>()).collect();
        format!("{locks:?} {queues:?} {:?}", engine.next_deadline())
    }
}

fn over_stories(mut look: impl FnMut(&Story)) {
    (0..STORIES).for_each(|seed| look(&Story::draw(&mut Seeded(seed), 40)));
}

#[test]
fn an_early_tick_does_nothing() {
    over_stories(|story| {
        let mut teller = Teller::new(story);
        for &Step { advance, input } in &story.steps {
            let before = teller.state();
            let early = teller
                .world
                .engine
                .next_deadline()
                .map_or(teller.now, |deadline| deadline.saturating_sub(Duration::from_nanos(1)));
            assert_eq!(teller.tell(early.max(teller.now), Input::Tick), []);
            assert_eq!(teller.state(), before);
            teller.tell(teller.stamp(advance), input);
        }
    });
}

#[test]
fn a_due_tick_makes_progress() {
    let mut due_ticks = 0;
    over_stories(|story| {
        let mut teller = Teller::new(story);
        for &Step { advance, input } in story.steps.iter().filter(|step| !matches!(step.input, Input::Close)) {
            teller.tell(teller.stamp(advance), input);
        }
        while let Some(deadline) = teller.world.engine.next_deadline() {
            let effects = teller.tell(deadline, Input::Tick);
            let later = teller.world.engine.next_deadline().is_none_or(|next| next > deadline);
            assert!(later || deadline == Timestamp::MAX, "{deadline:?} stays due");
            assert!(!effects.is_empty() || teller.world.engine.session_count() > 0);
            due_ticks += 1;
        }
        assert_eq!(teller.world.engine.session_count(), 0, "without heartbeats all come to their end");
    });
    assert!(due_ticks > 2_000, "only {due_ticks} ticks were due");
}

#[test]
fn every_input_settles_the_past_first() {
    let mut settled = 0;
    over_stories(|story| {
        let (mut at_once, mut in_two) = (Teller::new(story), Teller::new(story));
        for &Step { advance, input } in &story.steps {
            let now = at_once.stamp(advance);
            // Who is meant is asked before the past is settled, in both.
            let input = match input {
                Input::Heartbeat(Pick::Living(nth)) => Input::Heartbeat(meant(&at_once, nth)),
                Input::Release(Pick::Living(nth), why) => Input::Release(meant(&at_once, nth), why),
                other @ (Input::Acquire { .. }
                | Input::Heartbeat(Pick::Ever(_))
                | Input::Release(Pick::Ever(_), _)
                | Input::Tick
                | Input::Lift(_)
                | Input::Close) => other,
            };
            let expected = at_once.tell(now, input);
            let mut effects = in_two.tell(now, Input::Tick);
            settled += usize::from(!effects.is_empty());
            effects.extend(in_two.tell(now, input));
            assert_eq!(effects, expected);
            assert_eq!(in_two.state(), at_once.state());
        }
    });
    assert!(settled > 5_000, "only {settled} inputs found a past to settle");
}

/// The nth of the living by its number among all that ever were.
fn meant(teller: &Teller, nth: usize) -> Pick {
    let meant = teller.pick(Pick::Living(nth));
    Pick::Ever(teller.ever.iter().position(|&id| Some(id) == meant).unwrap_or(0))
}

#[test]
fn time_that_steps_back_stands_still() {
    over_stories(|story| {
        let (mut back, mut still) = (Teller::new(story), Teller::new(story));
        let mut dice = Seeded(7);
        for &Step { advance, input } in &story.steps {
            let now = back.stamp(advance).max(back.now);
            let earlier = Timestamp::from_nanos(dice.magnitude(0..=back.now.as_nanos()));
            assert_eq!(back.tell(now, input), still.tell(now, input));
            assert_eq!(back.tell(earlier, input), still.tell(now, input));
            assert_eq!(back.state(), still.state());
        }
    });
}

#[test]
fn a_lease_lives_while_now_is_before_last_seen_plus_lease() {
    let nanosecond = Duration::from_nanos(1);
    for lease_ms in [1, 2, 50, 399, 400, 401, 60_000, 86_400_000, u32::MAX] {
        for heard in [0, 1, 999_999, 1_000_000, 1_048_576, 123_456_789_012] {
            let (heard, lease) = (Timestamp::from_nanos(heard), lease(lease_ms));
            let mut world = World::new();
            let session = world.acquire(Timestamp::ORIGIN, "jobs", Lease::MAX);
            world.release(Timestamp::ORIGIN, session).unwrap();
            let session = world.acquire(heard, "jobs", lease);
            let end = heard.saturating_add(lease.as_duration());
            assert_eq!(world.engine.session(session).unwrap().deadline(), end);
            world.tick(end.saturating_sub(nanosecond));
            assert_eq!(world.holder("jobs"), Some(session), "{lease_ms} ms from {heard:?}");
            world.tick(end);
            assert_eq!(world.holder("jobs"), None, "{lease_ms} ms from {heard:?}");
        }
    }
}

#[test]
fn a_lease_lives_to_its_end_beside_one_that_ends_a_moment_before() {
    let nanosecond = Duration::from_nanos(1);
    for apart in [1, 1_000, 500_000, 1_048_575, 1_048_576].map(Duration::from_nanos) {
        let mut world = World::new();
        let sooner = Timestamp::ORIGIN.saturating_add(lease(10).as_duration());
        let later = sooner.saturating_add(apart);
        world.acquire(Timestamp::ORIGIN, "sooner", lease(10));
        let session = world.acquire(Timestamp::ORIGIN.saturating_add(apart), "later", lease(10));
        for instant in [sooner, later.saturating_sub(nanosecond)] {
            world.tick(instant);
            assert_eq!(world.holder("sooner"), None, "{apart:?} apart, at {instant:?}");
            assert_eq!(world.holder("later"), Some(session), "{apart:?} apart, at {instant:?}");
        }
        world.tick(later);
        assert_eq!(world.holder("later"), None, "{apart:?} apart");
    }
}

#[test]
fn never_a_free_lock_with_a_queue() {
    over_stories(|story| {
        let mut teller = Teller::new(story);
        for &Step { advance, input } in &story.steps {
            teller.tell(teller.stamp(advance), input);
            let granting = story.grace.is_none_or(|until| until <= teller.now);
            for lock in teller.world.engine.locks() {
                assert!(lock.holder().is_some() || !granting, "{:?} is free and has a queue", lock.name());
                assert!(lock.holder().is_some() || lock.waiter_count() > 0, "{:?} is claimed by nobody", lock.name());
            }
        }
    });
}

#[test]
fn one_released_a_granted_and_one_end_a_session() {
    over_stories(|story| {
        let mut teller = Teller::new(story);
        let mut holding: BTreeMap<u64, Token> = BTreeMap::new();
        let mut ended = BTreeSet::new();
        let steps = story.steps.iter().copied().chain([Step { advance: Advance::Still, input: Input::Close }]);
        for Step { advance, input } in steps {
            for effect in teller.tell(teller.stamp(advance), input) {
                let serial = effect.session().serial();
                match effect {
                    Effect::Granted { token, .. } => assert_eq!(holding.insert(serial, token), None),
                    Effect::Released { token, .. } => assert_eq!(holding.remove(&serial), Some(token)),
                    Effect::Withdrawn { .. } => assert!(!holding.contains_key(&serial), "a holder is released"),
                    Effect::Queued { .. } | Effect::Confirmed { .. } => continue,
                }
                if !holding.contains_key(&serial) {
                    assert!(ended.insert(serial), "a session ends once");
                }
            }
        }
        assert!(holding.is_empty());
        assert_eq!(ended.len(), teller.ever.len());
    });
}

#[test]
fn the_same_story_has_the_same_effects() {
    over_stories(|story| {
        let (mut one, mut other) = (Teller::new(story), Teller::new(story));
        for &Step { advance, input } in &story.steps {
            assert_eq!(one.tell(one.stamp(advance), input), other.tell(other.stamp(advance), input));
        }
        assert_eq!(one.state(), other.state());
    });
}

#[test]
fn the_hasher_has_no_say_in_the_effects() {
    let told = |_| {
        let mut engine = LockEngine::new(Arc::new(TokenSequence::new()), RandomState::new());
        let (mut effects, mut dice) = (Effects::new(), Seeded(3));
        for at in 0..500 {
            let name = LockName::new(&format!("lock {}", dice.below(100))).unwrap();
            let request = Acquire { name: name.as_name_ref(), lease: lease(50) };
            engine.acquire(ms(at), request, &mut effects).unwrap();
        }
        let order: Vec<_> = engine.locks().map(|lock| lock.name().clone()).collect();
        engine.close(ms(500), &mut effects);
        (order, effects.drain().collect::<Vec<_>>())
    };
    let [one, other] = [0, 1].map(told);
    assert!(one.0.len() > 10);
    assert_eq!(one, other);
}

#[test]
fn tokens_rise_over_all_locks_of_one_engine() {
    over_stories(|story| {
        let mut teller = Teller::new(story);
        let mut last = None;
        for &Step { advance, input } in &story.steps {
            for effect in teller.tell(teller.stamp(advance), input) {
                if let Effect::Granted { token, .. } = effect {
                    assert!(Some(token) > last);
                    last = Some(token);
                }
            }
        }
    });
}

#[test]
fn tokens_rise_over_two_engines_that_share_a_sequence() {
    let tokens = Arc::new(TokenSequence::new());
    let mut shards = [World::sharing(Arc::clone(&tokens)), World::sharing(tokens)];
    let mut last = None;
    let mut dice = Seeded(1);
    for round in 0..1_000 {
        let shard = &mut shards[dice.index(2)];
        let session = shard.acquire(ms(round), "jobs", lease(1));
        let token = shard.token(session).expect("the lock was free: a lease is one round long");
        assert!(Some(token) > last);
        last = Some(token);
    }
}

#[test]
fn tokens_rise_over_threads() {
    const THREADS: usize = 4;
    const GRANTS: usize = 20_000;
    let tokens = Arc::new(TokenSequence::new());
    let shards: Vec<_> = (0..THREADS)
        .map(|_| {
            let tokens = Arc::clone(&tokens);
            std::thread::spawn(move || {
                let mut shard = World::sharing(Arc::clone(&tokens));
                let token = |grant: usize| {
                    tokens.lift_to_unix_second(grant as u64 / 5_000);
                    let session = shard.acquire(ms(0), "jobs", Lease::MAX);
                    let token = shard.token(session).expect("the lock is free");
                    shard.release(ms(0), session).unwrap();
                    shard.effects.clear();
                    token
                };
                (0..GRANTS).map(token).collect::<Vec<_>>()
            })
        })
        .collect();
    let shards: Vec<_> =
        shards.into_iter().map(|shard| shard.join().expect("a thread panics only by a failed test")).collect();
    assert!(shards.iter().all(|tokens| tokens.is_sorted()), "tokens rise in each thread");
    let mut all: Vec<_> = shards.concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), THREADS * GRANTS, "no token is granted twice");
    assert!(all.last().unwrap().get() >= 3 << 20, "and they follow the wall clock");
}

#[test]
fn a_lift_to_a_unix_second_never_lowers() {
    let tokens = TokenSequence::new();
    let next = || tokens.next().unwrap().get();
    assert_eq!((next(), next()), (1, 2));
    tokens.lift_to_unix_second(0);
    assert_eq!(next(), 3);
    tokens.lift_to_unix_second(1_700_000_000);
    assert_eq!(next(), 1_700_000_000 << 20);
    tokens.lift_to_unix_second(1_700_000_000);
    assert_eq!(next(), (1_700_000_000 << 20) + 1);
    tokens.lift_to_unix_second(1_600_000_000);
    assert_eq!(next(), (1_700_000_000 << 20) + 2);
    tokens.lift_to_unix_second(1_700_000_001);
    assert_eq!(next(), 1_700_000_001 << 20);
}

#[test]
fn a_lift_to_an_absurd_second_leaves_the_sequence_room() {
    let tokens = TokenSequence::new();
    tokens.lift_to_unix_second(u64::MAX);
    let first = tokens.next().unwrap();
    assert!(tokens.next().unwrap() > first);
    assert!(first.get() < 1 << 63);
}

#[test]
fn a_granted_session_is_told_after_the_one_it_follows() {
    let mut world = World::new();
    let first = world.acquire(ms(0), "jobs", lease(10));
    let second = world.acquire(ms(0), "jobs", lease(20));
    world.effects();
    world.release(ms(1), first).unwrap();
    let effects = world.effects();
    assert!(matches!(effects[0], Effect::Released { session, .. } if session == first));
    assert_eq!(granted(&effects), [second]);
}

#[test]
fn an_engine_can_be_moved_to_another_thread() {
    fn can_be_sent<T: Send + Sync>() {}
    can_be_sent::<Engine>();
    can_be_sent::<Effects>();
}
