//! Coverage marks: the interesting things, counted, so that a run in which they did not happen does not pass.

/// What is counted, and the number of seeds from which on it must have happened: many times as many as it takes.
const ALL: &[(&str, u64)] = &[
    ("bytes for an end that is gone", 2000),
    ("claim queued while nothing is granted", 2000),
    ("client killed", 2000),
    ("client lost its power", 2000),
    ("client machine asleep", 2000),
    ("clock behind its past at a start without a token file", 2000),
    ("clock slewed", 2000),
    ("connection forgotten on the way", 2000),
    ("connection refused", 2000),
    ("controlled stop under a holder", 2000),
    ("first frame overdue", 2000),
    ("forced release", 2000),
    ("grant to a dead connection", 6000),
    ("grant to a waiter that is gone", 2000),
    ("granted before the last holder noticed its loss", 2000),
    ("half-close", 2000),
    ("heartbeat too late", 2000),
    ("holder dropped by expiry", 2000),
    ("holder gave up", 2000),
    ("holder gave up while the server still counted it", 2000),
    ("holder kept its claim over a failed socket", 2000),
    ("holder lost its connection", 2000),
    ("holder paused", 2000),
    ("kick", 2000),
    ("late reply after giving up", 2000),
    ("lease too long", 2000),
    ("max_hold passed", 2000),
    ("no answer within the connect timeout", 2000),
    ("overlap across a restart", 2000),
    ("overlap after a forced release", 2000),
    ("packet lost", 2000),
    ("partition both ways", 2000),
    ("partition one way", 2000),
    ("protocol error told", 2000),
    ("push crosses a heartbeat", 2000),
    ("release", 2000),
    ("reply lost", 2000),
    ("reset by a close with unread bytes", 2000),
    ("reset that only the client heard", 2000),
    ("restart under a holder", 2000),
    ("server lost its power", 2000),
    ("server machine asleep", 2000),
    ("server process ended", 2000),
    ("server went on after a pause", 2000),
    ("socket of a claim failed", 2000),
    ("stale write of a believer refused", 6000),
    ("stale write refused", 2000),
    ("system gave the peer up", 2000),
    ("token file not written", 6000),
    ("token file used at a restart", 2000),
    ("tokens spent, and reserved anew", 2000),
    ("told of a controlled stop", 2000),
    ("torn frame at the client", 2000),
    ("torn frame at the server", 2000),
    ("try found the lock taken", 2000),
    ("wait limit passed in the queue", 2000),
    ("waiter dropped by expiry", 2000),
    ("waiter gave up in the queue", 2000),
    ("waiter left the queue", 2000),
    ("wall clock stepped back", 6000),
    ("wall clock stepped back over a restart", 2000),
    ("wall clock stepped forward", 2000),
    ("wall clock stepped forward over a restart", 2000),
    ("write let in", 2000),
    ("write refused since the clock went back", 2000),
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
