//! Pictures of the figures, as SVG without a background: their colours are readable on white and on black.

use std::io;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::report::{Report, figure};
use crate::sheet::{Series, Sheet};

/// Neither dark nor light.
const INK: RGBColor = RGBColor(128, 134, 142);
const OURS: RGBColor = RGBColor(38, 139, 210);
const OTHERS: RGBColor = RGBColor(203, 125, 55);
const FLOOR: RGBColor = RGBColor(112, 160, 80);

const WIDTH: u32 = 860;
const LINE: u32 = 30;

/// Which measure of which row is shown, and with which title.
const BARS: &[(&str, &str, &str)] = &[
    ("handover-1-idle", "handover", "Handover, 1 waiter, idle cores: µs, less is better"),
    ("handover-1-hot", "handover", "Handover, 1 waiter, hot: µs, less is better"),
    ("handover-100-idle", "handover", "Handover, 100 waiters, idle cores: µs, less is better"),
    ("handover-100-hot", "handover", "Handover, 100 waiters, hot: µs, less is better"),
    ("handover-chain", "handover", "Handover down a chain of 3000: µs, less is better"),
    ("cycle-50", "throughput", "Acquire and close, 50 clients: a second, more is better"),
    ("heartbeat-50", "throughput", "Heartbeats, 50 clients: a second, more is better"),
    ("memory", "memory a waiter", "Memory of an idle waiter: KiB, less is better"),
    ("memory-tls", "memory a waiter", "Memory of an idle waiter over TLS: KiB, less is better"),
];

/// Draws all that was measured into the directory.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn draw(report: &Report, directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    for (id, measure, title) in BARS {
        if let Some(row) = report.rows.iter().find(|row| row.id == *id) {
            bars(row, measure, title, &directory.join(format!("{id}.svg"))).map_err(io::Error::other)?;
        }
    }
    for row in report.rows.iter().filter(|row| row.id.starts_with("tail-")) {
        bars(row, "p99.9", row.title, &directory.join(format!("{}.svg", row.id))).map_err(io::Error::other)?;
    }
    Ok(())
}

type Drawn = Result<(), DrawingAreaErrorKind<io::Error>>;

/// A bar for each server, with the quartiles as a thin line.
fn bars(row: &Sheet, measure: &str, title: &str, file: &Path) -> Result<(), String> {
    let series: Vec<&Series> = row.series.iter().filter(|series| series.measure == measure).collect();
    if series.is_empty() {
        return Ok(());
    }
    let height = LINE * (u32::try_from(series.len()).unwrap_or(u32::MAX) + 2);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        bars_onto(&area, &series, title).map_err(|error| error.to_string())?;
    }
    std::fs::write(file, svg).map_err(|error| format!("{}: {error}", file.display()))
}

fn bars_onto(area: &DrawingArea<SVGBackend<'_>, Shift>, series: &[&Series], title: &str) -> Drawn {
    let text = |size: f64| ("sans-serif", size).into_font().color(&INK);
    area.draw(&Text::new(title.to_owned(), (8, 8), text(20.0)))?;
    let largest = series
        .iter()
        .filter_map(|series| series.quartiles)
        .fold(0.0, |largest: f64, quartiles| largest.max(quartiles.upper));
    let (left, room) = (230, 500.0);
    // Peers may be a thousand times slower: then the lengths are those of the logarithms.
    let smallest = series
        .iter()
        .filter_map(|series| series.quartiles)
        .fold(f64::MAX, |least, quartiles| least.min(quartiles.lower));
    let is_logarithmic = smallest > 0.0 && largest / smallest > 30.0;
    let length = |value: f64| {
        let share = if is_logarithmic {
            (value / (smallest / 2.0)).log10() / (largest / (smallest / 2.0)).log10()
        } else {
            value / largest.max(f64::MIN_POSITIVE)
        };
        left + pixels(share * room)
    };
    let mut top = i32::try_from(LINE).unwrap_or(0) + 10;
    for Series { of, unit, quartiles, .. } in series {
        let Some(quartiles) = quartiles else { continue };
        let colour = match of.as_str() {
            "echo" | "relay" | "quiet" => FLOOR,
            name if name.starts_with("monolock") || name.ends_with("waiters") || name == "disturbed" => OURS,
            _ => OTHERS,
        };
        let end = length(quartiles.median);
        area.draw(&Text::new(of.clone(), (8, top + 4), text(17.0)))?;
        area.draw(&Rectangle::new([(left, top), (end, top + 20)], colour.filled()))?;
        let (lower, upper) = (length(quartiles.lower), length(quartiles.upper));
        area.draw(&PathElement::new([(lower, top + 10), (upper, top + 10)], INK.stroke_width(2)))?;
        let label = figure(quartiles.median, unit);
        area.draw(&Text::new(label, (end.max(upper) + 8, top + 4), text(17.0)))?;
        top += i32::try_from(LINE).unwrap_or(0);
    }
    if is_logarithmic {
        area.draw(&Text::new("logarithmic", (i32::try_from(WIDTH).unwrap_or(0) - 90, 10), text(15.0)))?;
    }
    area.present()
}

#[expect(clippy::cast_possible_truncation, reason = "it is some hundreds")]
fn pixels(length: f64) -> i32 {
    length.clamp(0.0, f64::from(WIDTH)) as i32
}
