use crate::{events::tests::support::occurrence, testing::Log};

/// Proves events/sinks.
#[test]
fn log_line_has_object_type_reason_and_message() {
    let log = Log::capture();
    super::log(&occurrence("web", "Pulled", "image is there"));
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
