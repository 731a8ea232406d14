//! What went wrong for users of other lock services (`SCENARIOS.md`), as far as the engine can show it.

use std::sync::Arc;
use std::time::Duration;

use monolock_core::{Effect, Lease, ReleaseReason, SessionId, Timestamp, TokenSequence};

use crate::model::agree;
use crate::story::{Advance, Dice, Input, Pick, Seeded, Step, Story};
use crate::world::{World, granted, lease, ms};

#[test]
fn b16_after_many_waiters_died_the_next_living_one_is_next() {
    let mut dice = Seeded(16);
    let mut world = World::new();
    let holder = world.acquire(ms(0), "jobs", Lease::MAX);
    let mut waiters: Vec<_> = (0..1000).map(|_| world.acquire(ms(0), "jobs", Lease::MAX)).collect();
    for _ in 0..500 {
        let killed = waiters.remove(dice.index(waiters.len()));
        world.release(ms(1), killed).unwrap();
    }
    assert_eq!(world.queue("jobs"), waiters);
    world.effects.clear();
    let mut holder = holder;
    for next in waiters {
        world.release(ms(2), holder).unwrap();
        assert_eq!(granted(&world.effects()), [next]);
        holder = next;
    }
}

#[test]
fn b17_a_promoted_waiter_behind_a_black_hole_holds_for_the_rest_of_its_lease() {
    let mut world = World::new();
    let first = world.acquire(ms(0), "jobs", lease(60_000));
    let silent = world.acquire(ms(1_000), "jobs", lease(5_000));
    let next = world.acquire(ms(1_500), "jobs", lease(60_000));
    world.release(ms(4_000), first).unwrap();
    assert_eq!(world.holder("jobs"), Some(silent));
    assert_eq!(world.engine.next_deadline(), Some(ms(6_000)));
    world.tick(ms(6_000));
    assert_eq!(world.holder("jobs"), Some(next));
}

/// All stories of up to five inputs about three claims on one lock, in which sessions leave, speak, fall silent and
/// come at every moment.
#[test]
fn b18_every_small_world_agrees_with_the_model() {
    let inputs = [
        (Advance::Still, Input::Release(Pick::Living(0), ReleaseReason::Graceful)),
        (Advance::Still, Input::Release(Pick::Living(1), ReleaseReason::Graceful)),
        (Advance::ToLeaseOf(0), Input::Release(Pick::Living(1), ReleaseReason::Graceful)),
        (Advance::Still, Input::Release(Pick::Living(2), ReleaseReason::Force)),
        (Advance::Still, Input::Heartbeat(Pick::Living(0))),
        (Advance::By(Duration::from_micros(999)), Input::Heartbeat(Pick::Living(1))),
        (Advance::AfterDeadline(Duration::ZERO), Input::Tick),
        (Advance::ToLeaseOf(1), Input::Tick),
        (Advance::Still, Input::Acquire { name: 0, lease: lease(1) }),
    ];
    let acquire =
        |lease_ms| Step { advance: Advance::Still, input: Input::Acquire { name: 0, lease: lease(lease_ms) } };
    for (grace, length) in [(None, 5), (Some(ms(1)), 4)] {
        for mut world in 0..inputs.len().pow(length) {
            let mut steps = vec![acquire(2), acquire(1), acquire(2)];
            for _ in 0..length {
                let (advance, input) = inputs[world % inputs.len()];
                steps.push(Step { advance, input });
                world /= inputs.len();
            }
            agree(&Story { grace, steps }, |_| ());
        }
    }
}

#[test]
fn b18_a_waiter_that_leaves_at_its_promotion_passes_the_lock_on() {
    let mut world = World::new();
    let holder = world.acquire(ms(0), "jobs", lease(1_000));
    let leaving = world.acquire(ms(0), "jobs", lease(1_000));
    let next = world.acquire(ms(0), "jobs", lease(1_000));
    world.effects();
    world.release(ms(5), holder).unwrap();
    world.release(ms(5), leaving).unwrap();
    let effects = world.effects();
    assert_eq!(granted(&effects), [leaving, next]);
    let of_leaving = effects.iter().filter(|effect| effect.session() == leaving);
    assert_eq!(of_leaving.filter(|effect| matches!(effect, Effect::Released { .. })).count(), 1);
}

