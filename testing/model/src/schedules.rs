//! Runs a model in many interleavings, and says how to repeat the one that failed.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::{env, fs};

use shuttle::scheduler::{
    DfsScheduler, PctScheduler, RandomScheduler, ReplayScheduler, Scheduler, UncontrolledNondeterminismCheckScheduler,
};
use shuttle::{Config, MaxSteps, Runner};

/// How many interleavings of each model are run where nothing else is asked for.
const SCHEDULES: usize = 3000;

/// Where the choice of interleavings begins where nothing else is asked for.
const SEED: u64 = 1;

const STACK_BYTES: usize = 256 << 10;

/// A model that takes more steps turns in circles; none needs a thousand.
const STEPS: usize = 100_000;

/// The numbers of preemptions, at chosen places, that are looked for beside the wholly random choice.
const PREEMPTIONS: [usize; 3] = [2, 3, 5];

/// How the interleavings of a model are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// At random: half of them at each step, half of them with few preemptions.
    Random,
    /// One after the other, until there are no more or as many as were asked for.
    Exhaustive,
}

/// Runs a model. Variables of the environment say how:
///
/// - `MONOLOCK_SCHEDULES`: how many interleavings, 3000 by default.
/// - `MONOLOCK_SEED`: which, a number; 1 by default.
/// - `MONOLOCK_SCHEDULE`: just this one, as it was printed when it failed, or the path of a file with it.
///
/// # Panics
/// If the model fails, with the interleaving printed, and what repeats it.
pub fn check(name: &str, search: Search, model: fn()) {
    if let Ok(schedule) = env::var("MONOLOCK_SCHEDULE") {
        let schedule = if Path::new(&schedule).is_file() {
            fs::read_to_string(&schedule).expect("the file of MONOLOCK_SCHEDULE can be read")
        } else {
            schedule
        };
        run(ReplayScheduler::new_from_encoded(schedule.trim()), model);
        return;
    }
    let count = number("MONOLOCK_SCHEDULES").map_or(SCHEDULES, |count| usize::try_from(count).unwrap_or(usize::MAX));
    let seed = number("MONOLOCK_SEED").unwrap_or(SEED);
    let searched = catch_unwind(AssertUnwindSafe(|| match search {
        Search::Random => {
            let each = count / 2 / PREEMPTIONS.len();
            let few: usize = PREEMPTIONS
                .iter()
                .map(|preemptions| run(PctScheduler::new_from_seed(seed, *preemptions, each), model))
                .sum();
            let rest = RandomScheduler::new_from_seed(seed, count.saturating_sub(few));
            let checks = RandomScheduler::new_from_seed(seed, 3);
            // A model that draws on anything but the schedule could not be repeated.
            run(UncontrolledNondeterminismCheckScheduler::new(checks), model);
            few + run(rest, model)
        }
        Search::Exhaustive => run(DfsScheduler::new(Some(count), false), model),
    }));
    match searched {
        Ok(found) => println!("{name}: {found} schedules from seed {seed}"),
        Err(failure) => {
            eprintln!(
                "{name} failed. To repeat it, with the failing schedule from above (or the path of a file with it):\n\
                 MONOLOCK_SCHEDULE=… cargo test --package monolock-model --test model -- --exact {name}"
            );
            resume_unwind(failure);
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number, and not {text:?}")))
}

fn run(scheduler: impl Scheduler + 'static, model: fn()) -> usize {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.silence_warnings = true;
    config.max_steps = MaxSteps::FailAfter(STEPS);
    Runner::new(scheduler, config).run(model)
}
