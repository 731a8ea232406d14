//! A run from its first process to its last.

mod clock;
mod faults;
mod firewall;
mod http;
mod network;
mod outside;
mod proxy;
mod server;
mod tools;
mod workers;
mod world;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use monolock_chaos::check::{Timeline, Verdict, check};
use monolock_chaos::history::{self, Audit, What};
use monolock_chaos::plan::{Class, Fault, LOCKS, Plan};
use monolock_chaos::tally::Tally;

use crate::Arguments;
use crate::run::faults::Faults;
use crate::run::network::Network;
use crate::run::server::{ServerPlace, Start};
use crate::run::tools::Tools;
use crate::run::workers::Workers;
use crate::run::world::World;

/// What goes wrong with the run itself.
type Result<T> = std::result::Result<T, String>;

/// Within how long everybody has had a turn after the faults. Queues are four claims long and leases two seconds; a
/// machine that is busy takes its time.
const SERVED_WITHIN: Duration = Duration::from_secs(45);

/// Within how long a worker ends that was asked to.
const ENDS_WITHIN: Duration = Duration::from_secs(30);

pub(crate) fn start(arguments: &Arguments) -> ExitCode {
    if let Some(folder) = &arguments.check {
        return conclude(judge(folder, &arguments.classes(), 0), folder, true);
    }
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..1_000_000_000));
    if !arguments.inside {
        return match outside::enter_namespaces(seed) {
            Ok(never) => match never {},
            Err(problem) => {
                eprintln!("monolock-chaos: {problem}");
                ExitCode::from(2)
            }
        };
    }
    println!("seed {seed}: the same faults come again with `cargo xtask chaos --seed {seed}`");
    let folder = arguments.folder.join(format!("seed-{seed}"));
    let ran = run(arguments, seed, &folder);
    let judged = ran.and_then(|rounds| judge(&folder, &arguments.classes(), rounds));
    conclude(judged, &folder, arguments.keep)
}

/// What a run came to.
struct Judgement {
    tally: Tally,
    verdict: Verdict,
    missing: Vec<String>,
}

fn judge(folder: &Path, classes: &[Class], rounds: u32) -> Result<Judgement> {
    let read = |path: PathBuf| fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()));
    let path = folder.join("history.jsonl");
    let records = history::parse(&read(path.clone())?).map_err(|error| format!("{}, {error}", path.display()))?;
    let starts = records.iter().filter_map(|record| {
        let What::Starting { epoch, .. } = record.what else { return None };
        Some(epoch)
    });
    let audits = starts.map(|epoch| {
        // One that was killed at once has none.
        let text = fs::read_to_string(folder.join(format!("audit-{epoch}.jsonl"))).unwrap_or_default();
        Audit::parse(epoch, &text)
    });
    let mut audits: Vec<_> = audits.collect();
    history::forget_unheard(&records, &mut audits);
    let timeline = Timeline::new(&records, &audits, &mut Vec::new());
    let tally = Tally::new(&records, &timeline, classes);
    let verdict = check(&records, &audits);
    let missing = tally.missing(rounds, &verdict.coverage);
    Ok(Judgement { tally, verdict, missing })
}

fn conclude(judged: Result<Judgement>, folder: &Path, keep: bool) -> ExitCode {
    let Judgement { tally, verdict, missing } = match judged {
        Ok(judgement) => judgement,
        Err(problem) => {
            eprintln!("monolock-chaos: {problem}");
            eprintln!("what was written until then: {}", folder.display());
            return ExitCode::FAILURE;
        }
    };
    println!("\n{tally}");
    println!("{}", verdict.coverage);
    for missing in &missing {
        println!("NOT SHOWN {missing}");
    }
    for violation in &verdict.violations {
        println!("VIOLATION {violation}");
    }
    println!("violations: {}", verdict.violations.len());
    if verdict.violations.is_empty() && missing.is_empty() {
        if keep {
            println!("the history: {}", folder.display());
        } else {
            let _ = fs::remove_dir_all(folder);
        }
        ExitCode::SUCCESS
    } else {
        println!("the history: {}", folder.display());
        ExitCode::FAILURE
    }
}

/// Runs to the end, and says how many rounds of faults there were.
fn run(arguments: &Arguments, seed: u64, folder: &Path) -> Result<u32> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let folder = &fs::canonicalize(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let tools = Tools::find(arguments)?;
    let world = Arc::new(World::new(folder)?);
    world.heed_interrupts();
    let network = Network::build()?;
    let mut server = ServerPlace::new(&tools, folder, Arc::clone(&world));
    server.start(Start { token_file: true, ..Start::default() })?;
    let at_rest = server.measure()?;
    let workers = Workers::start(&tools, folder, seed, &network, &world)?;
    let faults = Faults::new(&tools, &world, &network, &workers);

    world.expect_grants(&LOCKS)?;
    let until = Instant::now() + Duration::from_secs_f64((arguments.minutes * 60.0).max(0.0));
    let mut plan = Plan::new(seed, &arguments.classes());
    let begun = Instant::now();
    while plan.whole_rounds() == 0 || Instant::now() < until {
        world.check_interrupt()?;
        let Some(slot) = plan.next() else { break };
        let told: Vec<String> = slot.iter().map(Fault::to_string).collect();
        println!("{:>6.1} s  {}", begun.elapsed().as_secs_f64(), told.join("; "));
        thread::scope(|scope| {
            let (of_server, of_clients): (Vec<_>, Vec<_>) =
                slot.iter().partition(|fault| fault.class.target() == monolock_chaos::plan::Target::Server);
            for fault in of_clients {
                let faults = &faults;
                scope.spawn(move || faults.of_client(fault));
            }
            of_server.iter().try_for_each(|fault| faults.of_server(fault, &mut server))
        })?;
        for problem in faults.problems() {
            println!("          {problem}");
        }
        server.check()?;
    }
    let rounds = plan.whole_rounds();
    settle(&world, &workers, &mut server, at_rest)?;
    Ok(rounds)
}

/// After the faults: everybody has a turn, everybody goes, and what is left is measured.
fn settle(world: &World, workers: &Workers, server: &mut ServerPlace, at_rest: server::Measured) -> Result<()> {
    let living = workers.living();
    let from = world.note(What::FaultsOver {
        living: living.clone(),
        bound_ms: u64::try_from(SERVED_WITHIN.as_millis()).unwrap_or(u64::MAX),
    });
    // Who was not served is the checker's to say.
    let _ = world.wait(SERVED_WITHIN, |live| {
        living.iter().all(|worker| live.granted.get(worker).is_some_and(|at| *at >= from)).then_some(())
    });
    workers.finish(ENDS_WITHIN)?;
    server.measure_end(at_rest)?;
    server.stop()?;
    world.flush()
}
