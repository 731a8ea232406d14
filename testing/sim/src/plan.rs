//! What a seed decides before the world begins: how many machines, locks and claims, what weather, which faults when.

use crate::clock::{MS, SECOND, True};
use crate::rng::Rng;

/// The kind of trouble that a world sees, so that all kinds are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Nothing goes wrong but what clients do.
    Calm,
    /// Delay, jitter, loss.
    Lossy,
    /// Networks that are cut, one way and both ways, and connections that one end has forgotten.
    Partitions,
    /// Processes that stop and go on, machines that sleep, clients that die.
    Pauses,
    /// Servers that stop, crash and lose their power, with clocks that step.
    Restarts,
    /// All of it.
    Storm,
}

impl Profile {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Calm, Self::Lossy, Self::Partitions, Self::Pauses, Self::Restarts, Self::Storm];

    /// That of a seed's world.
    pub fn of(seed: u64) -> Self {
        Self::ALL[usize::try_from(seed % 6).expect("it is below 6")]
    }

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::Lossy => "lossy",
            Self::Partitions => "partitions",
            Self::Pauses => "pauses",
            Self::Restarts => "restarts",
            Self::Storm => "storm",
        }
    }
}

/// Everything about a world that does not change in it.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) profile: Profile,
    /// When the faults end.
    pub(crate) heals_at: True,
    pub(crate) locks: usize,
    pub(crate) hosts: Vec<HostPlan>,
    pub(crate) slots: Vec<SlotPlan>,
    pub(crate) server: ServerPlan,
    pub(crate) faults: Vec<(True, Fault)>,
    /// How late a timer may fire, at the most.
    pub(crate) timer_lateness: u64,
    /// How long after its arrival bytes are looked at, at the most.
    pub(crate) read_lateness: u64,
    /// How long a system tries to send before it gives the peer up.
    pub(crate) system_patience: u64,
    /// Packets of a thousand that are lost.
    pub(crate) loss: u64,
    /// How long a write to the fenced resource is under way, at the most.
    pub(crate) write_delay: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct HostPlan {
    pub(crate) clock_shows: u64,
    /// By how many thousandths its clock is fast.
    pub(crate) drift: i64,
    /// To the server, and back.
    pub(crate) delay: [u64; 2],
    pub(crate) jitter: u64,
}

/// A claim that a client makes over and over.
#[derive(Clone, Debug)]
pub(crate) struct SlotPlan {
    pub(crate) host: usize,
    pub(crate) lock: usize,
    pub(crate) lease_ms: u32,
    pub(crate) patience: Patience,
    pub(crate) hold: (u64, u64),
    pub(crate) think: (u64, u64),
    pub(crate) write_every: Option<u64>,
    pub(crate) max_hold: Option<u64>,
    pub(crate) connect_timeout: u64,
    pub(crate) manners: Manners,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    Try,
    Limit(u64),
    Queue,
}

/// How a client treats the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manners {
    Good,
    /// It sends what the protocol forbids, and looks at what it is told.
    Bad,
}

