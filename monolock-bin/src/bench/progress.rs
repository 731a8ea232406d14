//! The bar on a terminal: what is being done and how far. Where stderr is no terminal there is none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::args::Scenario;
use super::plan::Plan;

/// How often it is drawn anew.
const TICK: Duration = Duration::from_millis(100);

/// Tells how far it is. It has no colours, so there are none to be turned off by `NO_COLOR`.
pub(crate) struct Progress {
    bar: ProgressBar,
    operations: Arc<AtomicU64>,
}

impl Progress {
    pub(crate) fn start(plan: &Plan) -> Self {
        let operations = Arc::new(AtomicU64::new(0));
        let bar = ProgressBar::new(plan.duration.as_millis().try_into().unwrap_or(u64::MAX));
        let counted = Arc::clone(&operations);
        let length = plan.duration;
        let style = ProgressStyle::with_template("{msg} [{wide_bar}] {rest}").expect("the template is right");
        let style = style.progress_chars("=> ").with_key(
            "rest",
            move |state: &indicatif::ProgressState, out: &mut dyn std::fmt::Write| {
                let left = length.saturating_sub(state.elapsed()).as_secs();
                let _ = write!(out, "{} done, {left}s left", counted.load(Ordering::Relaxed));
            },
        );
        bar.set_style(style);
        bar.set_message(Scenario::name(plan.scenario));
        bar.enable_steady_tick(TICK);
        Self { bar, operations }
    }

    /// What operations are counted with as they are done.
    pub(crate) fn counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.operations)
    }

    pub(crate) fn begin(&self, step: &'static str) {
        self.bar.set_message(step);
    }

    /// So much of the time is over.
    pub(crate) fn elapsed(&self, elapsed: Duration) {
        self.bar.set_position(elapsed.as_millis().try_into().unwrap_or(u64::MAX));
    }

    pub(crate) fn finish(self) {
        self.bar.finish_and_clear();
    }
}
