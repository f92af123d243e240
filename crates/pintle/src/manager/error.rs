//! How a manager ends.

use std::{fmt, io};

use crate::{
    cache::{BoxError, ObjectKey},
    informer::NotSynced,
    leader_election::InvalidElection,
};

/// How a manager stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stopped {
    /// The work that had not ended within the [time limit](super::Builder::stop_within) and was
    /// dropped.
    pub left: Vec<Left>,
}

/// Unfinished work that a stopping manager dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Left {
    /// Reconciles that were dropped.
    Reconciles {
        /// The controller.
        controller: String,
        /// Their keys.
        keys: Vec<ObjectKey>,
    },
    /// A task or server that was aborted.
    Task(String),
    /// The Lease `namespace/name` was not released and expires.
    Lease(String),
    /// Events that were not written.
    Events(usize),
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reconciles { controller, keys } => {
                write!(f, "controller {controller} was reconciling ")?;
                for (number, key) in keys.iter().enumerate() {
                    let separator = if number > 0 { ", " } else { "" };
                    write!(f, "{separator}{key}")?;
                }
                Ok(())
            }
            Self::Task(name) => write!(f, "{name} was still running"),
            Self::Lease(name) => write!(f, "the lease {name} was not released"),
            Self::Events(count) => write!(f, "{count} events were not written"),
        }
    }
}

/// Why a manager ended before shutdown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// The inspector cannot be served.
    #[cfg(feature = "inspect")]
    #[error("cannot serve the inspector on {address}: {source}")]
    Inspect {
        /// The address.
        address: String,
        /// The cause.
        source: crate::inspect::ServeError,
    },
    /// A component failed. The others have been stopped in order.
    #[error("{component} failed: {source}")]
    Component {
        /// The name of the component.
        component: String,
        /// Its error, or a description of its panic.
        source: BoxError,
        /// How the others stopped.
        stopped: Stopped,
    },
    /// The informers requested outside of controllers were not filled in time.
    #[error("{0}")]
    NotSynced(NotSynced),
    /// Names are used in logs, metrics and events, so they must be unique.
    #[error("duplicate component name {0:?}")]
    Duplicate(String),
    /// The manager starts only its own informers.
    #[error(
        "controller {0} is not built on the manager's informers: pass Manager::informers to it"
    )]
    OtherInformers(String),
    /// An election cannot be held as configured.
    #[error("leader election {name}: {source}")]
    Election {
        /// The name of the Lease.
        name: String,
        /// Why the election is misconfigured.
        source: InvalidElection,
    },
    /// The probes' address cannot be bound.
    #[error("cannot serve probes on {address}: {source}")]
    Probes {
        /// The address.
        address: String,
        /// Why it cannot be bound.
        source: io::Error,
    },
    /// The signal handlers cannot be installed.
    #[error("cannot handle signals: {0}")]
    Signals(io::Error),
}