#[test]
fn b19_a_waiter_that_falls_silent_is_dropped_and_never_granted() {
    let mut world = World::new();
    let holder = world.acquire(ms(0), "jobs", Lease::MAX);
    let silent = world.acquire(ms(0), "jobs", lease(300));
    let living = world.acquire(ms(0), "jobs", lease(300));
    for now in (100..1_000).step_by(100) {
        world.heartbeat(ms(now), living).unwrap();
    }
    world.release(ms(1_000), holder).unwrap();
    let effects = world.effects();
    assert_eq!(granted(&effects), [holder, living]);
    let dropped = Effect::Withdrawn {
        session: silent,
        name: "jobs".parse().unwrap(),
        waited: Duration::from_millis(300),
        reason: ReleaseReason::Expired,
    };
    assert!(effects.contains(&dropped));
}

#[test]
fn b20_waiters_that_are_heard_stay_in_order_for_a_day() {
    const LEASES: [u32; 4] = [10_000, 1_000, 3_600_000, 7_777];
    let mut world = World::new();
    let sessions = LEASES.map(|lease_ms| world.acquire(ms(0), "jobs", lease(lease_ms)));
    world.effects();
    let mut next_beat = LEASES.map(|lease_ms| u64::from(lease_ms) / 4);
    loop {
        let (at, &now) = next_beat.iter().enumerate().min_by_key(|&(_, &beat)| beat).unwrap();
        if now > 24 * 3_600_000 {
            break;
        }
        world.heartbeat(ms(now), sessions[at]).unwrap();
        next_beat[at] += u64::from(LEASES[at]) / 4;
        let effects = world.effects();
        assert!(matches!(effects[..], [Effect::Confirmed { session, .. }] if session == sessions[at]), "{effects:?}");
    }
    assert_eq!(world.holder("jobs"), Some(sessions[0]));
    assert_eq!(world.queue("jobs"), sessions[1..]);
}

#[test]
fn b21_a_release_and_a_claim_in_one_instant_never_leave_a_free_lock_with_a_queue() {
    let mut world = World::new();
    let mut holder = world.acquire(ms(0), "jobs", lease(1_000));
    for round in 0..1_000_000_u64 {
        let now = Timestamp::from_nanos(round * 1_000);
        // Once the newcomer is before the release, once after it; the queue is empty or not in turn.
        let newcomer = if round % 2 == 0 { Some(world.acquire(now, "jobs", lease(1_000))) } else { None };
        world.release(now, holder).unwrap();
        holder = newcomer.unwrap_or_else(|| world.acquire(now, "jobs", lease(1_000)));
        let standing = world.token(holder);
        assert!(standing.is_some(), "round {round}: the only claim does not own the lock");
        world.effects.clear();
    }
}

#[test]
fn b22_one_release_before_five_thousand_waiters_is_one_grant() {
    let effects_of_release = |waiters: usize| {
        let mut world = World::new();
        let holder = world.acquire(ms(0), "jobs", Lease::MAX);
        let waiters: Vec<_> = (0..waiters).map(|_| world.acquire(ms(0), "jobs", Lease::MAX)).collect();
        world.effects();
        world.release(ms(1), holder).unwrap();
        let effects = world.effects();
        assert_eq!(granted(&effects), waiters[..1]);
        effects.len()
    };
    assert_eq!(effects_of_release(5_000), effects_of_release(1));
}

