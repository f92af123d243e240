//! The data of the inspector, as its API returns it and as traces store it.
//!
//! The types serialize to the JSON that `docs/inspect.md` documents. Fields are only ever added,
//! and readers ignore fields and entry types they do not know.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The format of a [`Trace`].
pub const TRACE_FORMAT: &str = "pintle.trace/v1";

/// A recording: what `/api/v1/trace` returns.
///
/// All times are seconds since the record began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Trace {
    /// [`TRACE_FORMAT`].
    pub format: String,
    /// The program that was recorded.
    pub program: String,
    /// When the record began, in RFC 3339.
    pub started: String,
    /// When the record was read.
    pub now: f64,
    /// The controllers, with totals and queues.
    pub controllers: Vec<Controller>,
    /// The informers.
    pub informers: Vec<Informer>,
    /// The keys, each with its record.
    pub keys: Vec<KeyLife>,
}

/// The state of the program: what `/api/v1/now` returns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Now {
    /// The program.
    pub program: String,
    /// When the record began, in RFC 3339.
    pub started: String,
    /// The time of this answer.
    pub now: f64,
    /// The controllers.
    pub controllers: Vec<Controller>,
    /// The informers.
    pub informers: Vec<Informer>,
    /// One page of the keys that match the request; keys with problems come first.
    pub keys: Vec<KeyRow>,
    /// How many keys match the request.
    pub matching: usize,
}

/// A controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Controller {
    /// Its name.
    pub name: String,
    /// The kind it reconciles.
    pub kind: String,
    /// The kinds that wake it, its own first.
    pub watches: Vec<String>,
    /// How many workers run. Zero on a replica that is not the leader.
    pub workers: usize,
    /// Its queue.
    pub queue: Queue,
    /// Counts since the start.
    pub totals: Totals,
}

/// The number of keys in each state of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Queue {
    /// Keys that wait for a worker.
    pub ready: usize,
    /// Keys whose delay has not expired.
    pub delayed: usize,
    /// Keys that are being reconciled.
    pub processing: usize,
    /// Keys that wait until a cache shows their own writes.
    pub parked: usize,
    /// How long the longest-running key has been processed, in milliseconds.
    pub longest_millis: u64,
}

/// Counts of a controller since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Totals {
    /// Events that woke a key.
    pub wakes: u64,
    /// Reconciles.
    pub reconciles: u64,
    /// Reconciles that failed.
    pub failures: u64,
    /// Writes.
    pub writes: u64,
    /// Keys with a record.
    pub keys: u64,
    /// Entries that were dropped because a key's ring or the whole record was full.
    pub dropped: u64,
}

/// An informer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Informer {
    /// What it watches: `pods at cluster scope`.
    pub name: String,
    /// The kind.
    pub kind: String,
    /// `synced`, `syncing`, `behind`, `stopped` or `dead`.
    pub state: String,
    /// The phase of its reflector, or why it is not synced, in words.
    pub reason: String,
    /// How many objects its cache holds.
    pub objects: usize,
    /// Changes since the start.
    pub changes: u64,
    /// Changes that wait to be applied to the cache.
    pub fifo: usize,
    /// The `resourceVersion` that the cache has reached.
    pub version: String,
    /// The handlers.
    pub handlers: Vec<Handler>,
}

impl Informer {
    /// Returns whether the cache follows the server.
    pub fn is_healthy(&self) -> bool {
        self.state == "synced"
    }
}

/// A handler of an informer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Handler {
    /// Its name.
    pub name: String,
    /// Events that wait for it.
    pub pending: usize,
}

/// A key in a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KeyRow {
    /// The controller.
    pub controller: String,
    /// The kind of the object.
    pub kind: String,
    /// `namespace/name`.
    pub key: String,
    /// Where the key is in the queue.
    pub state: KeyState,
    /// Whether something is wrong, as far as the record and the object show.
    pub verdict: Verdict,
    /// Why the key is not running or its object not ready, in one sentence.
    pub why: String,
    /// When the last entry was recorded.
    pub last: f64,
    /// How many reconciles failed in a row.
    pub failures: u32,
}

/// Where a key is in the queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "state")]
pub enum KeyState {
    /// It waits for a change.
    #[default]
    Idle,
    /// It waits for a worker.
    Ready {
        /// For how long, in seconds.
        seconds: f64,
        /// How many keys are ahead of it, at most.
        ahead: usize,
    },
    /// It waits until its delay expires.
    Delayed {
        /// How long is left, in seconds.
        left: f64,
    },
    /// A worker is reconciling it.
    Processing {
        /// For how long, in seconds.
        seconds: f64,
    },
    /// It waits until a cache shows its own writes.
    Parked {
        /// For how long, in seconds.
        seconds: f64,
    },
}

