//! Sinks that call a function: the one that writes the log, or one of the user's.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{delivery::Inbox, occurrence::Occurrence};

/// Calls `watcher` for every occurrence until the broadcaster shuts down.
pub(super) async fn watch(mut inbox: Inbox, mut watcher: impl FnMut(&Occurrence)) {
    let counters = inbox.retry.counters.clone();
    while let Some(occurrence) = inbox.next().await {
        match catch_unwind(AssertUnwindSafe(|| watcher(&occurrence))) {
            Ok(()) => counters.written.inc(),
            Err(_panic) => {
                let reason = &occurrence.reason;
                tracing::error!(reason, "event watcher panicked; continuing");
                counters.failed.inc()
            }
        };
    }
    inbox.abandon(0);
}

/// Logs an occurrence in one line, with the fields that every Kubernetes component logs.
pub(super) fn log(occurrence: &Occurrence) {
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
mod tests;
