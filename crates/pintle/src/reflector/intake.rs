//! Reads bytes into objects and reports those that cannot be read.

use std::sync::Arc;

use tokio::{sync::watch, time::Instant};

use super::{
    Unread,
    collect::Collection,
    metrics::Counters,
    status::{Status, Unreadable, UnreadableError},
};
use crate::{
    object::{Kind, Object, ObjectKey, Reader},
    source::{BodyError, RawItem, peek_key, peek_resource_version, peek_type, peek_uid},
};

/// How many unreadable objects are logged as warnings; the rest are logged at debug level.
const WARNINGS: u64 = 20;

/// Reads bytes into objects and reports those that cannot be read.
pub(super) struct Intake<K: Kind> {
    pub(super) reader: Reader<K>,
    pub(super) target: Arc<str>,
    pub(super) expected: Option<(String, String)>,
    pub(super) counters: Counters,
    pub(super) status: watch::Sender<Status>,
}

/// The outcome of reading the object of an event.
pub(super) enum Read<K> {
    Object(Object<K>),
    /// It could not be read. Its key and `resourceVersion` may still be known.
    Unreadable {
        unread: Option<Unread>,
        version: Option<String>,
    },
    /// It is of another kind.
    Foreign,
}

impl<K: Kind> Intake<K> {
    /// Reads an item of a list.
    pub(super) fn item(&mut self, item: RawItem<'_>, found: &mut Collection<K>) {
        let (json, error) = match item {
            RawItem::Json(json) => match self.reader.read(json) {
                Ok(object) => return found.put(object),
                Err(error) => (json, error.into()),
            },
            RawItem::TooLarge { head, limit } => {
                let what = "an item of the list";
                (head, BodyError::TooLarge { what, limit }.into())
            }
        };
        if let Some(unread) = self.report_unread(json, error) {
            found.put_unread(unread);
        }
    }

    /// Reports an object that could not be read. Returns its identity, if known.
    fn report_unread(&mut self, json: &[u8], error: UnreadableError) -> Option<Unread> {
        let key = match &error {
            UnreadableError::Read(error) => error.key().cloned(),
            _ => None,
        };
        let key = key.or_else(|| peek_key(json));
        let unread = key.clone().map(|key| Unread {
            key,
            uid: peek_uid(json).map(str::to_owned),
        });
        self.report(key, error);
        unread
    }

    /// Reads the object of an event.
    pub(super) fn read(&mut self, json: &[u8]) -> Read<K> {
        if let Some(error) = self.wrong_type(json) {
            self.report(peek_key(json), error);
            return Read::Foreign;
        }
        match self.reader.read(json) {
            Ok(object) => Read::Object(object),
            Err(error) => Read::Unreadable {
                unread: self.report_unread(json, error.into()),
                version: peek_resource_version(json),
            },
        }
    }

    fn wrong_type(&self, json: &[u8]) -> Option<UnreadableError> {
        let (api_version, kind) = match peek_type(json) {
            (None, None) => return None,
            (api_version, kind) => (api_version.unwrap_or_default(), kind.unwrap_or_default()),
        };
        let right = match &self.expected {
            Some((expected_version, expected_kind)) => {
                expected_version == api_version && expected_kind == kind
            }
            None => !(kind == "Table" && api_version.starts_with("meta.k8s.io/")),
        };
        (!right).then(|| UnreadableError::WrongType {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        })
    }

    pub(super) fn unknown_event(&mut self, kind: String, object: &[u8]) {
        self.report(peek_key(object), UnreadableError::UnknownEvent(kind));
    }

    fn report(&mut self, key: Option<ObjectKey>, error: UnreadableError) {
        let unreadable = Arc::new(Unreadable {
            key,
            target: self.target.clone(),
            error,
        });
        // A kind whose objects are all unreadable must not flood the log; metrics and status still
        // count them.
        if self.status.borrow().unreadable < WARNINGS {
            tracing::warn!(target: "pintle::reflector", error = %unreadable, "skipping unreadable object");
        } else {
            tracing::debug!(target: "pintle::reflector", error = %unreadable, "skipping unreadable object");
        }
        self.counters.unreadable.inc();
        self.status.send_modify(|status| {
            status.unreadable += 1;
            status.last_unreadable = Some(unreadable);
        });
    }

    pub(super) fn note_version(&self, version: &str) {
        if let Ok(version) = version.parse() {
            self.counters.last_resource_version.set(version);
        }
    }

    pub(super) fn warn_missing_marker(&self, events: u64, last_event: Instant, started: Instant) {
        let source = &self.target;
        if events == 0 {
            tracing::warn!(
                target: "pintle::reflector", %source, elapsed = ?started.elapsed(),
                "still waiting for the first event of the streaming list"
            );
        } else {
            tracing::warn!(
                target: "pintle::reflector", %source, events, last_event = ?last_event.elapsed(),
                "still waiting for the end of the streaming list"
            );
        }
    }
}
