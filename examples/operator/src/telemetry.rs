//! Logs to stderr and, if `OTEL_TRACES_EXPORTER=console` is set, OpenTelemetry spans to stdout.
//!
//! Pintle opens one tracing span per reconcile, with the controller, the key, what woke it and the
//! number of the attempt. `tracing-opentelemetry` turns it into an OpenTelemetry span, together
//! with any spans that the reconcile opens inside. To send spans to a collector, replace [`Print`]
//! with the exporter of `opentelemetry-otlp`.

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{SdkTracerProvider, SpanData, SpanExporter},
};
use tracing::{Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{
    Layer, layer::SubscriberExt, registry::LookupSpan, util::SubscriberInitExt,
};

/// Exports the last spans when it is dropped.
pub(crate) struct Traces(Option<SdkTracerProvider>);

impl Drop for Traces {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.0.as_ref().map(SdkTracerProvider::shutdown) {
            tracing::warn!(%error, "cannot export the last spans");
        }
    }
}

/// Installs the subscriber. Keep the result until the program ends.
pub(crate) fn install() -> Traces {
    let wanted = std::env::var("OTEL_TRACES_EXPORTER").is_ok_and(|exporter| exporter == "console");
    let provider = wanted.then(|| provider(Print));
    let logs = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    tracing_subscriber::registry()
        .with(LevelFilter::INFO)
        .with(provider.as_ref().map(layer))
        .with(logs)
        .init();
    Traces(provider)
}

/// Returns a provider that exports each span when it ends.
pub(crate) fn provider(exporter: impl SpanExporter + 'static) -> SdkTracerProvider {
    let provider = SdkTracerProvider::builder();
    provider.with_simple_exporter(exporter).build()
}

/// Returns the layer that turns tracing spans into OpenTelemetry spans.
pub(crate) fn layer<S>(provider: &SdkTracerProvider) -> impl Layer<S> + use<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    tracing_opentelemetry::layer().with_tracer(provider.tracer("operator"))
}

/// Prints a line per span.
#[derive(Debug)]
struct Print;

impl SpanExporter for Print {
    async fn export(&self, spans: Vec<SpanData>) -> OTelSdkResult {
        for span in spans {
            let attributes = span.attributes.iter();
            let attributes: Vec<_> = attributes
                .map(|pair| format!("{}={}", pair.key, pair.value))
                .collect();
            let trace = span.span_context.trace_id();
            println!("{trace} {} {}", span.name, attributes.join(" "));
        }
        Ok(())
    }
}
