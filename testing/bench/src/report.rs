//! The table for people, and the same as JSON.

use std::fmt::{self, Write as _};

use serde::Serialize;

use crate::machine::Machine;
use crate::sheet::{Goal, Judgement, Series, Sheet};
use crate::statistics::Quartiles;

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) rounds: usize,
    /// Whether it was a trial, which judges nothing.
    pub(crate) is_trial: bool,
    pub(crate) rows: Vec<Sheet>,
    /// Why other rows could not be measured.
    pub(crate) failures: Vec<String>,
}

impl Report {
    /// Judgements that are not met, where it is judged.
    pub(crate) fn missed(&self) -> usize {
        let judgements = self.rows.iter().flat_map(|row| &row.judgements);
        if self.is_trial { 0 } else { judgements.filter(|judgement| judgement.met == Some(false)).count() }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machine, rounds, is_trial, rows, failures } = self;
        writeln!(f, "{} with {} cores, {}", machine.processor, machine.cores, machine.kernel)?;
        writeln!(f, "{}, {}", machine.monolock, machine.rustc)?;
        machine.peers.iter().try_for_each(|peer| writeln!(f, "{peer}"))?;
        writeln!(
            f,
            "load {} at the start, {} at the end; {rounds} rounds",
            machine.load_at_start, machine.load_at_end
        )?;
        if *is_trial {
            writeln!(f, "a trial, which judges nothing: small and short, or of too few rounds")?;
        }
        writeln!(f, "\n{:<72} {:>10} {:>10}   {:<19} verdict", "goals", "goal", "median", "half the rounds")?;
        for row in rows.iter().filter(|row| !row.judgements.is_empty()) {
            writeln!(f, "{} [{}]", row.title, row.id)?;
            for judgement in &row.judgements {
                write_judgement(f, judgement, *is_trial)?;
            }
        }
        writeln!(f, "\n{:<72} {:>12}   half the rounds", "figures", "median")?;
        for row in rows {
            writeln!(f, "{} [{}]", row.title, row.id)?;
            for Series { measure, unit, of, quartiles, .. } in &row.series {
                if let Some(quartiles) = quartiles {
                    let name = format!("{measure}: {of}");
                    let value = figure(quartiles.median, unit);
                    writeln!(f, "  {name:<70} {value:>12}   {}", spread(*quartiles, unit))?;
                }
            }
            row.notes.iter().try_for_each(|note| writeln!(f, "  ({note})"))?;
        }
        failures.iter().try_for_each(|failure| writeln!(f, "\nnot measured: {failure}"))
    }
}

fn write_judgement(f: &mut fmt::Formatter<'_>, judgement: &Judgement, is_trial: bool) -> fmt::Result {
    let Judgement { what, unit, goal, quartiles, met } = judgement;
    // A ratio without a base is not of this run: the peers did not run.
    let Some(quartiles) = quartiles else { return Ok(()) };
    let goal = match goal {
        Goal::AtLeast(least) => format!("≥ {least}"),
        Goal::AtMost(most) => format!("≤ {most}"),
        Goal::None => String::new(),
    };
    let verdict = match met {
        _ if is_trial => "",
        Some(true) => "met",
        Some(false) => "MISSED",
        None => "",
    };
    let value = figure(quartiles.median, unit);
    let line = format!("  {what:<70} {goal:>10} {value:>10}   {:<19} {verdict}", spread(*quartiles, unit));
    writeln!(f, "{}", line.trim_end())
}

/// With three digits that count.
pub(crate) fn figure(value: f64, unit: &str) -> String {
    let digits = match value.abs() {
        100.0.. => 0,
        10.0..100.0 => 1,
        _ => 2,
    };
    let mut text = format!("{value:.digits$}");
    if !unit.is_empty() && unit != "×" {
        let space = if unit.starts_with('/') { "" } else { " " };
        let _ = write!(text, "{space}{unit}");
    }
    text
}

fn spread(quartiles: Quartiles, unit: &str) -> String {
    let Quartiles { lower, upper, .. } = quartiles;
    let bare = if unit == "×" { "×" } else { "" };
    format!("{} to {}", figure(lower, bare), figure(upper, bare))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_that_count_and_their_unit() {
        let shown: Vec<_> =
            [(1.2345, "×"), (45.67, "µs"), (12_345.6, "/s"), (0.5, "")].map(|(value, unit)| figure(value, unit)).into();
        assert_eq!(shown, ["1.23", "45.7 µs", "12346/s", "0.50"]);
    }
}
