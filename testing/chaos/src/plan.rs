//! Which faults a seed brings, in which order and how hard. The plan is the same for the same seed; what the kernel
//! makes of it is not.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;

/// The locks that the workers claim; a fault of a client is about the holder of one of them.
pub const LOCKS: [&str; 3] = ["red", "green", "blue"];

/// The leases that workers choose from, in milliseconds.
pub const LEASES_MS: [u64; 3] = [1000, 1300, 1700];

/// The longest lease that the server allows, and its grace where it has one, in milliseconds.
pub const LONGEST_LEASE_MS: u64 = 2000;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// All packets between a client and the server vanish.
    CutBoth,
    /// Packets to the server vanish.
    CutToServer,
    /// Packets to the client vanish.
    CutToClient,
    /// A share of the packets vanishes, drawn at random.
    Loss,
    /// Packets to the server are answered with a reset.
    Reset,
    /// The client's cable is pulled.
    LinkDown,
    /// Bytes arrive late.
    Delay,
    /// Bytes stay in the middle.
    Stall,
    /// The way to the client is closed, the way to the server is not.
    HalfClose,
    /// The client's connection is reset, the server's is not.
    ProxyReset,
    /// Bytes arrive one at a time.
    Dribble,
    /// A client is killed.
    KillClient,
    /// A client is stopped, and goes on.
    PauseClient,
    /// The server is stopped, and goes on.
    PauseServer,
    /// The server stops in good order and is started again.
    StopServer,
    /// The server is killed and started again.
    CrashServer,
    /// The server is killed and started again with a grace and a token file.
    CrashGrace,
    /// The server is killed, and its address goes to another machine, where a server starts with a grace.
    FailoverCrash,
    /// The same, and the server lives: its machine's cable is pulled.
    FailoverCut,
    /// The server's wall clock steps.
    ClockStep,
    /// More connections than the server has descriptors for.
    Descriptors,
    /// A crowd connects and says nothing.
    MuteCrowd,
}

/// What a fault is done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A holder that is connected to the server itself.
    DirectHolder,
    /// A holder that is connected through the proxy.
    ProxiedHolder,
    /// Any holder.
    Holder,
    /// The server.
    Server,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::DirectHolder => "a holder",
            Self::ProxiedHolder => "a holder behind the proxy",
            Self::Holder => "any holder",
            Self::Server => "the server",
        })
    }
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 22] = [
        Self::CutBoth,
        Self::CutToServer,
        Self::CutToClient,
        Self::Loss,
        Self::Reset,
        Self::LinkDown,
        Self::Delay,
        Self::Stall,
        Self::HalfClose,
        Self::ProxyReset,
        Self::Dribble,
        Self::KillClient,
        Self::PauseClient,
        Self::PauseServer,
        Self::StopServer,
        Self::CrashServer,
        Self::CrashGrace,
        Self::FailoverCrash,
        Self::FailoverCut,
        Self::ClockStep,
        Self::Descriptors,
        Self::MuteCrowd,
    ];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CutBoth => "cut-both",
            Self::CutToServer => "cut-to-server",
            Self::CutToClient => "cut-to-client",
            Self::Loss => "loss",
            Self::Reset => "reset",
            Self::LinkDown => "link-down",
            Self::Delay => "delay",
            Self::Stall => "stall",
            Self::HalfClose => "half-close",
            Self::ProxyReset => "proxy-reset",
            Self::Dribble => "dribble",
            Self::KillClient => "kill-client",
            Self::PauseClient => "pause-client",
            Self::PauseServer => "pause-server",
            Self::StopServer => "stop-server",
            Self::CrashServer => "crash-server",
            Self::CrashGrace => "crash-grace",
            Self::FailoverCrash => "failover-crash",
            Self::FailoverCut => "failover-cut",
            Self::ClockStep => "clock-step",
            Self::Descriptors => "descriptors",
            Self::MuteCrowd => "mute-crowd",
        }
    }

    /// What it is done to.
    pub const fn target(self) -> Target {
        match self {
            Self::CutBoth | Self::CutToServer | Self::CutToClient | Self::Loss | Self::Reset | Self::LinkDown => {
                Target::DirectHolder
            }
            Self::Delay | Self::Stall | Self::HalfClose | Self::ProxyReset | Self::Dribble => Target::ProxiedHolder,
            Self::KillClient | Self::PauseClient => Target::Holder,
            Self::PauseServer
            | Self::StopServer
            | Self::CrashServer
            | Self::CrashGrace
            | Self::FailoverCrash
            | Self::FailoverCut
            | Self::ClockStep
            | Self::Descriptors
            | Self::MuteCrowd => Target::Server,
        }
    }

    /// Whether a holder under it loses its lock, or dies.
    pub const fn costs_the_lock(self) -> bool {
        match self {
            Self::CutBoth
            | Self::CutToServer
            | Self::CutToClient
            | Self::Reset
            | Self::LinkDown
            | Self::Stall
            | Self::HalfClose
            | Self::ProxyReset
            | Self::KillClient
            | Self::PauseClient
            | Self::PauseServer
            | Self::StopServer
            | Self::CrashServer
            | Self::CrashGrace
            | Self::FailoverCrash
            | Self::FailoverCut => true,
            Self::Loss | Self::Delay | Self::Dribble | Self::ClockStep | Self::Descriptors | Self::MuteCrowd => false,
        }
    }

    /// Whether it costs the lock only where it lasts.
    pub const fn may_be_brief(self) -> bool {
        matches!(
            self,
            Self::CutBoth
                | Self::CutToServer
                | Self::CutToClient
                | Self::LinkDown
                | Self::Stall
                | Self::PauseClient
                | Self::PauseServer
        )
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Class {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|class| class.as_str() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|class| class.as_str()).collect();
            format!("there are the classes {}", names.join(", "))
        })
    }
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// Its number in the run, from 1.
    pub number: u32,
    /// What is done.
    pub class: Class,
    /// Whose holder it is done to, an index into [`LOCKS`].
    pub lock: usize,
    /// How long it lasts, in hundredths of the holder's lease.
    pub percent: u64,
    /// How hard: any number, of which the class takes what it needs.
    pub dice: u64,
}

