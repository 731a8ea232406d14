// Randomness that can be repeated: a seed is printed where a test that uses it fails.

/** Runs `check(random)` with so many seeds, or with the one that MONOLOCK_SEED names. `random()` is uniform from 0 to 1. */
export function withSeeds(count, check) {
  const named = process.env.MONOLOCK_SEED;
  const first = named === undefined ? (Math.random() * 2 ** 31) >>> 0 : Number(named);
  for (let seed = first; seed < first + (named === undefined ? count : 1); seed++) {
    try {
      check(mulberry32(seed));
    } catch (error) {
      error.message += `\nrepeat with: MONOLOCK_SEED=${seed} npm run test:run`;
      throw error;
    }
  }
}

function mulberry32(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
