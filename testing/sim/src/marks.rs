//! Coverage marks: the interesting things, counted, so that a run in which they did not happen does not pass.

/// What is counted, and the number of seeds from which on it must have happened.
const ALL: &[(&str, u64)] = &[
    ("bytes for an end that is gone", 1000),
    ("claim queued while nothing is granted", 1000),
    ("client killed", 1000),
    ("client lost its power", 1000),
    ("client machine asleep", 1000),
    ("clock behind its past at a start without a token file", 1000),
    ("clock slewed", 1000),
    ("connection forgotten on the way", 1000),
    ("connection refused", 1000),
    ("controlled stop under a holder", 1000),
    ("first frame overdue", 1000),
    ("forced release", 1000),
    ("grant to a dead connection", 1000),
    ("grant to a waiter that is gone", 1000),
    ("granted before the last holder noticed its loss", 1000),
    ("half-close", 1000),
    ("heartbeat too late", 1000),
    ("holder dropped by expiry", 1000),
    ("holder gave up", 1000),
    ("holder gave up while the server still counted it", 1000),
    ("holder kept its claim over a failed socket", 1000),
    ("holder lost its connection", 1000),
    ("holder paused", 1000),
    ("kick", 1000),
    ("late reply after giving up", 1000),
    ("lease too long", 1000),
    ("max_hold passed", 1000),
    ("no answer within the connect timeout", 1000),
    ("overlap across a restart", 1000),
    ("overlap after a forced release", 1000),
    ("packet lost", 1000),
    ("partition both ways", 1000),
    ("partition one way", 1000),
    ("protocol error told", 1000),
    ("push crosses a heartbeat", 1000),
    ("release", 1000),
    ("reply lost", 1000),
    ("reset by a close with unread bytes", 1000),
    ("reset that only the client heard", 1000),
    ("restart under a holder", 1000),
    ("server lost its power", 1000),
    ("server machine asleep", 1000),
    ("server process ended", 1000),
    ("server went on after a pause", 1000),
    ("socket of a claim failed", 1000),
    ("stale write of a believer refused", 1000),
    ("stale write refused", 1000),
    ("system gave the peer up", 1000),
    ("token file not written", 1000),
    ("token file used at a restart", 1000),
    ("tokens spent, and reserved anew", 1000),
    ("told of a controlled stop", 1000),
    ("torn frame at the client", 1000),
    ("torn frame at the server", 1000),
    ("try found the lock taken", 1000),
    ("wait limit passed in the queue", 1000),
    ("waiter dropped by expiry", 1000),
    ("waiter gave up in the queue", 1000),
    ("waiter left the queue", 1000),
    ("wall clock stepped back", 1000),
    ("wall clock stepped back over a restart", 1000),
    ("wall clock stepped forward", 1000),
    ("wall clock stepped forward over a restart", 1000),
    ("write let in", 1000),
    ("write refused since the clock went back", 1000),
];

/// The index of a mark; unknown names do not compile.
macro_rules! mark {
    ($name:literal) => {
        const { $crate::marks::index($name) }
    };
}
pub(crate) use mark;

/// How often each of the interesting things happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks([u64; ALL.len()]);

/// One line of the table of marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// What happened.
    pub name: &'static str,
    /// How often.
    pub count: u64,
    /// From how many seeds on it must have happened.
    pub due_from: u64,
}

impl Marks {
    pub(crate) fn hit(&mut self, index: usize) {
        self.0[index] += 1;
    }

    /// Adds the counts of another world, or of many.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(count, more)| *count += more);
    }

    /// All marks, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = Mark> {
        ALL.iter().zip(&self.0).map(|(&(name, due_from), &count)| Mark { name, count, due_from })
    }

    /// Those that so many seeds should have brought about and have not.
    pub fn missing(&self, seeds: u64) -> impl Iterator<Item = Mark> {
        self.iter().filter(move |mark| mark.count == 0 && seeds >= mark.due_from)
    }
}

impl Default for Marks {
    fn default() -> Self {
        Self([0; ALL.len()])
    }
}

pub(crate) const fn index(name: &str) -> usize {
    let mut at = 0;
    while at < ALL.len() {
        if is_same(ALL[at].0.as_bytes(), name.as_bytes()) {
            return at;
        }
        at += 1;
    }
    panic!("there is no such mark")
}

const fn is_same(one: &[u8], two: &[u8]) -> bool {
    if one.len() != two.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != two[at] {
            return false;
        }
        at += 1;
    }
    true
}
