//! The metrics of a controller, under controller-runtime's names.

use crate::metrics::{Counter, Families, Family, Gauge, Histogram, MetricSet, Metrics, label_set};

label_set! {
    struct ByController {
        controller: String,
    }
}

label_set! {
    struct ByResult {
        controller: String,
        result: &'static str,
    }
}

fn seconds() -> Histogram {
    Histogram::new([
        0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    ])
}

#[derive(Clone)]
struct Set {
    reconciles: Family<ByResult, Counter>,
    errors: Family<ByController, Counter>,
    terminal_errors: Family<ByController, Counter>,
    panics: Family<ByController, Counter>,
    timeouts: Family<ByController, Counter>,
    seconds: Family<ByController, Histogram, fn() -> Histogram>,
    max_concurrent: Family<ByController, Gauge>,
    active: Family<ByController, Gauge>,
    parked: Family<ByController, Counter>,
    stale: Family<ByController, Counter>,
    unseen_writes: Family<ByController, Gauge>,
}

impl Default for Set {
    fn default() -> Self {
        Self {
            reconciles: Family::default(),
            errors: Family::default(),
            terminal_errors: Family::default(),
            panics: Family::default(),
            timeouts: Family::default(),
            seconds: Family::new_with_constructor(seconds),
            max_concurrent: Family::default(),
            active: Family::default(),
            parked: Family::default(),
            stale: Family::default(),
            unseen_writes: Family::default(),
        }
    }
}

impl MetricSet for Set {
    fn register(&self, families: &mut Families) {
        families.register(
            "controller_runtime_reconcile",
            "Reconciles by result",
            self.reconciles.clone(),
        );
        families.register(
            "controller_runtime_reconcile_errors",
            "Reconciles that failed",
            self.errors.clone(),
        );
        families.register(
            "controller_runtime_terminal_reconcile_errors",
            "Reconciles that failed with a terminal error",
            self.terminal_errors.clone(),
        );
        families.register(
            "controller_runtime_reconcile_panics",
            "Reconciles that panicked",
            self.panics.clone(),
        );
        families.register(
            "controller_runtime_reconcile_timeouts",
            "Reconciles that exceeded their time limit",
            self.timeouts.clone(),
        );
        families.register(
            "controller_runtime_reconcile_time_seconds",
            "Duration of reconciles",
            self.seconds.clone(),
        );
        families.register(
            "controller_runtime_max_concurrent_reconciles",
            "Workers of the controller",
            self.max_concurrent.clone(),
        );
        families.register(
            "controller_runtime_active_workers",
            "Workers that are reconciling",
            self.active.clone(),
        );
        families.register(
            "controller_runtime_reconcile_parked",
            "Keys that waited for a cache to show their own writes",
            self.parked.clone(),
        );
        families.register(
            "controller_runtime_reconcile_stale",
            "Keys that ran although a cache did not show their own writes in time",
            self.stale.clone(),
        );
        families.register(
            "controller_runtime_reconcile_unseen_writes",
            "Keys with writes that a cache does not show yet",
            self.unseen_writes.clone(),
        );
    }
}

/// The metrics of one controller.
#[derive(Clone)]
pub(super) struct ControllerMetrics {
    pub(super) success: Counter,
    pub(super) error: Counter,
    pub(super) requeue_after: Counter,
    pub(super) errors: Counter,
    pub(super) terminal_errors: Counter,
    pub(super) panics: Counter,
    pub(super) timeouts: Counter,
    pub(super) seconds: Histogram,
    pub(super) max_concurrent: Gauge,
    pub(super) active: Gauge,
    pub(super) parked: Counter,
    pub(super) stale: Counter,
    pub(super) unseen_writes: Gauge,
}

impl ControllerMetrics {
    pub(super) fn new(metrics: &Metrics, controller: &str) -> Self {
        let set = metrics.set::<Set>();
        let by = ByController {
            controller: controller.to_owned(),
        };
        let result = |result| {
            let labels = ByResult {
                controller: controller.to_owned(),
                result,
            };
            set.reconciles.get_or_create(&labels).clone()
        };
        Self {
            success: result("success"),
            error: result("error"),
            requeue_after: result("requeue_after"),
            errors: set.errors.get_or_create(&by).clone(),
            terminal_errors: set.terminal_errors.get_or_create(&by).clone(),
            panics: set.panics.get_or_create(&by).clone(),
            timeouts: set.timeouts.get_or_create(&by).clone(),
            seconds: set.seconds.get_or_create(&by).clone(),
            max_concurrent: set.max_concurrent.get_or_create(&by).clone(),
            active: set.active.get_or_create(&by).clone(),
            parked: set.parked.get_or_create(&by).clone(),
            stale: set.stale.get_or_create(&by).clone(),
            unseen_writes: set.unseen_writes.get_or_create(&by).clone(),
        }
    }
}
