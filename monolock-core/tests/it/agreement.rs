//! The engine and its naive model agree on more than a million steps of random stories.
//!
//! The seeds are the same in every run. `MONOLOCK_STORIES` tells more of them or fewer, `MONOLOCK_SEED` the one that
//! failed; a story that fails is shrunk before it is shown.

use std::time::Duration;

use monolock_core::{Effect, Effects, ReleaseReason};
use proptest::prelude::*;

use crate::model::agree;
use crate::story::{Bytes, Seeded, Story};

/// How many stories are told, unless `MONOLOCK_STORIES` says otherwise.
const STORIES: u64 = 24_000;

/// How many steps they have together, at least.
const STEPS_IN_ALL: usize = 1_300_000;

/// Lengths of stories: short ones are many different beginnings, long ones see memory reused.
const STEPS: [usize; 6] = [8, 16, 24, 40, 60, 200];

#[test]
fn engine_and_model_agree_on_every_even_story() {
    tell_stories(0);
}

#[test]
fn engine_and_model_agree_on_every_odd_story() {
    tell_stories(1);
}

proptest! {
    /// What a fuzzer asks, with less patience.
    #[test]
    fn any_bytes_tell_a_story_on_which_they_agree(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        agree(&Story::draw(&mut Bytes(&bytes), bytes.len() / 4), |_| ());
    }
}

/// More sessions than one page of their store holds.
#[test]
fn engine_and_model_agree_on_long_stories_of_many_sessions() {
    let (mut living, mut most) = (0_usize, 0);
    for seed in 0..20 {
        agree(&Story::draw(&mut Seeded(seed), 1_500), |effects| {
            for effect in effects {
                match effect {
                    Effect::Granted { waited: Duration::ZERO, .. } | Effect::Queued { .. } => living += 1,
                    Effect::Granted { .. } | Effect::Confirmed { .. } => {}
                    Effect::Released { .. } | Effect::Withdrawn { .. } => living -= 1,
                }
            }
            most = most.max(living);
        });
        living = 0;
    }
    assert!(most > 256, "never more than {most} sessions lived");
}

/// Stories that never reach a corner prove nothing about it.
#[test]
fn stories_reach_every_corner() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..400 {
        agree(&draw(seed), |effects| seen.extend(corners(effects)));
    }
    let reasons = ReleaseReason::ALL.map(ReleaseReason::as_str);
    let mut wanted: Vec<_> =
        reasons.iter().flat_map(|why| [format!("released {why}"), format!("withdrawn {why}")]).collect();
    wanted.extend(
        ["granted", "promoted", "queued", "confirmed", "out of time at its turn", "many at once"].map(String::from),
    );
    let missing: Vec<_> = wanted.iter().filter(|corner| !seen.contains(*corner)).collect();
    assert!(missing.is_empty(), "never seen: {missing:?}");
}

fn corners(effects: &Effects) -> Vec<String> {
    let mut corners: Vec<_> = effects
        .iter()
        .map(|effect| match effect {
            Effect::Granted { waited: Duration::ZERO, .. } => "granted".into(),
            Effect::Granted { .. } => "promoted".into(),
            Effect::Queued { .. } => "queued".into(),
            Effect::Confirmed { .. } => "confirmed".into(),
            Effect::Released { reason, .. } => format!("released {reason}"),
            Effect::Withdrawn { reason, .. } => format!("withdrawn {reason}"),
        })
        .collect();
    if corners.windows(3).any(|run| run == ["released expired", "withdrawn expired", "promoted"]) {
        corners.push("out of time at its turn".into());
    }
    if corners.len() > 10 {
        corners.push("many at once".into());
    }
    corners
}

fn tell_stories(half: u64) {
    let number = |name| std::env::var(name).ok().map(|text: String| text.parse::<u64>().expect("it is a number"));
    if let Some(seed) = number("MONOLOCK_SEED") {
        tell(seed);
        return;
    }
    let stories = number("MONOLOCK_STORIES");
    let told: usize = (half..stories.unwrap_or(STORIES)).step_by(2).map(tell).sum();
    assert!(stories.is_some() || told >= STEPS_IN_ALL / 2, "only {told} steps were told");
}

fn tell(seed: u64) -> usize {
    let story = draw(seed);
    if fails(&story) {
        let shrunk = story.shrunk(fails);
        eprintln!("a story on which the engine and its model differ:\n{shrunk}");
        eprintln!("to repeat it: MONOLOCK_SEED={seed} cargo test -p monolock-core --test it agreement::");
        agree(&shrunk, |_| ());
        unreachable!("the story failed a moment ago");
    }
    story.steps.len()
}

fn draw(seed: u64) -> Story {
    let steps = seed / 2 % STEPS.len() as u64;
    Story::draw(&mut Seeded(seed), STEPS[usize::try_from(steps).unwrap()])
}

/// The message of the panic is wanted once, for the shortest story.
fn fails(story: &Story) -> bool {
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                loud(info);
            }
        }));
    });
    QUIET.set(true);
    let failed = std::panic::catch_unwind(|| agree(story, |_| ())).is_err();
    QUIET.set(false);
    failed
}

std::thread_local! {
    /// Whether a panic of this thread prints nothing.
    static QUIET: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}
