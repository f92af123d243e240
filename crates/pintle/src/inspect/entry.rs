//! What the record stores: compact entries, and the states of objects behind them.

use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use super::{
    fields,
    model::{Changed, What},
    redact,
};
use crate::object::{Header, ObjectKey};

/// The longest error that is recorded, in bytes.
pub(super) const MAX_ERROR: usize = 2 << 10;

/// Returns a prefix of an error that is too long to be recorded, with an ellipsis; `None` if it is
/// short enough.
pub(super) fn shortened(error: &str) -> Option<String> {
    if error.len() <= MAX_ERROR {
        return None;
    }
    // Tokens are removed first: half a token is not recognized as one.
    let mut short = redact::text(error);
    short.truncate(short.floor_char_boundary(MAX_ERROR - '…'.len_utf8()));
    short.push('…');
    // Release the memory of the long string.
    short.shrink_to_fit();
    Some(short)
}

/// One thing that happened to a key.
#[derive(Clone)]
pub(super) struct Stored {
    pub(super) at: Instant,
    /// When it first happened.
    pub(super) since: Instant,
    pub(super) times: u64,
    pub(super) what: Happened,
}

#[derive(Clone)]
pub(super) enum Happened {
    Woke { change: Arc<Change>, via: Via },
    Reconciled(Reconciled),
    Wrote(Arc<Write>),
    Delayed { reason: Delay, length: Duration },
}

/// Which trigger mapped a changed object to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// The object is the key's own.
    Own,
    /// The object's controller is the key's object.
    Owner,
    /// A function mapped the object to the key.
    Mapper,
    /// The key's object names the object in a field.
    Reference,
}

impl Via {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Owner => "owner",
            Self::Mapper => "mapper",
            Self::Reference => "reference",
        }
    }
}

/// Why a key waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delay {
    /// Its last reconcile failed.
    BackOff,
    /// Its last reconcile requested it.
    Requeue,
    /// A cache does not show its own writes yet.
    OwnWrite,
    /// The client-side rate limit held up a request.
    RateLimit,
}

impl Delay {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::BackOff => "backOff",
            Self::Requeue => "requeue",
            Self::OwnWrite => "ownWrite",
            Self::RateLimit => "rateLimit",
        }
    }
}

/// How a reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// It succeeded; the key waits for a change.
    Ok,
    /// It succeeded and asked to run again.
    Requeue,
    /// It failed and is retried.
    Error,
    /// It failed and is not retried.
    Terminal,
    /// It panicked.
    Panic,
    /// It took too long and was dropped.
    Timeout,
}

impl Outcome {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Requeue => "requeue",
            Self::Error => "error",
            Self::Terminal => "terminal",
            Self::Panic => "panic",
            Self::Timeout => "timeout",
        }
    }

    pub(super) fn is_failure(self) -> bool {
        !matches!(self, Self::Ok | Self::Requeue)
    }
}

/// A finished reconcile.
#[derive(Clone)]
pub(crate) struct Reconciled {
    pub(crate) id: u64,
    /// The number of the cause, which the controller describes.
    pub(crate) cause: u8,
    pub(crate) attempt: u32,
    pub(crate) took: Duration,
    pub(crate) outcome: Outcome,
    pub(crate) error: Option<Arc<str>>,
    /// Why and after which delay it runs again.
    pub(crate) next: Option<(Delay, Duration)>,
}

/// A change of an object.
pub(crate) struct Change {
    kind: Arc<str>,
    object: ObjectKey,
    what: &'static str,
    generations: (Option<i64>, Option<i64>),
    states: Mutex<Option<States>>,
    paths: OnceLock<Vec<String>>,
}

/// The states before and after a change, as long as the budget allows.
#[derive(Clone)]
struct States {
    old: Arc<dyn Header>,
    new: Arc<dyn Header>,
}

impl Change {
    /// A change without two states to compare: an addition or a deletion.
    pub(super) fn of(kind: &Arc<str>, object: ObjectKey, what: &'static str) -> Self {
        Self {
            kind: Arc::clone(kind),
            object,
            what,
            generations: (None, None),
            states: Mutex::new(None),
            paths: OnceLock::new(),
        }
    }

    pub(super) fn update(kind: &Arc<str>, old: Arc<dyn Header>, new: Arc<dyn Header>) -> Self {
        Self {
            generations: (old.generation(), new.generation()),
            object: new.key().clone(),
            states: Mutex::new(Some(States { old, new })),
            ..Self::of(kind, ObjectKey::cluster(""), "updated")
        }
    }

    /// Returns an upper bound on the bytes that the states keep in memory.
    pub(super) fn weight(&self) -> usize {
        let states = self.states.lock();
        let bytes = |states: &States| states.old.bytes().len() + states.new.bytes().len();
        states.as_ref().map_or(0, bytes)
    }

    /// Returns the UID of the changed object, if its states are still held.
    pub(super) fn uid(&self) -> Option<String> {
        let states = self.states.lock();
        states.as_ref().map(|states| states.new.uid().to_owned())
    }

    /// Returns whether this is a second report of the same change.
    pub(super) fn is(&self, other: &Self) -> bool {
        let version = |change: &Self| {
            let states = change.states.lock();
            let states = states.as_ref()?;
            Some(states.new.resource_version().to_owned())
        };
        self.object == other.object
            && self.kind == other.kind
            && self.what == other.what
            && version(self) == version(other)
    }

