//! Events as lines of the log.

use super::occurrence::Occurrence;

/// One line per event, with the fields every Kubernetes component logs.
pub(super) fn write(occurrence: &Occurrence) {
    let Occurrence {
        regarding,
        event_type,
        reason,
        message,
        ..
    } = occurrence;
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    let object = match &regarding.namespace {
        Some(namespace) => format!("{namespace}/{}", part(&regarding.name)),
        None => part(&regarding.name),
    };
    tracing::info!(
        object,
        field_path = part(&regarding.field_path),
        kind = part(&regarding.kind),
        api_version = part(&regarding.api_version),
        r#type = event_type.as_str(),
        reason,
        message = "Event occurred",
        note = message,
    );
}

#[cfg(test)]
mod tests {
    use std::{fmt, sync::Arc};

    use parking_lot::Mutex;
    use tracing::{
        Event, Metadata, Subscriber,
        field::{Field, Visit},
        span,
    };

    use crate::events::testing::occurrence;

    /// Keeps the fields of every line.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);

    impl Visit for Lines {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            self.0.lock().push(format!("{field}={value:?}"));
        }
    }

    impl Subscriber for Lines {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }
        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn event(&self, event: &Event<'_>) {
            event.record(&mut self.clone());
        }
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }

    /// Proves E-5.
    #[test]
    fn a_line_tells_object_type_reason_and_message() {
        let lines = Lines::default();
        let seen = occurrence("web", "Pulled", "image is there");
        tracing::subscriber::with_default(lines.clone(), || super::write(&seen));
        let lines = lines.0.lock();
        for field in [
            r#"object="shop/web""#,
            r#"kind="Pod""#,
            r#"api_version="v1""#,
            r#"type="Normal""#,
            r#"reason="Pulled""#,
            r#"note="image is there""#,
        ] {
            assert!(
                lines.iter().any(|line| line == field),
                "{field} in {lines:?}"
            );
        }
    }
}
