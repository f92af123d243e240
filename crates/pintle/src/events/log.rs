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
    use crate::{events::tests::support::occurrence, testing::Log};

    /// Proves events/sinks.
    #[test]
    fn a_line_tells_object_type_reason_and_message() {
        let log = Log::capture();
        super::write(&occurrence("web", "Pulled", "image is there"));
        let text = log.text();
        for field in [
            r#"object="shop/web""#,
            r#"kind="Pod""#,
            r#"api_version="v1""#,
            r#"type="Normal""#,
            r#"reason="Pulled""#,
            r#"note="image is there""#,
        ] {
            assert!(text.contains(field), "{field} in {text}");
        }
    }
}