#[derive(Clone, Debug)]
pub(crate) struct ServerPlan {
    pub(crate) clock_shows: u64,
    pub(crate) drift: i64,
    pub(crate) io_timeout: u64,
    pub(crate) grace: u64,
    pub(crate) token_file: TokenFile,
    /// Leases above it are refused, in milliseconds.
    pub(crate) max_lease_ms: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenFile {
    None,
    /// As many tokens as an hour has are reserved at a time.
    Ample,
    /// So few are reserved at a time that they are used up now and then.
    Scarce,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// What a machine sends, or is sent, or both, is lost.
    Partition {
        host: Option<usize>,
        up: bool,
        down: bool,
        lasts: u64,
    },
    /// Everything takes longer.
    Surge {
        host: usize,
        extra: u64,
        lasts: u64,
    },
    /// A box on the way has forgotten a connection: nothing passes any more, and nobody is told.
    Forget,
    /// The client is told that its connection was reset; the server is not.
    HalfReset,
    /// The server's system gives a connection up.
    SocketError,
    PauseClient {
        host: usize,
        lasts: u64,
    },
    SleepClient {
        host: usize,
        lasts: u64,
    },
    KillClient {
        host: usize,
        lasts: u64,
    },
    UnplugClient {
        host: usize,
        lasts: u64,
    },
    PauseServer {
        lasts: u64,
    },
    SleepServer {
        lasts: u64,
    },
    KillServer {
        lasts: u64,
        step: i64,
    },
    UnplugServer {
        lasts: u64,
        step: i64,
    },
    StopServer {
        lasts: u64,
        step: i64,
    },
    StepWall {
        step: i64,
    },
    Slew {
        host: Option<usize>,
        drift: i64,
    },
    ForceRelease,
    Kick,
    /// The token file cannot be written for a while.
    FullDisk {
        lasts: u64,
    },
}

/// Longer leases than this are ended by an operator once the faults are over, where their clients are gone.
pub(crate) const LONG_LEASE_MS: u32 = 120_000;

impl Plan {
    pub(crate) fn draw(seed: u64, rng: &mut Rng) -> Self {
        let profile = Profile::of(seed);
        let heals_at = rng.between(8, 40) * SECOND;
        let locks = rng.index(3) + 1;
        let drifts = if rng.chance(700) { 30 } else { 50 };
        let (slowest, far) = if profile == Profile::Lossy { (200, 2) } else { (40, 4) };
        let hosts: Vec<HostPlan> = (0..=rng.index(5)).map(|_| HostPlan::draw(rng, drifts, slowest, far)).collect();
        let mut slots: Vec<SlotPlan> = Vec::new();
        for host in 0..hosts.len() {
            for _ in 0..=rng.index(3) {
                slots.push(SlotPlan::draw(rng, host, locks));
            }
        }
        let longest = slots.iter().map(|slot| slot.lease_ms).filter(|&lease_ms| lease_ms <= LONG_LEASE_MS).max();
        let server = ServerPlan::draw(rng, drifts, longest.unwrap_or(1000), profile);
        let faults = draw_faults(rng, profile, heals_at, hosts.len());
        let windy = matches!(profile, Profile::Lossy | Profile::Storm);
        Self {
            profile,
            heals_at,
            locks,
            hosts,
            slots,
            server,
            faults,
            timer_lateness: rng.pick(&[MS / 10, 2 * MS, 2 * MS, if windy { 300 * MS } else { 15 * MS }]),
            read_lateness: rng.pick(&[MS / 50, MS / 5, if windy { 50 * MS } else { MS }]),
            system_patience: rng.between(2, 60) * SECOND,
            loss: if windy { rng.pick(&[0, 5, 30, 150]) } else { 0 },
            write_delay: rng.pick(&[MS, 50 * MS, 2 * SECOND, 8 * SECOND]),
        }
    }
}

impl HostPlan {
    fn draw(rng: &mut Rng, drifts: i64, slowest: u64, far: u64) -> Self {
        let mut delay = || {
            let most = if rng.chance(100) { slowest * far } else { slowest };
            rng.magnitude(MS / 20, most * MS)
        };
        let delay = [delay(), delay()];
        Self {
            clock_shows: rng.magnitude(1, 1 << 42),
            drift: drift(rng, drifts),
            delay,
            jitter: rng.magnitude(MS / 100, slowest * MS),
        }
    }
}

pub(crate) fn drift(rng: &mut Rng, most: i64) -> i64 {
    if rng.chance(150) {
        return if rng.chance(500) { most } else { -most };
    }
    i64::try_from(rng.below(u64::try_from(2 * most + 1).expect("a positive number"))).expect("a small number") - most
}

impl SlotPlan {
    fn draw(rng: &mut Rng, host: usize, locks: usize) -> Self {
        let lease_ms = match rng.below(100) {
            0..5 => rng.between(1, 100),
            5..50 => rng.between(200, 2000),
            50..88 => rng.between(2000, 10_000),
            88..97 => rng.between(10_000, 60_000),
            97..98 => u64::from(u32::MAX),
            _ => rng.between(3_600_000, 86_400_000),
        };
        let patience = match rng.below(100) {
            0..12 => Patience::Try,
            12..35 => Patience::Limit(rng.magnitude(20 * MS, 10 * SECOND)),
            _ => Patience::Queue,
        };
        let shortest = rng.magnitude(MS, 500 * MS);
        Self {
            host,
            // Most want the same.
            lock: if rng.chance(600) { 0 } else { rng.index(locks) },
            lease_ms: u32::try_from(lease_ms).expect("it was drawn so"),
            patience,
            hold: (shortest, shortest * rng.between(1, 10)),
            think: (MS, rng.magnitude(5 * MS, 5 * SECOND)),
            write_every: rng.chance(800).then(|| rng.magnitude(5 * MS, SECOND)),
            max_hold: rng.chance(80).then(|| rng.magnitude(5 * MS, 2 * SECOND)),
            connect_timeout: rng.between(500, 5000) * MS,
            manners: if rng.chance(50) { Manners::Bad } else { Manners::Good },
        }
    }
}

impl ServerPlan {
    fn draw(rng: &mut Rng, drifts: i64, longest_ms: u32, profile: Profile) -> Self {
        let restarts = matches!(profile, Profile::Restarts | Profile::Storm);
        let grace = match rng.below(10) {
            0..3 if restarts => u64::from(longest_ms) * MS,
            3..5 if restarts => rng.magnitude(10 * MS, 5 * SECOND),
            _ => 0,
        };
        Self {
            clock_shows: rng.magnitude(1, 1 << 42),
            drift: drift(rng, drifts),
            io_timeout: rng.between(500, 5000) * MS,
            grace,
            token_file: rng.pick(&[TokenFile::None, TokenFile::None, TokenFile::Ample, TokenFile::Scarce]),
            // With a limit the grace covers every lease.
            max_lease_ms: rng.chance(300).then_some(longest_ms),
        }
    }
}

/// The faults of a profile, in the order of their times.
fn draw_faults(rng: &mut Rng, profile: Profile, heals_at: True, hosts: usize) -> Vec<(True, Fault)> {
    let count = match profile {
        Profile::Calm => rng.below(3),
        Profile::Lossy => rng.below(8),
        Profile::Partitions | Profile::Pauses => rng.between(4, 24),
        Profile::Restarts => rng.between(2, 12),
        Profile::Storm => rng.between(10, 40),
    };
    let mut faults: Vec<(True, Fault)> =
        (0..count).map(|_| (rng.below(heals_at), Fault::draw(rng, profile, hosts))).collect();
    faults.sort_by_key(|&(at, _)| at);
    faults
}

impl Fault {
    /// How long it lasts, where it ends by itself.
    pub(crate) const fn lasts(self) -> Option<u64> {
        match self {
            Self::Partition { lasts, .. }
            | Self::Surge { lasts, .. }
            | Self::PauseClient { lasts, .. }
            | Self::SleepClient { lasts, .. }
            | Self::KillClient { lasts, .. }
            | Self::UnplugClient { lasts, .. }
            | Self::PauseServer { lasts }
            | Self::SleepServer { lasts }
            | Self::FullDisk { lasts } => Some(lasts),
            Self::Forget
            | Self::HalfReset
            | Self::SocketError
            | Self::KillServer { .. }
            | Self::UnplugServer { .. }
            | Self::StopServer { .. }
            | Self::StepWall { .. }
            | Self::Slew { .. }
            | Self::ForceRelease
            | Self::Kick => None,
        }
    }