/// The life of a key: what `/api/v1/key` returns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KeyLife {
    /// The controller.
    pub controller: String,
    /// The kind of the object.
    pub kind: String,
    /// `namespace/name`.
    pub key: String,
    /// The time of this answer.
    pub now: f64,
    /// Where the key is in the queue.
    pub state: KeyState,
    /// Why the key is not running or its object not ready.
    pub why: Why,
    /// The record, oldest first.
    pub entries: Vec<Entry>,
    /// How many older entries were dropped.
    pub dropped: u64,
    /// The object with its owners and children, and objects that the last error names.
    pub tree: Vec<Node>,
    /// Whether the tree may lack objects below the key's own, because there are too many.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// The answer to "why is it not running, or not ready?".
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Why {
    /// Whether something is wrong.
    pub verdict: Verdict,
    /// One sentence.
    pub sentence: String,
}

/// Whether something is wrong with a key.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// Something is wrong, and waiting alone does not help.
    Failing,
    /// Work is in progress or about to start.
    Waiting,
    /// Nothing is known about the object.
    #[default]
    Unknown,
    /// Everything is as it should be.
    Fine,
}

/// One thing that happened to a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// When, in seconds since the record began.
    pub at: f64,
    /// How many times it happened in a row. The other fields describe the last time.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub times: u64,
    /// When it first happened, if more than once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<f64>,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

fn once() -> u64 {
    1
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_once(times: &u64) -> bool {
    *times == 1
}

/// What happened to a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "type")]
pub enum What {
    /// An event enqueued the key.
    #[serde(rename_all = "camelCase")]
    Woke {
        /// The kind of the object that changed.
        kind: String,
        /// Its key.
        object: String,
        /// `added`, `listed`, `updated` or `deleted`.
        change: String,
        /// Which trigger mapped the object to the key: `own`, `owner`, `mapper` or `reference`.
        via: String,
        /// The changed fields by path; empty if the states left memory before they were first read.
        #[serde(default)]
        fields: Vec<String>,
        /// A summary of an update, even if its states are no longer in memory: `generation 3 to 4`.
        #[serde(default)]
        summary: String,
    },
    /// A reconcile.
    #[serde(rename_all = "camelCase")]
    Reconcile {
        /// Its number, as in logs and spans.
        id: u64,
        /// Why it ran.
        cause: String,
        /// 1 for the first try, 2 for the first retry.
        attempt: u32,
        /// How long it took.
        seconds: f64,
        /// `ok`, `requeue`, `error`, `terminal`, `panic` or `timeout`.
        outcome: String,
        /// The error.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// A write of a reconcile.
    #[serde(rename_all = "camelCase")]
    Write {
        /// The number of the reconcile.
        id: u64,
        /// `create`, `replace`, `patch`, `apply` or `delete`.
        verb: String,
        /// The kind, or the resource if the kind is not known.
        kind: String,
        /// The key of the object.
        object: String,
        /// The subresource, or empty.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        subresource: String,
        /// The changed fields by path.
        #[serde(default)]
        fields: Vec<String>,
        /// How long it took, with any wait for a rate limit.
        seconds: f64,
        /// The status code of the response; 0 if there was none.
        status: u16,
        /// The server's message, or why there was no response.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// A wait.
    #[serde(rename_all = "camelCase")]
    Delay {
        /// `backOff`, `requeue`, `ownWrite` or `rateLimit`.
        reason: String,
        /// How long, in seconds; for a wait in progress, its planned length.
        seconds: f64,
    },
    /// Something else, such as a fault that a trial injected.
    Note {
        /// The text to show.
        text: String,
    },
}

/// An object in a tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Node {
    /// `apiVersion`.
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// `namespace/name`.
    pub key: String,
    /// The UID.
    pub uid: String,
    /// The UID of the node above it, or empty.
    pub parent: String,
    /// How the object relates to the key: `self`, `owner`, `child` or `named`, for one that the
    /// last error names.
    pub role: String,
    /// Its controller: `Foo default/web`, or empty.
    pub controller: String,
    /// The status by the rules of kstatus.
    pub status: String,
    /// Why it has this status.
    pub message: String,
    /// The events about it, newest first.
    pub events: Vec<Event>,
    /// The object without secrets and `managedFields`.
    pub object: Value,
    /// The values that its last change replaced.
    pub diff: Vec<Changed>,
}

/// An event about an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Event {
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub type_: String,
    /// The reason.
    pub reason: String,
    /// The message.
    pub message: String,
    /// How many times it happened.
    pub count: i64,
    /// When it last happened, in RFC 3339.
    pub last: String,
}

/// A field that changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Changed {
    /// The path: `spec.replicas`.
    pub path: String,
    /// The value before; null if it was absent.
    pub before: Value,
    /// The value after; null if it is absent.
    pub after: Value,
}
