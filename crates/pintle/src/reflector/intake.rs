//! From bytes to objects, and what is told of those that are none.

use std::sync::Arc;

use tokio::{sync::watch, time::Instant};

use super::{
    collect::Collection,
    metrics::Counters,
    sink::Unread,
    status::{Status, Unreadable, UnreadableError},
};
use crate::{
    object::{Kind, Object, ObjectKey, Reader},
    source::{BodyError, RawItem, peek_key, peek_resource_version, peek_type, peek_uid},
};

/// So many unreadable objects are logged as warnings.
const WARNINGS: u64 = 20;

/// What turns bytes into objects, and tells of those it could not.
pub(super) struct Intake<K: Kind> {
    pub(super) reader: Reader<K>,
    pub(super) target: Arc<str>,
    pub(super) expected: Option<(String, String)>,
    pub(super) counters: Counters,
    pub(super) status: watch::Sender<Status>,
}

/// What became of the object of an event.
pub(super) enum Read<K> {
    Object(Object<K>),
    /// It could not be read; which it is and its version are known or not.
    Lost {
        unread: Option<Unread>,
        version: Option<String>,
    },
    /// It is no object of ours.
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
        if let Some(unread) = self.lost(json, error) {
            found.put_unread(unread);
        }
    }

    /// Tells of an object that could not be read; which one it is, if that can be known.
    fn lost(&mut self, json: &[u8], error: UnreadableError) -> Option<Unread> {
        let key = match &error {
            UnreadableError::Read(error) => error.key().cloned(),
            _ => None,
        };
        let key = key.or_else(|| peek_key(json));
        let named = key.clone().map(|key| Unread {
            key,
            uid: peek_uid(json).map(str::to_owned),
        });
        self.unreadable(key, error);
        named
    }

    /// Reads the object of an event.
    pub(super) fn read(&mut self, json: &[u8]) -> Read<K> {
        if let Some(error) = self.wrong_type(json) {
            self.unreadable(peek_key(json), error);
            return Read::Foreign;
        }
        match self.reader.read(json) {
            Ok(object) => Read::Object(object),
            Err(error) => Read::Lost {
                unread: self.lost(json, error.into()),
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
        self.unreadable(peek_key(object), UnreadableError::UnknownEvent(kind));
    }

    fn unreadable(&mut self, key: Option<ObjectKey>, error: UnreadableError) {
        let unreadable = Arc::new(Unreadable {
            key,
            target: self.target.clone(),
            error,
        });
        // A kind of which nothing can be read must not drown the log; metric and status go on.
        if self.status.borrow().unreadable < WARNINGS {
            tracing::warn!(target: "pintle::reflector", "passed over {unreadable}");
        } else {
            tracing::debug!(target: "pintle::reflector", "passed over {unreadable}");
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

    pub(super) fn warn_of_missing_marker(&self, events: u64, heard: Instant, started: Instant) {
        let target = &self.target;
        if events == 0 {
            tracing::warn!(
                target: "pintle::reflector",
                "the streaming list of {target} has told nothing for {:?}", started.elapsed()
            );
        } else {
            tracing::warn!(
                target: "pintle::reflector",
                "the streaming list of {target} has not ended; its last event was {:?} ago",
                heard.elapsed()
            );
        }
    }
}