#[test]
fn b23_leases_of_all_lengths_expire_on_time_after_few_wake_ups() {
    let leases = [86_400_000, 10_000, 50, 1, u32::MAX];
    let mut world = World::new();
    let sessions: Vec<_> = leases
        .iter()
        .enumerate()
        .map(|(number, &lease_ms)| world.acquire(ms(3), &format!("lock {number}"), lease(lease_ms)))
        .collect();
    world.effects();
    let (mut ended, mut wake_ups) = (Vec::new(), 0);
    while let Some(deadline) = world.engine.next_deadline() {
        world.tick(deadline);
        wake_ups += 1;
        ended.extend(world.effects().into_iter().map(|effect| (deadline, effect.session())));
    }
    let mut expected: Vec<_> =
        leases.iter().zip(sessions).map(|(&lease_ms, session)| (ms(3 + u64::from(lease_ms)), session)).collect();
    expected.sort_by_key(|&(deadline, _)| deadline);
    assert_eq!(ended, expected);
    assert!(wake_ups <= 2 * leases.len(), "{wake_ups} wake-ups");
}

#[test]
fn b25_a_reused_index_never_leads_to_another_session() {
    let mut world = World::new();
    let mut stale: Vec<SessionId> = Vec::new();
    let mut reused = 0;
    for round in 0..2_000 {
        let now = ms(round);
        let living = world.acquire(now, "jobs", lease(1_000));
        reused += usize::from(stale.iter().any(|old| old.index() == living.index()));
        for &old in stale.iter().rev().take(4) {
            assert_ne!(old, living);
            assert!(world.heartbeat(now, old).is_err());
            assert!(world.engine.release(now, old, ReleaseReason::Force, &mut world.effects).is_err());
            assert!(world.engine.session(old).is_none());
        }
        assert_eq!(world.holder("jobs"), Some(living));
        world.release(now, living).unwrap();
        stale.push(living);
    }
    assert!(reused > 1_900, "an index that is never reused proves nothing");
}

/// What can end one session in one instant.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Expiry,
    Force,
    Disconnect,
    Shutdown,
}

const ENDS: [End; 4] = [End::Expiry, End::Force, End::Disconnect, End::Shutdown];

#[test]
fn b26_of_all_ends_in_the_instant_of_the_deadline_the_lease_comes_first() {
    for order in permutations(&ENDS) {
        assert_eq!(reasons(&order, ms(10)), [ReleaseReason::Expired], "{order:?}");
    }
}

#[test]
fn b26_of_all_ends_before_the_deadline_the_first_input_counts() {
    for order in permutations(&ENDS) {
        let first = order.iter().find(|&&end| end != End::Expiry).unwrap();
        let expected = match first {
            End::Force => ReleaseReason::Force,
            End::Disconnect => ReleaseReason::Graceful,
            End::Expiry | End::Shutdown => ReleaseReason::Shutdown,
        };
        assert_eq!(reasons(&order, ms(9)), [expected], "{order:?}");
    }
}

/// Why a session with a lease of 10 ms was released, when all of `order` happens `now`; the lock is passed on unless
/// all is over.
fn reasons(order: &[End], now: Timestamp) -> Vec<ReleaseReason> {
    let mut world = World::new();
    let holder = world.acquire(ms(0), "jobs", lease(10));
    let waiter = world.acquire(ms(0), "jobs", lease(1_000));
    for end in order {
        let (engine, effects) = (&mut world.engine, &mut world.effects);
        match end {
            End::Expiry => engine.tick(now, effects),
            End::Force => drop(engine.release(now, holder, ReleaseReason::Force, effects)),
            End::Disconnect => drop(engine.release(now, holder, ReleaseReason::Graceful, effects)),
            End::Shutdown => engine.close(now, effects),
        }
    }
    let effects = world.effects();
    let ended_twice = effects.iter().filter(|effect| effect.session() == waiter);
    assert!(
        ended_twice.filter(|effect| matches!(effect, Effect::Released { .. } | Effect::Withdrawn { .. })).count() <= 1
    );
    let reason = |effect: &Effect| match effect {
        Effect::Released { session, reason, .. } if *session == holder => Some(*reason),
        Effect::Granted { .. }
        | Effect::Queued { .. }
        | Effect::Confirmed { .. }
        | Effect::Released { .. }
        | Effect::Withdrawn { .. } => None,
    };
    effects.iter().filter_map(reason).collect()
}

