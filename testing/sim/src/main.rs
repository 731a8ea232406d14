//! Runs worlds from seeds: one with its story, or many with their oracles.

use std::io::{self, Write as _};
use std::panic;
use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use clap::{ArgGroup, Parser};
use indicatif::{ProgressBar, ProgressStyle};
use monolock_sim::many::{self, Range, Summary};
use monolock_sim::{Failure, Report, simulate, tell};

/// How many lines of the story are shown before a violation.
const LAST_LINES: usize = 25;

/// Runs the engine and the client's session machine in a deterministic world full of faults.
#[derive(Parser)]
#[command(max_term_width = 100, group(ArgGroup::new("what").required(true).args(["seed", "seeds"])))]
struct Sim {
    /// Tells the story of the world of one seed, line by line.
    #[arg(long, value_name = "N", conflicts_with_all = ["from", "fresh", "stop_at_first", "no_marks"])]
    seed: Option<u64>,
    /// Lives through so many worlds, on all cores.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// The first seed.
    #[arg(long, value_name = "S", default_value_t = 0)]
    from: u64,
    /// Draws the first seed from the system's entropy, and prints it first.
    #[arg(long, conflicts_with = "from")]
    fresh: bool,
    /// Stops as soon as the first failing seed is certain.
    #[arg(long)]
    stop_at_first: bool,
    /// Does not judge which interesting things happened.
    #[arg(long)]
    no_marks: bool,
    /// How many threads to use; all cores without it.
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
}

fn main() -> ExitCode {
    let Sim { seed, seeds, mut from, fresh, stop_at_first, no_marks, jobs } = Sim::parse();
    if let Some(seed) = seed {
        return told(seed);
    }
    let Some(seeds) = seeds else { return ExitCode::from(2) };
    if fresh {
        match getrandom::u64() {
            // Room to count on from there, in a number that is easy to copy.
            Ok(drawn) => from = drawn >> 24,
            Err(error) => {
                eprintln!("monolock-sim: the system has no entropy: {error}");
                return ExitCode::from(2);
            }
        }
        say(&format!("seeds from {from}: --seeds {seeds} --from {from} runs them again"));
    }
    let threads = jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, std::num::NonZero::get));
    let bar = ProgressBar::new(seeds).with_style(style());
    let begun = Instant::now();
    let range = Range { from, seeds, stops_at_first: stop_at_first };
    let summary = many::run(range, threads, simulate, |_| bar.inc(1));
    bar.finish_and_clear();
    judge(&summary, begun, no_marks)
}

/// A bar, which indicatif shows on a terminal only.
fn style() -> ProgressStyle {
    ProgressStyle::with_template("{bar:40} {pos}/{len} seeds, {per_sec}, {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn told(seed: u64) -> ExitCode {
    let report = tell(seed);
    report.story.iter().for_each(|line| say(line));
    let Report { steps, virtual_nanos, hash, violation, .. } = report;
    say("");
    report
        .marks
        .iter()
        .filter(|mark| mark.count > 0)
        .for_each(|mark| say(&format!("{:>10}  {}", mark.count, mark.name)));
    say("");
    say(&format!("{steps} steps in {:.3} s of virtual time, history {hash:016x}", seconds(virtual_nanos.into())));
    match violation {
        None => ExitCode::SUCCESS,
        Some(violation) => {
            say(&Failure { seed, violation }.to_string());
            ExitCode::FAILURE
        }
    }
}

fn judge(summary: &Summary, begun: Instant, no_marks: bool) -> ExitCode {
    let Summary { seeds, steps, virtual_nanos, marks, failures, first } = summary;
    let took = begun.elapsed().as_secs_f64();
    if first.is_none() {
        marks.iter().for_each(|mark| say(&format!("{:>12}  {}", mark.count, mark.name)));
    }
    let rate = |count: u64| float(count.into()) / took.max(1e-9);
    say(&format!(
        "{seeds} seeds, {steps} steps, {:.0} hours of virtual time in {took:.1} s: {:.0} seeds and {:.0} steps a second",
        seconds(*virtual_nanos) / 3600.0,
        rate(*seeds),
        rate(*steps),
    ));
    if let Some(failure @ Failure { seed, .. }) = first {
        // A world that panics cannot tell.
        let story = panic::catch_unwind(|| tell(*seed).story).unwrap_or_default();
        story[story.len().saturating_sub(LAST_LINES)..].iter().for_each(|line| say(line));
        say(&failure.to_string());
        if *failures > 1 {
            say(&format!("{failures} of {seeds} seeds failed; this is the smallest"));
        }
        say(&format!("to repeat it: cargo run -p monolock-sim --release -- --seed {seed}"));
        return ExitCode::FAILURE;
    }
    let missing: Vec<&str> = marks.missing(*seeds).map(|mark| mark.name).collect();
    if !no_marks && !missing.is_empty() {
        say(&format!("no violation, but in {seeds} seeds these never happened: {}", missing.join("; ")));
        return ExitCode::FAILURE;
    }
    say("no violation");
    ExitCode::SUCCESS
}

fn seconds(nanos: u128) -> f64 {
    float(nanos) / 1e9
}

#[expect(clippy::cast_precision_loss, reason = "it is for people to read")]
fn float(number: u128) -> f64 {
    number as f64
}

fn say(line: &str) {
    // Nobody reads any more: then there is nobody to be told.
    let _ = writeln!(io::stdout(), "{line}");
}
