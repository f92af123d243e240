//! The metrics of webhooks, under controller-runtime's names.

use crate::metrics::{Counter, Families, Family, Histogram, MetricSet, label_set};

/// The buckets of controller-runtime's webhook latency.
const SECONDS: [f64; 12] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

label_set! {
    struct ByCode {
        webhook: String,
        code: u16,
    }
}

label_set! {
    struct ByWebhook {
        webhook: String,
    }
}

#[derive(Clone, Debug)]
pub(super) struct WebhookMetrics {
    requests: Family<ByCode, Counter>,
    panics: Counter,
    latency: Family<ByWebhook, Histogram>,
}

impl Default for WebhookMetrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            panics: Counter::default(),
            latency: Family::new_with_constructor(|| Histogram::new(SECONDS)),
        }
    }
}

impl MetricSet for WebhookMetrics {
    fn register(&self, families: &mut Families) {
        families.register(
            "controller_runtime_webhook_requests",
            "Admission and conversion requests by response code",
            self.requests.clone(),
        );
        families.register(
            "controller_runtime_webhook_panics",
            "Panics in webhooks",
            self.panics.clone(),
        );
        families.register_seconds(
            "controller_runtime_webhook_latency",
            "How long webhooks took to respond",
            self.latency.clone(),
        );
    }
}

impl WebhookMetrics {
    pub(super) fn answered(&self, webhook: &str, code: u16, seconds: f64) {
        let by_code = ByCode {
            webhook: webhook.to_owned(),
            code,
        };
        self.requests.get_or_create(&by_code).inc();
        let by_webhook = ByWebhook {
            webhook: webhook.to_owned(),
        };
        self.latency.get_or_create(&by_webhook).observe(seconds);
    }

    pub(super) fn panicked(&self) {
        self.panics.inc();
    }
}
