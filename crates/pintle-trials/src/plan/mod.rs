//! Plans: which faults to inject at which points. The text form of a plan is the replay token.
//!
//! ```text
//! crash-after@step/2/patch/configmaps/default/web#1;pace=paced;steps=0,2
//! └─ fault ─┘└───────────── point ───────────────┘
//! ```

pub(crate) mod families;
mod token;

use std::{fmt, time::Duration};

pub use self::token::TokenError;

/// A fault to inject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Fault {
    /// The process crashes before its request reaches the server.
    CrashBefore,
    /// The process crashes after its request was applied, before the response arrives.
    CrashAfter,
    /// The request is applied, but the connection breaks before the response.
    LostResponse,
    /// The request is applied, but the response is 504.
    Timeout,
    /// The server responds with this status code and applies nothing.
    Error(u16),
    /// The server responds with this status code that many times.
    Errors(u16, u32),
    /// The connection is refused.
    Refused,
    /// The server is unreachable for ten seconds, and its watch history is gone.
    ServerRestart,
    /// Another client changes the object just before the request, this many times.
    Rival(u32),
    /// The user deletes the object of the story right after the request.
    UserDelete,
    /// The user applies the next step right after the request.
    UserNext,
    /// The user deletes and recreates the object of the story right after the request.
    UserRecreate,
    /// The user deletes the namespace of the story's object right after the request.
    NamespaceDelete,
    /// Watch events of this resource arrive late.
    Delay(Duration),
    /// The watch ends before the event.
    Cut,
    /// The watch ends with 410 Gone before the event.
    Gone,
    /// The watch ends before the event and resumes only after the next change.
    Unobserved,
    /// The API server lags behind: lists that accept any version show an older state for a while.
    /// At an event, the process also crashes, and the next one starts from that state.
    TimeTravel,
    /// Another user deletes the object once the cluster is idle.
    DriftDelete,
    /// Another user resets the object to an earlier state.
    DriftEdit,
    /// Another user deletes the object, and a third user's finalizer delays the deletion.
    DriftHeld,
    /// The process is stopped while the user applies the step.
    Stopped,
    /// A finalizer of another user delays the deletion of the story's object.
    HeldFinalizer,
    /// The CRD of the story's object gets another version and a new property before the step.
    CrdUpgrade,
    /// The process crashes, and its request reaches the server only half a minute later.
    LateWrite,
    /// A second process starts right after the request, and the first one runs on for a while.
    Overlap,
    /// The process is cut off from the cluster for longer than a Lease lasts, and a second one
    /// starts. The request and everything after it arrive late.
    Paused,
    /// A mutating webhook adds annotations to everything the controller writes.
    Defaulting,
}

impl Fault {
    /// Returns whether users delete, change or recreate the object of the story.
    pub(crate) fn is_of_user(self) -> bool {
        matches!(
            self,
            Self::UserDelete | Self::UserNext | Self::UserRecreate | Self::NamespaceDelete
        )
    }

    /// Returns whether another user changes an object of the controller.
    pub(crate) fn is_drift(self) -> bool {
        matches!(self, Self::DriftDelete | Self::DriftEdit | Self::DriftHeld)
    }

    /// Returns whether two processes act at the same time, or one acts after its end.
    pub(crate) fn overlaps(self) -> bool {
        matches!(self, Self::Overlap | Self::LateWrite | Self::Paused)
    }

    /// Returns the name of the fault's family, as reports and tokens show it.
    pub fn name(self) -> String {
        match self {
            Self::CrashBefore => "crash-before".to_owned(),
            Self::CrashAfter => "crash-after".to_owned(),
            Self::LostResponse => "lost-response".to_owned(),
            Self::Timeout => "timeout".to_owned(),
            Self::Error(code) => format!("error-{code}"),
            Self::Errors(code, times) => format!("errors-{code}x{times}"),
            Self::Refused => "refused".to_owned(),
            Self::ServerRestart => "server-restart".to_owned(),
            Self::Rival(times) => format!("rival-{times}"),
            Self::UserDelete => "user-delete".to_owned(),
            Self::UserNext => "user-next".to_owned(),
            Self::UserRecreate => "user-recreate".to_owned(),
            Self::NamespaceDelete => "namespace-delete".to_owned(),
            Self::Delay(by) => format!("delay-{}ms", by.as_millis()),
            Self::Cut => "cut".to_owned(),
            Self::Gone => "gone".to_owned(),
            Self::Unobserved => "unobserved".to_owned(),
            Self::TimeTravel => "time-travel".to_owned(),
            Self::DriftDelete => "drift-delete".to_owned(),
            Self::DriftEdit => "drift-edit".to_owned(),
            Self::DriftHeld => "drift-held".to_owned(),
            Self::Stopped => "stopped".to_owned(),
            Self::HeldFinalizer => "held-finalizer".to_owned(),
            Self::CrdUpgrade => "crd-upgrade".to_owned(),
            Self::LateWrite => "late-write".to_owned(),
            Self::Overlap => "overlap".to_owned(),
            Self::Paused => "paused".to_owned(),
            Self::Defaulting => "defaulting".to_owned(),
        }
    }