    fn draw(rng: &mut Rng, profile: Profile, hosts: usize) -> Self {
        match profile {
            Profile::Calm => Self::of_operators(rng),
            Profile::Lossy => match rng.below(4) {
                0 => Self::of_operators(rng),
                _ => Self::of_the_network(rng, hosts, 0),
            },
            Profile::Partitions => match rng.below(10) {
                0 => Self::of_operators(rng),
                _ => Self::of_the_network(rng, hosts, 1),
            },
            Profile::Pauses => match rng.below(10) {
                0 => Self::of_operators(rng),
                1 => Self::of_the_network(rng, hosts, 1),
                _ => Self::of_processes(rng, hosts),
            },
            Profile::Restarts => match rng.below(10) {
                0 => Self::of_operators(rng),
                1 => Self::of_the_network(rng, hosts, 1),
                _ => Self::of_the_server(rng),
            },
            Profile::Storm => match rng.below(10) {
                0 => Self::of_operators(rng),
                1..5 => Self::of_the_network(rng, hosts, 1),
                5..9 => Self::of_processes(rng, hosts),
                _ => Self::of_the_server(rng),
            },
        }
    }

    fn of_operators(rng: &mut Rng) -> Self {
        if rng.chance(500) { Self::ForceRelease } else { Self::Kick }
    }

    fn of_the_network(rng: &mut Rng, hosts: usize, from: u64) -> Self {
        let host = rng.index(hosts);
        let lasts = rng.magnitude(20 * MS, 15 * SECOND);
        match rng.between(from, 9) {
            0 | 6 => Self::Surge { host, extra: rng.magnitude(20 * MS, 3 * SECOND), lasts },
            1..6 => {
                let (up, down) = rng.pick(&[(true, true), (true, true), (true, false), (false, true)]);
                Self::Partition { host: rng.chance(800).then_some(host), up, down, lasts }
            }
            7 => Self::Forget,
            8 => Self::HalfReset,
            _ => Self::SocketError,
        }
    }

    fn of_processes(rng: &mut Rng, hosts: usize) -> Self {
        let host = rng.index(hosts);
        let lasts = rng.magnitude(20 * MS, 15 * SECOND);
        match rng.below(12) {
            0..4 => Self::PauseClient { host, lasts },
            4..6 => Self::SleepClient { host, lasts },
            6 => Self::KillClient { host, lasts },
            7 => Self::UnplugClient { host, lasts },
            8 | 9 => Self::PauseServer { lasts: lasts / 2 },
            10 => Self::SleepServer { lasts: lasts / 2 },
            _ => {
                let most = 50;
                Self::Slew { host: rng.chance(700).then_some(host), drift: drift(rng, most) }
            }
        }
    }

    fn of_the_server(rng: &mut Rng) -> Self {
        let lasts = rng.magnitude(20 * MS, 6 * SECOND);
        let step = wall_step(rng);
        match rng.below(10) {
            0..3 => Self::KillServer { lasts, step },
            3..5 => Self::UnplugServer { lasts, step },
            5..7 => Self::StopServer { lasts, step },
            7 => Self::PauseServer { lasts },
            8 => Self::StepWall { step },
            _ => Self::FullDisk { lasts },
        }
    }
}

fn wall_step(rng: &mut Rng) -> i64 {
    let size = i64::try_from(rng.magnitude(MS, 4 * 3600 * SECOND)).expect("a few hours");
    match rng.below(3) {
        0 => 0,
        1 => size,
        _ => -size,
    }
}
