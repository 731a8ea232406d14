//! What a row of the table has measured, and what is made of it.

use serde::Serialize;

use crate::statistics::{Quartiles, ratios};

/// One row: what was measured, of whom, and whether the goals are met.
#[derive(Debug, Serialize)]
pub(crate) struct Sheet {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) series: Vec<Series>,
    pub(crate) judgements: Vec<Judgement>,
    pub(crate) notes: Vec<String>,
}

/// One figure of one server, round by round.
#[derive(Debug, Serialize)]
pub(crate) struct Series {
    pub(crate) measure: String,
    pub(crate) unit: &'static str,
    pub(crate) of: String,
    pub(crate) samples: Vec<f64>,
    pub(crate) quartiles: Option<Quartiles>,
}

/// A figure beside its goal.
#[derive(Debug, Serialize)]
pub(crate) struct Judgement {
    pub(crate) what: String,
    pub(crate) unit: &'static str,
    pub(crate) goal: Goal,
    pub(crate) quartiles: Option<Quartiles>,
    /// Nothing where there is no goal, or no figure.
    pub(crate) met: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
    /// It is shown and not judged.
    None,
}

impl Goal {
    pub(crate) fn is_met(self, figure: f64) -> Option<bool> {
        match self {
            Self::AtLeast(least) => Some(figure >= least),
            Self::AtMost(most) => Some(figure <= most),
            Self::None => None,
        }
    }
}

impl Sheet {
    pub(crate) const fn new(id: &'static str, title: &'static str) -> Self {
        Self { id, title, series: Vec::new(), judgements: Vec::new(), notes: Vec::new() }
    }

    /// Adds one round's figure.
    pub(crate) fn push(&mut self, measure: &str, unit: &'static str, of: &str, sample: f64) {
        let found = self.series.iter_mut().find(|series| series.measure == measure && series.of == of);
        let series = if let Some(series) = found {
            series
        } else {
            let (measure, of) = (measure.to_owned(), of.to_owned());
            self.series.push(Series { measure, unit, of, samples: Vec::new(), quartiles: None });
            self.series.last_mut().expect("it has just been put there")
        };
        series.samples.push(sample);
        series.quartiles = Quartiles::of(&series.samples);
    }

    pub(crate) fn samples(&self, measure: &str, of: &str) -> &[f64] {
        let found = self.series.iter().find(|series| series.measure == measure && series.of == of);
        found.map_or(&[], |series| &series.samples)
    }

    /// Judges the ratio of one server to another, round by round.
    pub(crate) fn judge_ratio(&mut self, measure: &str, ours: &str, base: &str, goal: Goal) {
        let samples = ratios(self.samples(measure, ours), self.samples(measure, base));
        self.judge(format!("{measure}: {ours} / {base}"), "×", &samples, goal);
    }

    /// Judges a figure of one server by itself.
    pub(crate) fn judge_figure(&mut self, measure: &str, of: &str, goal: Goal) {
        let Some(series) = self.series.iter().find(|series| series.measure == measure && series.of == of) else {
            return;
        };
        let (unit, samples) = (series.unit, series.samples.clone());
        self.judge(format!("{measure}: {of}"), unit, &samples, goal);
    }

    pub(crate) fn judge(&mut self, what: String, unit: &'static str, samples: &[f64], goal: Goal) {
        let quartiles = Quartiles::of(samples);
        let met = quartiles.and_then(|quartiles| goal.is_met(quartiles.median));
        self.judgements.push(Judgement { what, unit, goal, quartiles, met });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_up_to_its_very_bound() {
        assert_eq!(Goal::AtLeast(0.95).is_met(0.95), Some(true));
        assert_eq!(Goal::AtLeast(0.95).is_met(0.949), Some(false));
        assert_eq!(Goal::AtMost(1.1).is_met(1.1), Some(true));
        assert_eq!(Goal::AtMost(1.1).is_met(1.101), Some(false));
        assert_eq!(Goal::None.is_met(7.0), None);
    }

    #[test]
    fn a_ratio_is_judged_by_the_median_of_the_rounds() {
        let mut sheet = Sheet::new("test", "a test");
        for (ours, floor) in [(11.0, 10.0), (30.0, 10.0), (12.0, 10.0)] {
            sheet.push("time", "µs", "ours", ours);
            sheet.push("time", "µs", "floor", floor);
        }
        sheet.judge_ratio("time", "ours", "floor", Goal::AtMost(1.2));
        sheet.judge_ratio("time", "ours", "floor", Goal::AtMost(1.1));
        sheet.judge_ratio("time", "ours", "nobody", Goal::AtMost(1.1));
        let met: Vec<_> = sheet.judgements.iter().map(|judgement| judgement.met).collect();
        assert_eq!(met, [Some(true), Some(false), None]);
        assert!((sheet.judgements[0].quartiles.unwrap().median - 1.2).abs() < 1e-9);
    }
}
