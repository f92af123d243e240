//! The behavior of the containers of a simulated Pod: run, exit, or never start.
//!
//! A behavior is a value that the kubelet's [`plan`](super::plan) reads in every step, so it can
//! change while the Pod runs.

use std::{fmt, str::FromStr, time::Duration};

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;

use crate::meta;

/// The behavior of the containers of a simulated Pod.
///
/// It is set for the Pods that a selector matches with [`Cluster::pods`](crate::Cluster::pods), or
/// for one Pod with the annotation [`ANNOTATION`](Self::ANNOTATION). The annotation holds a verb
/// and options, separated by spaces:
///
/// | annotation | the containers |
/// |---|---|
/// | `run` | start, become ready, and keep running |
/// | `never-ready` | start and keep running, but never become ready |
/// | `fail-image-pull` | never start: `ImagePullBackOff` |
/// | `exit code=3 reason=Error after=5s` | exit with a code, by default 0 |
/// | `crash-loop` | exit with code 1 |
/// | `oom-kill` | exit with code 137 and reason `OOMKilled` |
/// | `evict` | run until the kubelet evicts the Pod |
///
/// | option | meaning |
/// |---|---|
/// | `ready-after=30s` | the time until the containers start; default: the cluster's `pod_ready_after` |
/// | `after=5s` | the time that they run before they exit or are evicted; default: the cluster's `pod_ready_after` |
/// | `unready-after=5s` | for `run`: the time that they run before they are no longer ready |
///
/// The `restartPolicy` of the Pod decides what follows an exit: the Pod ends as `Succeeded` or
/// `Failed`, or its containers restart, at first immediately and then with a back-off of 10 s that
/// doubles up to 5 min.
///
/// Pods run by default, except those of Jobs: they exit with code 0.
///
/// The annotation [`LOGS`](Self::LOGS) holds what the containers log each time they start.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use pintle_cluster::Behavior;
///
/// let parsed: Behavior = "exit code=3 after=5s".parse()?;
/// assert_eq!(parsed, Behavior::exit(3).after(Duration::from_secs(5)));
/// # Ok::<(), pintle_cluster::InvalidBehavior>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behavior {
    pub(super) action: Action,
    /// The time from binding until the containers start, instead of the cluster's.
    pub(super) ready_after: Option<Duration>,
    /// The time that running containers are ready.
    pub(super) unready_after: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Run,
    NeverReady,
    FailImagePull,
    /// The annotation is invalid: the containers cannot be created.
    Invalid(InvalidBehavior),
    Exit(Exit),
    /// The kubelet evicts the Pod when its containers have run for this time.
    Evict(Option<Duration>),
}

/// How containers exit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exit {
    pub(super) code: i32,
    pub(super) reason: Option<String>,
    /// How long they run before they exit.
    pub(super) after: Option<Duration>,
}

impl Exit {
    pub(super) fn new(code: i32) -> Self {
        Self {
            code,
            reason: None,
            after: None,
        }
    }

    /// Returns the reason that the kubelet reports.
    pub(super) fn reason(&self) -> &str {
        let default = if self.code == 0 { "Completed" } else { "Error" };
        self.reason.as_deref().unwrap_or(default)
    }
}

impl Behavior {
    /// The annotation of a Pod that sets its behavior, `pintle.dev/behavior`.
    ///
    /// A Pod with an invalid value does not start. Its containers wait with the reason
    /// `CreateContainerConfigError` and a message with the error.
    pub const ANNOTATION: &'static str = "pintle.dev/behavior";

    /// The annotation of a Pod that sets what its containers log, `pintle.dev/logs`.
    pub const LOGS: &'static str = "pintle.dev/logs";

    fn new(action: Action) -> Self {
        Self {
            action,
            ready_after: None,
            unready_after: None,
        }
    }

    /// Returns the behavior of containers that start, become ready and keep running.
    pub fn run() -> Self {
        Self::new(Action::Run)
    }

    /// Returns the behavior of containers that run but never become ready.
    pub fn never_ready() -> Self {
        Self::new(Action::NeverReady)
    }

    /// Returns the behavior of containers whose image cannot be pulled.
    pub fn fail_image_pull() -> Self {
        Self::new(Action::FailImagePull)
    }

    /// Returns the behavior of containers that exit with this code.
    pub fn exit(code: i32) -> Self {
        Self::new(Action::Exit(Exit::new(code)))
    }

    /// Returns the behavior of containers that exit with code 1.
    pub fn crash_loop() -> Self {
        Self::exit(1)
    }

    /// Returns the behavior of containers that exceed their memory: they exit with code 137 and the
    /// reason `OOMKilled`.
    pub fn oom_kill() -> Self {
        Self::exit(137).reason("OOMKilled")
    }

    /// Returns the behavior of a Pod that the kubelet evicts, as if its node were short of disk.
    pub fn evict() -> Self {
        Self::new(Action::Evict(None))
    }