    /// Returns the values that changed, without secrets.
    pub(super) fn diff(&self) -> Vec<Changed> {
        let Some(States { old, new }) = self.states.lock().clone() else {
            return Vec::new();
        };
        let parse = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap_or_default();
        let (mut old, mut new) = (parse(old.bytes()), parse(new.bytes()));
        let raw = fields::changed(&old, &new);
        redact::object(&self.kind, &mut old);
        redact::object(&self.kind, &mut new);
        let mut shown = fields::changed(&old, &new);
        // A secret that changed is listed, without its values.
        for hidden in raw {
            if !shown.iter().any(|shown| shown.path == hidden.path) {
                shown.push(Changed {
                    path: hidden.path,
                    before: redact::HIDDEN.into(),
                    after: redact::HIDDEN.into(),
                });
            }
        }
        shown
    }

    pub(super) fn describe(&self, via: Via) -> What {
        let held = self.states.lock().is_some();
        let fields = match self.paths.get() {
            Some(paths) => paths.clone(),
            None if held => {
                let diff = self.diff().into_iter().map(|changed| changed.path);
                self.paths.get_or_init(|| diff.collect()).clone()
            }
            None => Vec::new(),
        };
        What::Woke {
            kind: self.kind.to_string(),
            object: self.object.to_string(),
            change: self.what.to_owned(),
            via: via.as_str().to_owned(),
            fields,
            summary: self.summary(),
        }
    }

    fn summary(&self) -> String {
        match self.generations {
            (Some(old), Some(new)) if old != new => format!("generation {old} to {new}"),
            (Some(_), Some(_)) => "status or metadata".to_owned(),
            _ => String::new(),
        }
    }
}

/// The body of a request, and the cached state before it.
pub(super) type Request = (Bytes, Option<Arc<dyn Header>>);

/// A write of a reconcile.
pub(super) struct Write {
    pub(super) id: u64,
    pub(super) verb: &'static str,
    pub(super) kind: String,
    pub(super) object: String,
    pub(super) subresource: String,
    pub(super) took: Duration,
    pub(super) status: u16,
    pub(super) error: Option<String>,
    pub(super) held: Mutex<Option<Request>>,
    pub(super) paths: OnceLock<Vec<String>>,
}

impl Write {
    pub(super) fn weight(&self) -> usize {
        let held = self.held.lock();
        held.as_ref().map_or(0, |(body, before)| {
            body.len() + before.as_ref().map_or(0, |before| before.bytes().len())
        })
    }

    pub(super) fn describe(&self) -> What {
        What::Write {
            id: self.id,
            verb: self.verb.to_owned(),
            kind: self.kind.clone(),
            object: self.object.clone(),
            subresource: self.subresource.clone(),
            fields: self.fields(),
            seconds: self.took.as_secs_f64(),
            status: self.status,
            error: self.error.clone(),
        }
    }

    fn fields(&self) -> Vec<String> {
        if let Some(paths) = self.paths.get() {
            return paths.clone();
        }
        let Some((body, before)) = self.held.lock().clone() else {
            return Vec::new();
        };
        let parse = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).ok();
        let before = before.and_then(|before| parse(before.bytes()));
        let paths = match (self.verb, parse(&body)) {
            ("create" | "delete", _) | (_, None) => Vec::new(),
            ("replace", Some(after)) => match &before {
                Some(before) => {
                    let changed = fields::changed(before, &after).into_iter();
                    changed.map(|changed| changed.path).collect()
                }
                None => fields::written(None, &after),
            },
            // A JSON patch is a list of operations.
            (_, Some(Value::Array(steps))) => {
                let path = |step: &Value| step.get("path")?.as_str().map(str::to_owned);
                steps.iter().filter_map(path).collect()
            }
            (_, Some(patch)) => fields::written(before.as_ref(), &patch),
        };
        self.paths.get_or_init(|| paths).clone()
    }
}

/// Something that keeps the states of objects in memory.
enum Heavy {
    Change(Arc<Change>),
    Write(Arc<Write>),
}

/// The states that no longer fit into the budget. Dropping them can run user code, so the caller
/// drops them after releasing its locks.
#[must_use = "if unused, it is dropped under the lock of `Retained`"]
pub(super) struct Evicted(Vec<Heavy>);

impl Drop for Evicted {
    fn drop(&mut self) {
        for heavy in self.0.drain(..) {
            match heavy {
                Heavy::Change(change) => {
                    let states = change.states.lock().take();
                    drop(states);
                }
                Heavy::Write(write) => {
                    let held = write.held.lock().take();
                    drop(held);
                }
            }
        }
    }
}

/// The states that the record retains, oldest first, within a budget of bytes.
#[derive(Default)]
pub(super) struct Retained {
    queue: VecDeque<(Heavy, usize)>,
    bytes: usize,
}

impl Retained {
    pub(super) fn change(&mut self, change: &Arc<Change>, budget: usize) -> Evicted {
        let weight = change.weight();
        self.add(Heavy::Change(Arc::clone(change)), weight, budget)
    }

    pub(super) fn write(&mut self, write: &Arc<Write>, budget: usize) -> Evicted {
        let weight = write.weight();
        self.add(Heavy::Write(Arc::clone(write)), weight, budget)
    }

    fn add(&mut self, heavy: Heavy, weight: usize, budget: usize) -> Evicted {
        let mut evicted = Vec::new();
        if weight == 0 {
            return Evicted(evicted);
        }
        self.bytes += weight;
        self.queue.push_back((heavy, weight));
        while self.bytes > budget
            && let Some((oldest, weight)) = self.queue.pop_front()
        {
            self.bytes -= weight;
            evicted.push(oldest);
        }
        Evicted(evicted)
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}