fn permutations(ends: &[End]) -> Vec<Vec<End>> {
    let [first, rest @ ..] = ends else { return vec![Vec::new()] };
    let places = |order: Vec<End>| (0..=order.len()).map(move |at| [&order[..at], &[*first], &order[at..]].concat());
    permutations(rest).into_iter().flat_map(places).collect()
}

#[test]
fn b34_a_wall_clock_that_leaps_moves_no_deadline() {
    let tokens = Arc::new(TokenSequence::new());
    let mut world = World::sharing(Arc::clone(&tokens));
    let now = 1_700_000_000;
    tokens.lift_to_unix_second(now);
    let holder = world.acquire(ms(0), "jobs", lease(1_000));
    let waiter = world.acquire(ms(0), "jobs", lease(2_000));
    let mut last = world.token(holder).unwrap();
    for (second, at) in [(now + 3_600, 100), (now - 3_600, 200), (now + 315_360_000, 300), (now - 315_360_000, 400)] {
        tokens.lift_to_unix_second(second);
        world.tick(ms(at));
        assert_eq!(world.holder("jobs"), Some(holder));
        assert_eq!(world.engine.next_deadline(), Some(ms(1_000)));
        let other = world.acquire(ms(at), "other", lease(1));
        assert!(world.token(other).unwrap() > last, "tokens rise whatever the wall clock does");
        last = world.token(other).unwrap();
    }
    world.effects();
    world.tick(ms(1_000));
    let held = world.effects().into_iter().find_map(|effect| match effect {
        Effect::Released { session, held, .. } if session == holder => Some(held),
        Effect::Granted { .. }
        | Effect::Queued { .. }
        | Effect::Confirmed { .. }
        | Effect::Released { .. }
        | Effect::Withdrawn { .. } => None,
    });
    assert_eq!(held, Some(Duration::from_secs(1)));
    assert_eq!(world.holder("jobs"), Some(waiter));
}

#[test]
fn b35_ten_million_grants_in_a_second_still_rise_and_the_clock_catches_up() {
    let tokens = TokenSequence::new();
    tokens.lift_to_unix_second(1_700_000_000);
    let first = tokens.next().unwrap();
    let last = (1..10_000_000).fold(first, |last, _| {
        let next = tokens.next().unwrap();
        assert!(next > last);
        next
    });
    assert_eq!(last.get(), (1_700_000_000 << 20) + 9_999_999);
    tokens.lift_to_unix_second(1_700_000_001);
    assert!(tokens.next().unwrap() > last, "the next second is below: the sequence goes on by itself");
    tokens.lift_to_unix_second(1_700_000_010);
    assert_eq!(tokens.next().unwrap().get(), 1_700_000_010 << 20);
}

/// A restart is a new sequence: only the wall clock tells it about the old one.
#[test]
fn b35_what_a_restart_keeps_and_what_it_does_not() {
    let restarted_at = |second| {
        let tokens = TokenSequence::new();
        tokens.lift_to_unix_second(second);
        tokens.next().unwrap()
    };
    let last_before = restarted_at(1_700_000_000);
    assert!(restarted_at(1_700_000_001) > last_before, "a second later: larger");
    assert!(
        restarted_at(1_700_000_000) <= last_before,
        "in the same second nothing is promised: a driver waits for the next"
    );
    assert!(
        restarted_at(1_700_000_000 - 3_600) < last_before,
        "with the clock an hour back nothing is promised either"
    );
}

#[test]
fn b59_tokens_are_exact_in_javascript_until_2242() {
    let tokens = TokenSequence::new();
    let first_second_of_2242 = 8_583_494_400;
    tokens.lift_to_unix_second(first_second_of_2242);
    assert!(tokens.next().unwrap().get() < 1 << 53);
}
