//! Patterns over names and identities: `*` is any run of characters, `?` is exactly one, the rest is literal.
//!
//! The whole text must match; case counts, nothing is normalised, `/` is like any other character. The matcher is a
//! nondeterministic automaton whose states are the bits of a few words, so a match takes time linear in the text for
//! any one pattern: no pattern can make it backtrack.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

/// Bits in one word of a state set.
const WORD_BITS: usize = u64::BITS as usize;

/// A pattern of so many words matches without asking for memory: one for a lock's name never does.
const FEW_WORDS: usize = 4;

/// A compiled pattern.
///
/// ```
/// use monolock_core::Glob;
///
/// let shards = Glob::new("shard-?/*");
/// assert!(shards.matches("shard-7/daily/import"));
/// assert!(!shards.matches("shard-12/daily"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Glob {
    pattern: alloc::string::String,
    /// How many characters a matching text has at least. State `n` means that `n` of these are matched.
    length: usize,
    /// States that any further character leaves as they are: a `*` stands there.
    looping: Vec<u64>,
    /// States that any one character advances: a `?` stands there.
    any: Vec<u64>,
    /// States that one certain character advances, sorted by it.
    literal: Vec<(char, Vec<u64>)>,
}

impl Glob {
    /// Compiles `pattern`. Every string is a pattern; the empty one matches the empty text alone.
    pub fn new(pattern: &str) -> Self {
        let length = pattern.chars().filter(|&character| character != '*').count();
        let words = length / WORD_BITS + 1;
        let mut glob =
            Self { pattern: pattern.into(), length, looping: vec![0; words], any: vec![0; words], literal: Vec::new() };
        let mut state = 0;
        for character in pattern.chars() {
            match character {
                '*' => insert(&mut glob.looping, state),
                '?' => insert(&mut glob.any, state),
                _ => insert(glob.literal_states(character), state),
            }
            state += usize::from(character != '*');
        }
        glob
    }

    /// Whether the whole of `text` matches. Takes time linear in the text, times one word operation for each 64
    /// characters of the pattern.
    pub fn matches(&self, text: &str) -> bool {
        let (mut few, mut many);
        let states = if self.looping.len() <= FEW_WORDS {
            few = [0; FEW_WORDS];
            &mut few[..self.looping.len()]
        } else {
            many = vec![0; self.looping.len()];
            &mut many[..]
        };
        insert(states, 0);
        text.chars().all(|character| self.step(states, character)) && contains(states, self.length)
    }

    /// The pattern as it was given.
    pub fn as_str(&self) -> &str {
        &self.pattern
    }

    /// Whether any state is left.
    fn step(&self, states: &mut [u64], character: char) -> bool {
        let literal = self.literal.binary_search_by_key(&character, |&(key, _)| key).ok();
        let literal = literal.map(|at| self.literal[at].1.as_slice());
        let (mut carry, mut left) = (0, 0);
        for (word, state) in states.iter_mut().enumerate() {
            let advancing = *state & (self.any[word] | literal.map_or(0, |states| states[word]));
            *state = (*state & self.looping[word]) | (advancing << 1) | carry;
            carry = advancing >> (WORD_BITS - 1);
            left |= *state;
        }
        left != 0
    }

    fn literal_states(&mut self, character: char) -> &mut [u64] {
        let words = self.looping.len();
        let at = match self.literal.binary_search_by_key(&character, |&(key, _)| key) {
            Ok(at) => at,
            Err(at) => {
                self.literal.insert(at, (character, vec![0; words]));
                at
            }
        };
        &mut self.literal[at].1
    }
}

impl fmt::Debug for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Glob").field(&self.pattern).finish()
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.pattern)
    }
}

fn insert(states: &mut [u64], state: usize) {
    states[state / WORD_BITS] |= 1 << (state % WORD_BITS);
}

fn contains(states: &[u64], state: usize) -> bool {
    states[state / WORD_BITS] & (1 << (state % WORD_BITS)) != 0
}
