//! Where every draw of a world comes from.
//!
//! The generator is PCG-XSL-RR 128/64 (MCG), whose output is fixed by its definition; what is made of it here uses
//! integers alone, so a seed means the same world on every machine and with every compiler.

use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;

/// The draws of one world.
#[derive(Clone, Debug)]
pub(crate) struct Rng(Pcg64Mcg);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        // Neighbouring seeds are far apart in the generator's states.
        let mut rng = Self(Pcg64Mcg::new(u128::from(seed) << 64 | u128::from(seed ^ 0x9e37_79b9_7f4a_7c15)));
        (0..4).for_each(|_| {
            rng.next();
        });
        rng
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `end`; 0 below 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        u64::try_from((u128::from(self.next()) * u128::from(end)) >> 64).expect("the upper half is empty")
    }

    /// An index into something of this length.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("it is below a length")
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// A number from `low` to `high`, each order of magnitude (of two) as likely as another. `low` is not 0.
    pub(crate) fn magnitude(&mut self, low: u64, high: u64) -> u64 {
        let (from, to) = (low.ilog2(), high.ilog2());
        let exponent = self.between(u64::from(from), u64::from(to));
        let start = 1_u64 << exponent;
        self.between(start, start.saturating_mul(2) - 1).clamp(low, high)
    }

    /// Yes in so many cases of a thousand.
    pub(crate) fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.index(last + 1);
            items.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    /// The numbers come from the generator's definition, calculated elsewhere: a seed keeps its meaning.
    #[test]
    fn a_seed_means_the_same_numbers_for_ever() {
        let mut rng = Rng::new(7);
        let numbers = [rng.next(), rng.next(), rng.next()];
        assert_eq!(numbers, [0xe99c_167a_0d40_7b64, 0xb4c6_86f1_1179_a463, 0x6cde_8057_4b5f_6f96]);
    }

    #[test]
    fn draws_stay_within_their_bounds_and_reach_them() {
        let mut rng = Rng::new(0);
        let draws: Vec<u64> = (0..1000).map(|_| rng.between(3, 6)).collect();
        assert!((3..=6).all(|number| draws.contains(&number)) && draws.iter().all(|draw| (3..=6).contains(draw)));
        assert!((0..1000).map(|_| rng.magnitude(5, 9)).all(|draw| (5..=9).contains(&draw)));
        assert_eq!(rng.below(0), 0);
        assert!(!rng.chance(0) && rng.chance(1000));
    }
}
