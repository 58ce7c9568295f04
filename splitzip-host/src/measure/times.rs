//! What a repeated measurement says: the median, and how far others lie from it.

use crate::Result;

/// How often something is measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Effort {
    /// The most runs.
    pub runs: u32,
    /// Seconds that the runs may take together; at least [`Effort::FEWEST`] runs are made, unless `runs` is less.
    pub seconds: f64,
}

impl Default for Effort {
    /// 30 runs, half a second.
    fn default() -> Effort {
        Effort { runs: 30, seconds: 0.5 }
    }
}

impl Effort {
    /// Runs that are made however long they take: three quartiles of fewer would say nothing.
    pub const FEWEST: u32 = 5;

    /// Runs to warm up: caches, clocks, and pages that were never touched.
    pub const WARM_UPS: u32 = 5;

    /// The runs of something that takes so many seconds.
    pub fn runs_of(&self, seconds: f64) -> u32 {
        let fitting = if seconds > 0.0 { (self.seconds / seconds) as u32 } else { u32::MAX };
        fitting.max(Effort::FEWEST).min(self.runs.max(1))
    }

    /// The runs to warm up before them: fewer where a run is long.
    pub fn warm_ups_of(&self, seconds: f64) -> u32 {
        (self.runs_of(seconds) / 6).clamp(1, Effort::WARM_UPS)
    }
}

/// Seconds of every run.
#[derive(Clone, PartialEq, Debug)]
pub struct Times {
    sorted: Vec<f64>,
}

impl Times {
    /// Runs something so often, at least once; each run says its seconds.
    ///
    /// # Errors
    /// What a run returns.
    pub fn of_runs(runs: u32, run: &mut dyn FnMut() -> Result<f64>) -> Result<Times> {
        let mut sorted = vec![run()?];
        for _ in 1..runs {
            sorted.push(run()?);
        }
        sorted.sort_by(f64::total_cmp);
        Ok(Times { sorted })
    }

    /// How many there were.
    pub fn runs(&self) -> usize {
        self.sorted.len()
    }

    /// The median, in seconds.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// The quartiles, in seconds: half of all runs lie between them.
    pub fn quartiles(&self) -> (f64, f64) {
        (self.quantile(0.25), self.quantile(0.75))
    }

    /// The fastest and the slowest run, in seconds.
    pub fn range(&self) -> (f64, f64) {
        (self.quantile(0.0), self.quantile(1.0))
    }

    /// The same times, each divided: of one call, where a run was several.
    pub fn divided_by(mut self, calls: u32) -> Times {
        self.sorted.iter_mut().for_each(|seconds| *seconds /= f64::from(calls.max(1)));
        self
    }

    /// Between two runs where the quantile lies between them.
    fn quantile(&self, part: f64) -> f64 {
        let at = part * (self.sorted.len() - 1) as f64;
        let (low, high) = (self.sorted[at.floor() as usize], self.sorted[at.ceil() as usize]);
        low + (high - low) * at.fract()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(seconds: &[f64]) -> Times {
        let mut seconds = seconds.iter();
        Times::of_runs(seconds.len() as u32, &mut || Ok(*seconds.next().unwrap())).unwrap()
    }

    #[test]
    fn quantiles_lie_between_runs() {
        let odd = times(&[5.0, 1.0, 2.0, 4.0, 3.0]);
        assert_eq!((odd.median(), odd.quartiles(), odd.range()), (3.0, (2.0, 4.0), (1.0, 5.0)));
        let even = times(&[4.0, 2.0]);
        assert_eq!((even.median(), even.quartiles(), even.runs()), (3.0, (2.5, 3.5), 2));
        let one = times(&[8.0]).divided_by(4);
        assert_eq!((one.median(), one.quartiles(), one.range()), (2.0, (2.0, 2.0), (2.0, 2.0)));
        assert_eq!(Times::of_runs(0, &mut || Ok(1.0)).unwrap().runs(), 1);
    }

    #[test]
    fn long_runs_are_few() {
        let effort = Effort { runs: 30, seconds: 0.5 };
        assert_eq!([0.0, 1e-6, 0.02, 0.05, 0.2, 9.0].map(|s| effort.runs_of(s)), [30, 30, 25, 10, 5, 5]);
        assert_eq!([1e-6, 0.05, 9.0].map(|s| effort.warm_ups_of(s)), [5, 1, 1]);
        let few = Effort { runs: 2, seconds: 0.5 };
        assert_eq!([1e-6, 9.0].map(|s| few.runs_of(s)), [2, 2]);
        assert_eq!(Effort { runs: 0, seconds: 0.0 }.runs_of(1.0), 1);
    }
}
