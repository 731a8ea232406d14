//! Medians and quartiles, and the line through some points.

use serde::Serialize;

/// Half of the samples lie from `lower` to `upper`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Quartiles {
    pub(crate) lower: f64,
    pub(crate) median: f64,
    pub(crate) upper: f64,
}

impl Quartiles {
    /// Interpolated between the nearest samples. `None` of none.
    pub(crate) fn of(samples: &[f64]) -> Option<Self> {
        let mut samples = samples.to_vec();
        samples.sort_unstable_by(f64::total_cmp);
        let last = samples.len().checked_sub(1)?;
        let at = |quarter: usize| {
            let (below, rest) = (last * quarter / 4, last * quarter % 4);
            let above = (below + 1).min(last);
            samples[below] + (samples[above] - samples[below]) * real(rest) / 4.0
        };
        Some(Self { lower: at(1), median: at(2), upper: at(3) })
    }
}

/// The median; zero of none.
pub(crate) fn median(samples: &[f64]) -> f64 {
    Quartiles::of(samples).map_or(0.0, |quartiles| quartiles.median)
}

/// Round by round, so that what disturbs a round disturbs both sides.
pub(crate) fn ratios(ours: &[f64], base: &[f64]) -> Vec<f64> {
    ours.iter().zip(base).map(|(ours, base)| ours / base).collect()
}

/// The line of least squares through points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Line {
    pub(crate) slope: f64,
    /// The share of the variance that it explains: 1 of points that lie on it.
    pub(crate) r_squared: f64,
}

impl Line {
    /// `None` where there are no two different points.
    pub(crate) fn through(points: &[(f64, f64)]) -> Option<Self> {
        let count = real(points.len());
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
        let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|(x, y)| of(x - mean_x, y - mean_y)).sum::<f64>();
        let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
        (xx > 0.0 && yy > 0.0).then(|| Self { slope: xy / xx, r_squared: xy * xy / (xx * yy) })
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures have three digits that count")]
pub(crate) const fn real(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    #![expect(clippy::float_cmp, reason = "the numbers are chosen so that the arithmetic is exact")]

    use super::*;

    fn quartiles(samples: &[f64]) -> [f64; 3] {
        let Quartiles { lower, median, upper } = Quartiles::of(samples).unwrap();
        [lower, median, upper]
    }

    #[test]
    fn quartiles_are_of_the_order_and_not_of_the_arrival() {
        assert_eq!(quartiles(&[5.0, 1.0, 4.0, 2.0, 3.0]), [2.0, 3.0, 4.0]);
    }

    #[test]
    fn quartiles_between_samples_are_interpolated() {
        assert_eq!(quartiles(&[1.0, 2.0]), [1.25, 1.5, 1.75]);
        assert_eq!(quartiles(&[10.0, 20.0, 30.0, 40.0]), [17.5, 25.0, 32.5]);
    }

    #[test]
    fn one_sample_is_all_of_them_and_none_is_none() {
        assert_eq!(quartiles(&[7.0]), [7.0; 3]);
        assert_eq!(Quartiles::of(&[]), None);
    }

    #[test]
    fn ratios_are_round_by_round() {
        assert_eq!(ratios(&[2.0, 30.0], &[1.0, 10.0]), [2.0, 3.0]);
    }

    #[test]
    fn a_straight_line_explains_everything_and_a_bent_one_less() {
        let straight = Line::through(&[(1.0, 5.0), (2.0, 7.0), (3.0, 9.0)]).unwrap();
        assert!((straight.slope - 2.0).abs() < 1e-9 && (straight.r_squared - 1.0).abs() < 1e-9, "{straight:?}");
        let bent = Line::through(&[(0.0, 0.0), (1.0, 0.0), (2.0, 10.0)]).unwrap();
        assert!(bent.r_squared < 0.9, "{bent:?}");
        assert_eq!(Line::through(&[(1.0, 1.0), (1.0, 2.0)]), None);
    }
}
