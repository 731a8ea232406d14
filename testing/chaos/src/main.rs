//! Does things to the real server and real clients, and checks what they say happened.
//!
//! Outside it only looks for what it needs, and starts itself again in namespaces of its own: network, mounts and
//! processes. So whatever happens to it, nothing of it is left, and nothing of the machine's is touched.

#[cfg(target_os = "linux")]
mod run;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use monolock_chaos::plan::{Class, Plan};

/// The real server and real clients under faults in network namespaces, and a checker of what they say happened.
#[derive(Debug, Parser)]
#[command(name = "monolock-chaos", bin_name = "cargo xtask chaos", args_override_self = true, max_term_width = 100)]
struct Arguments {
    /// How long faults are made; at least one round of all classes is.
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    minutes: f64,
    /// What decides which faults come, in which order and how hard; a fresh one without it.
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Only this class of faults; may be given several times.
    #[arg(long = "class", value_name = "CLASS")]
    classes: Vec<Class>,
    /// Only lists the classes.
    #[arg(long)]
    list: bool,
    /// Only tells the faults of the first rounds that the seed brings.
    #[arg(long, value_name = "ROUNDS")]
    plan: Option<u32>,
    /// Checks the history in this folder again, and does nothing else.
    #[arg(long, value_name = "FOLDER")]
    check: Option<PathBuf>,
    /// Keeps the history of a run that passes too.
    #[arg(long)]
    keep: bool,
    /// Where histories are put.
    #[arg(long, value_name = "FOLDER", default_value = "target/chaos")]
    folder: PathBuf,
    /// The Python that runs the Python clients.
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: String,
    /// The Go client's worker, built of testing/chaos/worker-go; no Go clients without it.
    #[arg(long, value_name = "FILE")]
    go_worker: Option<PathBuf>,
    /// The Node.js that runs the Node.js clients; none without it.
    #[arg(long, value_name = "PROGRAM")]
    node: Option<String>,
    /// The namespaces are there.
    #[arg(long, hide = true)]
    inside: bool,
}

impl Arguments {
    fn classes(&self) -> Vec<Class> {
        if self.classes.is_empty() { Class::ALL.to_vec() } else { self.classes.clone() }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.list {
        for class in Class::ALL {
            println!("{class:<14} {}", class.target());
        }
        return ExitCode::SUCCESS;
    }
    if let Some(rounds) = arguments.plan {
        let seed = arguments.seed.unwrap_or(0);
        let mut plan = Plan::new(seed, &arguments.classes());
        while plan.whole_rounds() < rounds {
            for fault in plan.next().unwrap_or_default() {
                println!("{fault}");
            }
            println!("--");
        }
        return ExitCode::SUCCESS;
    }
    start(&arguments)
}

#[cfg(target_os = "linux")]
fn start(arguments: &Arguments) -> ExitCode {
    run::start(arguments)
}

#[cfg(not(target_os = "linux"))]
fn start(_arguments: &Arguments) -> ExitCode {
    eprintln!("monolock-chaos: its faults are made with Linux's network namespaces; run it on Linux");
    ExitCode::from(2)
}
