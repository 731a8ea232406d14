//! Random stories: sequences of engine inputs, drawn from dice and told to whoever wants to hear them.
//!
//! A step says what it means in relation to the moment at which it is told ("the third living claim", "just before the
//! next deadline"), so any step can be left out and the rest still makes sense: that is what shrinking and fuzzing
//! need. The dice are a seed or the bytes of a fuzzer.

use std::fmt;
use std::time::Duration;

use monolock_core::{Lease, ReleaseReason, Timestamp};

/// A source of choices.
pub(crate) trait Dice {
    /// A number below `sides`, which is not zero.
    fn below(&mut self, sides: u64) -> u64;

    fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("it is below a usize")
    }

    /// Whether one of `parts` parts came up.
    fn one_in(&mut self, parts: u64) -> bool {
        self.below(parts) == 0
    }

    /// A number in `range`, its order of magnitude chosen first.
    fn magnitude(&mut self, range: std::ops::RangeInclusive<u64>) -> u64 {
        let bits = self.below(u64::from(u64::BITS - range.end().leading_zeros()) + 1);
        let top = if bits == 0 { 1 } else { u64::MAX >> (u64::from(u64::BITS) - bits) };
        self.below(top).clamp(*range.start(), *range.end())
    }
}

/// Dice that a seed determines (`SplitMix64`).
#[derive(Clone, Debug)]
pub(crate) struct Seeded(pub(crate) u64);

impl Dice for Seeded {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % sides
    }
}

/// Dice that are the bytes of a fuzzer; when they run out, every choice is the first.
#[derive(Clone, Debug)]
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl Dice for Bytes<'_> {
    fn below(&mut self, sides: u64) -> u64 {
        let wanted = usize::try_from((u64::BITS - (sides - 1).leading_zeros()).div_ceil(8)).expect("it is at most 8");
        let (taken, rest) = self.0.split_at(wanted.min(self.0.len()));
        self.0 = rest;
        taken.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)) % sides
    }
}

/// What happens to one engine, from its birth.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    /// Before this instant nothing is granted.
    pub(crate) grace: Option<Timestamp>,
    pub(crate) steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) advance: Advance,
    pub(crate) input: Input,
}

/// How the input is stamped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Advance {
    Still,
    Back(Duration),
    By(Duration),
    /// This long before what the engine wants to be ticked at.
    BeforeDeadline(Duration),
    /// This long after it, or exactly then.
    AfterDeadline(Duration),
    /// When the lease of this living claim is out, exactly.
    ToLeaseOf(usize),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Input {
    Acquire {
        name: usize,
        lease: Lease,
    },
    Heartbeat(Pick),
    Release(Pick, ReleaseReason),
    Tick,
    /// The wall clock shows this second since 1970: no input of the engine, but its tokens follow.
    Lift(u64),
    Close,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Pick {
    /// The nth of the living claims, in the order of arrival, counted round.
    Living(usize),
    /// The nth of all claims that ever were, counted back from the last and round: mostly a stale one.
    Ever(usize),
}

/// What the stories of one kind have in common, so that not all of them are alike.
#[derive(Clone, Debug)]
struct Temper {
    names: u64,
    longest_lease: u64,
    longest_step: u64,
    /// Of ten inputs about a claim, how many are heartbeats.
    patience: u64,
    /// Of a hundred steps, how many let time pass. Where few do, sessions become many.
    haste: u64,
}

/// The longest lease, in milliseconds.
const FORTY_NINE_DAYS: u64 = u32::MAX as u64;

impl Story {
    pub(crate) fn draw(dice: &mut dyn Dice, steps: usize) -> Self {
        let temper = Temper::draw(dice);
        let grace = dice.one_in(3).then(|| Timestamp::from_nanos(dice.magnitude(0..=temper.longest_step * 20)));
        let mut steps: Vec<_> = (0..steps).map(|_| temper.step(dice)).collect();
        if dice.one_in(2) {
            let close = Step { advance: temper.advance(dice), input: Input::Close };
            let end = steps.len().saturating_sub(dice.index(6));
            steps.insert(end, close);
        }
        Self { grace, steps }
    }

    /// The shortest story near this one that still fails by the same standard.
    pub(crate) fn shrunk(mut self, fails: impl Fn(&Self) -> bool) -> Self {
        if self.grace.is_some() && fails(&Self { grace: None, ..self.clone() }) {
            self.grace = None;
        }
        let mut chunk = self.steps.len().div_ceil(2);
        while chunk > 0 {
            let mut at = 0;
            let before = self.steps.len();
            while at < self.steps.len() {
                let mut shorter = self.clone();
                shorter.steps.drain(at..(at + chunk).min(self.steps.len()));
                if fails(&shorter) {
                    self = shorter;
                } else {
                    at += chunk;
                }
            }
            if chunk > 1 || self.steps.len() == before {
                chunk /= 2;
            }
        }
        self
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(until) = self.grace {
            writeln!(f, "  granting from {until:?}")?;
        }
        self.steps.iter().try_for_each(|Step { advance, input }| writeln!(f, "  {advance:?}: {input:?}"))
    }
}

impl Temper {
    fn draw(dice: &mut dyn Dice) -> Self {
        Self {
            names: [1, 1, 2, 4, 24][dice.index(5)],
            longest_lease: [1, 8, 40, 400, 10_000, 3_600_000, FORTY_NINE_DAYS][dice.index(7)],
            longest_step: [500_000, 3_000_000, 50_000_000, 1_000_000_000, 1 << 45, 1 << 54][dice.index(6)],
            patience: [2, 5, 8][dice.index(3)],
            haste: [100, 100, 30, 1][dice.index(4)],
        }
    }

    fn step(&self, dice: &mut dyn Dice) -> Step {
        let input = match dice.below(20) {
            0..8 => Input::Acquire { name: dice.index(usize::try_from(self.names).unwrap()), lease: self.lease(dice) },
            8..15 if dice.below(10) < self.patience => Input::Heartbeat(Self::pick(dice)),
            8..15 => Input::Release(Self::pick(dice), ReleaseReason::ALL[dice.index(ReleaseReason::ALL.len())]),
            15..19 => Input::Tick,
            _ => Input::Lift(dice.magnitude(0..=1 << 33)),
        };
        Step { advance: self.advance(dice), input }
    }

    fn advance(&self, dice: &mut dyn Dice) -> Advance {
        let any = |dice: &mut dyn Dice| Duration::from_nanos(dice.magnitude(0..=self.longest_step));
        if dice.below(100) >= self.haste {
            return Advance::Still;
        }
        match dice.below(16) {
            0..5 => Advance::Still,
            5 => Advance::Back(any(dice)),
            6..10 => Advance::By(any(dice)),
            10 => Advance::BeforeDeadline(Duration::from_nanos(1 + dice.magnitude(0..=self.longest_step))),
            11..13 => Advance::AfterDeadline(Duration::ZERO),
            13 => Advance::AfterDeadline(any(dice)),
            _ => Advance::ToLeaseOf(dice.index(8)),
        }
    }

    fn lease(&self, dice: &mut dyn Dice) -> Lease {
        // Few different leases make equal deadlines likely.
        let lease_ms = if dice.one_in(2) { self.longest_lease } else { dice.magnitude(1..=self.longest_lease) };
        Lease::from_millis(u32::try_from(lease_ms).unwrap()).expect("the range begins at 1")
    }

    fn pick(dice: &mut dyn Dice) -> Pick {
        if dice.one_in(6) { Pick::Ever(dice.index(256)) } else { Pick::Living(dice.index(256)) }
    }
}