    /// Describes the effect of the fault.
    pub fn describe(self) -> String {
        match self {
            Self::CrashBefore => {
                "the process crashed before this request reached the server".into()
            }
            Self::CrashAfter => "the process crashed right after this request was applied".into(),
            Self::LostResponse => "the request was applied, but its response was lost".into(),
            Self::Timeout => "the request was applied, but the response was 504".into(),
            Self::Error(code) => {
                format!("the server responded with {code} once and applied nothing")
            }
            Self::Errors(code, times) => format!("the server responded with {code} {times} times"),
            Self::Refused => "the connection was refused once".into(),
            Self::ServerRestart => {
                "the API server was down for ten seconds and lost its watch history".into()
            }
            Self::Rival(1) => "another client changed the object just before this request".into(),
            Self::Rival(times) => {
                format!("another client changed the object before each of {times} attempts")
            }
            Self::UserDelete => "the user deleted the object right after this request".into(),
            Self::UserNext => "the user applied the next step right after this request".into(),
            Self::UserRecreate => {
                "the user deleted and recreated the object right after this request".into()
            }
            Self::NamespaceDelete => "the user deleted the namespace right after this request".into(),
            Self::Delay(by) => format!("watch events of this resource arrived {by:?} late"),
            Self::Cut => "the watch ended before this event and was resumed".into(),
            Self::Gone => "the watch expired (410) before this event".into(),
            Self::Unobserved => {
                "the watch was down from this event until after the next change".into()
            }
            Self::TimeTravel => {
                "the API server served the state before this step for ten seconds; before an \
                 event, the process also restarted"
                    .into()
            }
            Self::DriftDelete => {
                "another user deleted this object while the cluster was idle".into()
            }
            Self::DriftEdit => "another user reset this object to an earlier state".into(),
            Self::DriftHeld => {
                "another user deleted this object, and a finalizer delayed the deletion".into()
            }
            Self::Stopped => "the process was not running while the user applied this step".into(),
            Self::HeldFinalizer => {
                "a finalizer of another user delayed the deletion by 30 seconds".into()
            }
            Self::CrdUpgrade => "the CRD got another version before this step".into(),
            Self::LateWrite => {
                "the process crashed, and this request arrived 30 seconds later".into()
            }
            Self::Overlap => {
                "a second process started after this request, and both ran for six seconds".into()
            }
            Self::Paused => {
                "the process was cut off for 20 seconds while a second one ran, and this request arrived \
                 late; then both ran for six seconds"
                    .into()
            }
            Self::Defaulting => {
                "a mutating webhook added annotations to everything the controller wrote".into()
            }
        }
    }
}

/// The point at which a fault is injected.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Point {
    /// At a request.
    Request(Occurrence),
    /// At a watch event.
    Event(Occurrence),
    /// After the end of the story, at this object: `resource/namespace/name`.
    End(String),
    /// At this step of the story.
    Step(usize),
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(occurrence) | Self::Event(occurrence) => occurrence.fmt(f),
            Self::End(object) => write!(f, "end/{object}"),
            Self::Step(step) => write!(f, "step/{step}"),
        }
    }
}

/// One of several requests or events with the same name.
///
/// In a paced story they are numbered from 1 in every step: how many a controller sends depends on
/// how long the cluster was idle before, and a reference is idle for longer than a scenario. A rapid
/// story is never idle before its end, and its steps overlap, so the numbers run through.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Occurrence {
    /// The step in which it is numbered; `None` for the whole story. What happens before the first
    /// step belongs to it.
    pub step: Option<usize>,
    /// The name of the request or event.
    pub fingerprint: String,
    /// Its number, from 1.
    pub nth: u32,
}

impl fmt::Display for Occurrence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(step) = self.step {
            write!(f, "step/{step}/")?;
        }
        write!(f, "{}#{}", self.fingerprint, self.nth)
    }
}

/// How fast the steps of a story follow each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pace {
    /// Each step waits until the cluster is idle, and the state is compared.
    #[default]
    Paced,
    /// Each step follows while the controller is still processing the previous one.
    Rapid,
}

impl Pace {
    /// Returns `paced` or `rapid`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Paced => "paced",
            Self::Rapid => "rapid",
        }
    }
}

/// A scenario: faults at points, a pace, the steps to run, and the seed of all latencies.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Plan {
    /// The faults, with their points.
    pub faults: Vec<(Fault, Point)>,
    /// The pace of the story.
    pub pace: Pace,
    /// The steps to run, by index; all if empty.
    pub steps: Vec<usize>,
    /// The seed of random latencies; 0 means fixed latencies.
    pub seed: u64,
}

impl Plan {
    /// Returns the plan without faults.
    pub fn reference(pace: Pace) -> Self {
        Self {
            pace,
            ..Self::default()
        }
    }

    /// Returns whether any of the faults matches.
    pub(crate) fn has(&self, matches: impl Fn(Fault) -> bool) -> bool {
        self.faults.iter().any(|(fault, _)| matches(*fault))
    }

    pub(crate) fn single(fault: Fault, point: Point, pace: Pace) -> Self {
        Self {
            faults: vec![(fault, point)],
            ..Self::reference(pace)
        }
    }

    /// Returns the names of the faults' families, joined by `+`, or `no-fault`.
    pub fn family(&self) -> String {
        let mut faults = self.faults.iter().map(|(fault, _)| fault.name());
        let first = faults.next().unwrap_or_else(|| "no-fault".to_owned());
        faults.fold(first, |names, name| format!("{names}+{name}"))
    }
}