impl Fault {
    /// Whether it is over before a client has to give up.
    pub const fn is_brief(&self) -> bool {
        self.percent < 80
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, class, lock, percent, dice } = self;
        match class.target() {
            Target::Server => write!(f, "#{number} {class}, {percent} % of a lease, {dice}"),
            Target::DirectHolder | Target::ProxiedHolder | Target::Holder => {
                write!(f, "#{number} {class} of the holder of {}, {percent} % of its lease, {dice}", LOCKS[*lock])
            }
        }
    }
}

/// Faults that are there at one time.
pub type Slot = Vec<Fault>;

/// All faults of a run, in slots, without end.
///
/// In each round each chosen class comes once. In the first the server and the clients have theirs apart; after it they
/// come together more often than not.
#[derive(Clone, Debug)]
pub struct Plan {
    random: fastrand::Rng,
    classes: Vec<Class>,
    rounds: u32,
    faults: u32,
    slots: VecDeque<Slot>,
}

impl Plan {
    /// The plan of a seed, of these classes alone.
    pub fn new(seed: u64, classes: &[Class]) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self { random, classes: classes.to_vec(), rounds: 0, faults: 0, slots: VecDeque::new() }
    }

    /// How many rounds are used up.
    pub fn whole_rounds(&self) -> u32 {
        if self.slots.is_empty() { self.rounds } else { self.rounds - 1 }
    }

    fn begin_round(&mut self) {
        self.rounds += 1;
        let mut classes = self.classes.clone();
        self.random.shuffle(&mut classes);
        let (server, clients): (Vec<_>, Vec<_>) =
            classes.into_iter().partition(|class| class.target() == Target::Server);
        let mut slots: Vec<Slot> = Vec::new();
        for together in clients.chunks(LOCKS.len()) {
            let mut locks: Vec<usize> = (0..LOCKS.len()).collect();
            self.random.shuffle(&mut locks);
            slots.push(together.iter().zip(locks).map(|(class, lock)| self.draw(*class, lock)).collect());
        }
        for class in server {
            let fault = self.draw(class, 0);
            let joined = self.rounds > 1 && self.random.u32(..100) < 60;
            let place = self.random.usize(..slots.len().max(1));
            match slots.get_mut(place) {
                Some(slot) if joined && slot.iter().all(|fault| fault.class.target() != Target::Server) => {
                    slot.push(fault);
                }
                Some(_) | None => slots.push(vec![fault]),
            }
        }
        self.random.shuffle(&mut slots);
        // In the order of their numbers, which is that of the story.
        for slot in &mut slots {
            for fault in slot {
                self.faults += 1;
                fault.number = self.faults;
            }
        }
        self.slots.extend(slots);
    }

    fn draw(&mut self, class: Class, lock: usize) -> Fault {
        let is_brief = self.rounds > 1 && class.may_be_brief() && self.random.u32(..100) < 25;
        let percent = if is_brief { self.random.u64(10..70) } else { self.random.u64(110..170) };
        Fault { number: 0, class, lock, percent, dice: self.random.u64(..1_000_000) }
    }
}

impl Iterator for Plan {
    type Item = Slot;

    fn next(&mut self) -> Option<Slot> {
        if self.classes.is_empty() {
            return None;
        }
        if self.slots.is_empty() {
            self.begin_round();
        }
        self.slots.pop_front()
    }
}