    /// Sets how long containers run before they exit or are evicted. Has no effect on other
    /// behaviors.
    #[must_use]
    pub fn after(mut self, time: Duration) -> Self {
        match &mut self.action {
            Action::Exit(exit) => exit.after = Some(time),
            Action::Evict(after) => *after = Some(time),
            _ => {}
        }
        self
    }

    /// Sets how long running containers are ready; after that they keep running but are unready.
    /// Has no effect on containers that exit or never become ready.
    #[must_use]
    pub fn unready_after(mut self, time: Duration) -> Self {
        if self.action == Action::Run {
            self.unready_after = Some(time);
        }
        self
    }

    /// Sets the reason reported when containers exit. Has no effect on containers that never exit.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        if let Action::Exit(exit) = &mut self.action {
            exit.reason = Some(reason.into());
        }
        self
    }

    /// Sets the time from the binding of a Pod until its containers start.
    #[must_use]
    pub fn ready_after(mut self, time: Duration) -> Self {
        self.ready_after = Some(time);
        self
    }

    /// Returns the behavior of a Pod that no script matches: the one in its annotation, or the
    /// default.
    pub(super) fn of(pod: &Pod) -> Self {
        match meta::annotation(&pod.metadata, Self::ANNOTATION) {
            Some(text) => text
                .parse()
                .unwrap_or_else(|error| Self::new(Action::Invalid(error))),
            None if is_of_job(pod) => Self::exit(0),
            None => Self::run(),
        }
    }
}

fn is_of_job(pod: &Pod) -> bool {
    meta::controller_of(&pod.metadata)
        .is_some_and(|owner| owner.kind == "Job" && owner.api_version == "batch/v1")
}

/// The error returned when a string is not a valid [`Behavior`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid behavior {text:?}: {why}")]
pub struct InvalidBehavior {
    text: String,
    why: String,
}

impl FromStr for Behavior {
    type Err = InvalidBehavior;

    fn from_str(text: &str) -> Result<Self, InvalidBehavior> {
        parse(text).map_err(|why| InvalidBehavior {
            text: text.to_owned(),
            why,
        })
    }
}

fn parse(text: &str) -> Result<Behavior, String> {
    let mut words = text.split_whitespace();
    let mut behavior = match words.next() {
        Some("run") => Behavior::run(),
        Some("never-ready") => Behavior::never_ready(),
        Some("fail-image-pull") => Behavior::fail_image_pull(),
        Some("exit") => Behavior::exit(0),
        Some("crash-loop") => Behavior::crash_loop(),
        Some("oom-kill") => Behavior::oom_kill(),
        Some("evict") => Behavior::evict(),
        Some(verb) => return Err(format!("unknown verb {verb:?}")),
        None => return Err("a verb is missing".into()),
    };
    for word in words {
        let Some((key, value)) = word.split_once('=') else {
            return Err(format!("expected option=value instead of {word:?}"));
        };
        match (key, &mut behavior.action) {
            ("ready-after", _) => behavior.ready_after = Some(duration(value)?),
            ("unready-after", Action::Run) => behavior.unready_after = Some(duration(value)?),
            ("after", Action::Evict(after)) => *after = Some(duration(value)?),
            ("after", Action::Exit(exit)) => exit.after = Some(duration(value)?),
            ("reason", Action::Exit(exit)) => exit.reason = Some(value.to_owned()),
            ("code", Action::Exit(exit)) => {
                let code = value.parse::<u8>();
                exit.code = code
                    .map_err(|_| format!("the code must be between 0 and 255: {value:?}"))?
                    .into();
            }
            _ => return Err(format!("unknown option {key:?}")),
        }
    }
    Ok(behavior)
}

pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<SignedDuration>().ok();
    parsed
        .and_then(|duration| Duration::try_from(duration).ok())
        .ok_or_else(|| format!("not a duration such as 5s: {text:?}"))
}

impl fmt::Display for Behavior {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.action {
            Action::Run => f.write_str("run")?,
            Action::NeverReady => f.write_str("never-ready")?,
            Action::FailImagePull => f.write_str("fail-image-pull")?,
            Action::Invalid(error) => return f.write_str(&error.text),
            Action::Evict(after) => {
                f.write_str("evict")?;
                if let Some(after) = after {
                    write!(f, " after={}ms", after.as_millis())?;
                }
            }
            Action::Exit(exit) => {
                write!(f, "exit code={}", exit.code)?;
                if let Some(reason) = &exit.reason {
                    write!(f, " reason={reason}")?;
                }
                if let Some(after) = exit.after {
                    write!(f, " after={}ms", after.as_millis())?;
                }
            }
        }
        if let Some(time) = self.unready_after {
            write!(f, " unready-after={}ms", time.as_millis())?;
        }
        match self.ready_after {
            Some(time) => write!(f, " ready-after={}ms", time.as_millis()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
