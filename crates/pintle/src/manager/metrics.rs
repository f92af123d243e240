//! The metrics of a manager.

use crate::metrics::{Counter, Families, Family, Gauge, MetricSet, label_set};

label_set! {
    struct ByComponent {
        component: String,
    }
}

label_set! {
    struct Build {
        name: String,
        version: String,
        pintle_version: &'static str,
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct ManagerMetrics {
    running: Family<ByComponent, Gauge>,
    failures: Family<ByComponent, Counter>,
    build: Family<Build, Gauge>,
}

impl MetricSet for ManagerMetrics {
    fn register(&self, families: &mut Families) {
        families.register(
            "manager_component_running",
            "Whether a component runs on this replica: 1 if it does, 0 if it does not",
            self.running.clone(),
        );
        families.register(
            "manager_component_failures",
            "Failures and panics of a component",
            self.failures.clone(),
        );
        families.register(
            "build_info",
            "The version of the program; always 1",
            self.build.clone(),
        );
    }
}

impl ManagerMetrics {
    pub(super) fn set_build_info(&self, name: &str, version: &str) {
        let build = Build {
            name: name.to_owned(),
            version: version.to_owned(),
            pintle_version: env!("CARGO_PKG_VERSION"),
        };
        self.build.get_or_create(&build).set(1);
    }

    pub(super) fn of(&self, component: &str) -> ComponentMetrics {
        let label = ByComponent {
            component: component.to_owned(),
        };
        ComponentMetrics {
            running: self.running.get_or_create_owned(&label),
            failures: self.failures.get_or_create_owned(&label),
        }
    }
}

/// The metrics of one component.
#[derive(Clone, Debug)]
pub(super) struct ComponentMetrics {
    running: Gauge,
    pub(super) failures: Counter,
}

impl ComponentMetrics {
    /// Counts the component as running until the guard is dropped.
    pub(super) fn running(&self) -> Running {
        self.running.set(1);
        Running(self.running.clone())
    }
}

pub(super) struct Running(Gauge);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.set(0);
    }
}
