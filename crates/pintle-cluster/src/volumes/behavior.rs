//! The behavior of claims that a test sets: bind late, or never.

use std::{fmt, str::FromStr, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::PersistentVolumeClaim, apimachinery::pkg::apis::meta::v1::Time};
use pintle::cache::InvalidSelector;

use crate::{
    meta,
    pods::{duration, plan::remaining},
    rules::{Rules, Target},
};

/// When a `PersistentVolumeClaim` is bound.
///
/// It is set for the claims that a selector matches with
/// [`Cluster::claims`](crate::Cluster::claims), or for one claim with the annotation
/// [`ANNOTATION`](Self::ANNOTATION):
///
/// | annotation | the claim |
/// |---|---|
/// | `bind` | is bound as soon as there is a volume for it |
/// | `bind after=30s` | is bound at this age at the earliest |
/// | `never-bind` | stays `Pending`, whatever volumes there are |
///
/// A claim that is bound stays bound.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use pintle_cluster::ClaimBehavior;
///
/// let parsed: ClaimBehavior = "bind after=30s".parse()?;
/// assert_eq!(parsed, ClaimBehavior::bind_after(Duration::from_secs(30)));
/// assert!("bind slowly".parse::<ClaimBehavior>().is_err());
/// # Ok::<(), pintle_cluster::InvalidClaimBehavior>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimBehavior {
    /// The minimum age at which it is bound; `None` if it is never bound.
    after: Option<Duration>,
}

/// Whether a claim may be bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Immediately.
    Free,
    /// After this time.
    For(Duration),
    /// Not until its behavior changes.
    Forever,
}

impl ClaimBehavior {
    /// The annotation of a claim that sets its behavior, `pintle.dev/behavior`.
    ///
    /// A claim with an invalid value is not bound; a warning event contains the error.
    pub const ANNOTATION: &'static str = "pintle.dev/behavior";

    /// Returns the behavior of a claim that is bound as soon as possible.
    pub fn bind() -> Self {
        Self::bind_after(Duration::ZERO)
    }

    /// Returns the behavior of a claim that is bound at this age at the earliest.
    pub fn bind_after(age: Duration) -> Self {
        Self { after: Some(age) }
    }

    /// Returns the behavior of a claim that is never bound.
    pub fn never_bind() -> Self {
        Self { after: None }
    }

    fn hold(&self, claim: &PersistentVolumeClaim, now: Timestamp) -> Hold {
        let Some(age) = self.after else {
            return Hold::Forever;
        };
        let created = claim.metadata.creation_timestamp.as_ref();
        match created.map_or(Duration::ZERO, |Time(at)| remaining(*at, age, now)) {
            Duration::ZERO => Hold::Free,
            left => Hold::For(left),
        }
    }
}

/// The error returned when a string is not a valid [`ClaimBehavior`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid behavior {text:?}: {why}")]
pub struct InvalidClaimBehavior {
    text: String,
    why: String,
}

impl FromStr for ClaimBehavior {
    type Err = InvalidClaimBehavior;

    fn from_str(text: &str) -> Result<Self, InvalidClaimBehavior> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let parsed = match words.as_slice() {
            ["bind"] => Ok(Self::bind()),
            ["never-bind"] => Ok(Self::never_bind()),
            ["bind", option] => match option.split_once('=') {
                Some(("after", age)) => duration(age).map(Self::bind_after),
                _ => Err(format!("unknown option {option:?}")),
            },
            _ => Err("expected bind, bind after=TIME or never-bind".to_owned()),
        };
        parsed.map_err(|why| InvalidClaimBehavior {
            text: text.to_owned(),
            why,
        })
    }
}

impl fmt::Display for ClaimBehavior {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.after {
            None => f.write_str("never-bind"),
            Some(Duration::ZERO) => f.write_str("bind"),
            Some(age) => write!(f, "bind after={}ms", age.as_millis()),
        }
    }
}

/// The behaviors of the claims of a cluster.
pub(crate) type ClaimScripts = Rules<ClaimBehavior>;

impl ClaimScripts {
    /// Returns whether a claim may be bound, according to the newest matching script or else its
    /// annotation.
    ///
    /// # Errors
    ///
    /// Fails if the annotation is invalid.
    pub(crate) fn hold(
        &self,
        claim: &PersistentVolumeClaim,
        now: Timestamp,
    ) -> Result<Hold, InvalidClaimBehavior> {
        if let Some(scripted) = self.find(&claim.metadata, |it| Some(it.clone())) {
            return Ok(scripted.hold(claim, now));
        }
        match meta::annotation(&claim.metadata, ClaimBehavior::ANNOTATION) {
            Some(text) => Ok(text.parse::<ClaimBehavior>()?.hold(claim, now)),
            None => Ok(Hold::Free),
        }
    }
}

/// Selects claims, to script when they are bound; see [`Cluster::claims`](crate::Cluster::claims).
#[derive(Clone, Debug)]
#[must_use = "a selection has no effect until a behavior is set"]
pub struct Claims {
    scripts: ClaimScripts,
    target: Target,
}

impl Claims {
    pub(crate) fn new(scripts: ClaimScripts) -> Self {
        Self {
            scripts,
            target: Target::default(),
        }
    }

    /// Limits the selection to the claims whose labels match. Uses the syntax of `kubectl -l`.
    pub fn matching(mut self, selector: impl Into<String>) -> Self {
        self.target.selector = selector.into();
        self
    }

    /// Limits the selection to one namespace.
    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.target.namespace = Some(namespace.into());
        self
    }

    /// Sets when the selected claims are bound, including claims created later.
    ///
    /// It takes precedence over the annotation of a claim and over earlier scripts.
    ///
    /// # Errors
    ///
    /// Fails if the selector is invalid.
    pub fn behave(&self, behavior: ClaimBehavior) -> Result<(), InvalidSelector> {
        self.scripts.set(&self.target, behavior, |_| true)
    }

    /// Sets [`ClaimBehavior::never_bind`].
    ///
    /// # Errors
    ///
    /// Fails if the selector is invalid.
    pub fn never_bind(&self) -> Result<(), InvalidSelector> {
        self.behave(ClaimBehavior::never_bind())
    }

    /// Removes the script with this selection, so that earlier scripts, annotations and the default
    /// apply again.
    ///
    /// # Errors
    ///
    /// Fails if the selector is invalid.
    pub fn reset(&self) -> Result<(), InvalidSelector> {
        self.scripts.reset(&self.target)
    }
}

#[cfg(test)]
mod tests;
