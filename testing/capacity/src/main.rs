//! Prints what sessions take of the heap.

use std::io::{self, Write as _};

use clap::Parser;
use monolock_capacity::{Claims, Taken, measure};
use tabled::builder::Builder;
use tabled::settings::Style;

/// Counts what sessions of the server take of the heap, over streams in memory
#[derive(Parser)]
#[command(name = "monolock-capacity")]
struct Arguments {
    /// How many sessions; may be given several times
    #[arg(long, value_name = "COUNT", default_values_t = [1000, 10_000, 19_000, 100_000, 1_000_000])]
    sessions: Vec<usize>,
}

fn main() -> io::Result<()> {
    let Arguments { sessions } = Arguments::parse();
    let mut table = Builder::default();
    table.push_record(["sessions", "claims", "bytes a session", "bytes kept in all"]);
    for claims in [Claims::OneQueue, Claims::LocksOfTheirOwn] {
        for &sessions in &sessions {
            let Taken { in_all, kept } = measure(sessions, claims);
            let what = match claims {
                Claims::OneQueue => "one lock",
                Claims::LocksOfTheirOwn => "a lock each",
            };
            let each = in_all.div_ceil(sessions.max(1));
            table.push_record([sessions.to_string(), what.to_owned(), each.to_string(), kept.to_string()]);
        }
    }
    writeln!(io::stdout(), "{}", table.build().with(Style::markdown()))
}
