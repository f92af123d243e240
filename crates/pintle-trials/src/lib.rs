//! Sea trials for Kubernetes controllers: tests that a controller converges under crashes, lost
//! responses, conflicts and stale watches.
//!
//! ```no_run
//! # use kube::CustomResource;
//! # use schemars::JsonSchema;
//! # use serde::{Deserialize, Serialize};
//! # #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
//! # #[kube(group = "example.com", version = "v1", kind = "Web", namespaced)]
//! # pub struct WebSpec { page: String }
//! # async fn run_my_controller(client: kube::Client) {}
//! #[test]
//! fn web_converges() {
//!     let web = Web::new("web", WebSpec { page: "hello".to_owned() });
//!     pintle_trials::converges(|cx| run_my_controller(cx.client()), web);
//! }
//! # fn main() {}
//! ```
//!
//! A check runs a story, such as "create, scale, delete, recreate", once without faults. Then it
//! runs the story again under faults that a real API server and network can produce, one at a time:
//! a crash before and after each write, a lost response, a competing writer, a watch that is late,
//! cut or expired, an impatient user. Whenever the cluster becomes idle, its state has to equal the
//! state in the run without faults, the *reference*.
//!
//! ```text
//!                    ┌── story: users ──┐
//!                    ▼                  │
//! controller ─► gateway ─► API server ◄─┴─ actors: garbage collector, kubelets
//!      ▲           │           │
//!      └── feed ◄──┴───────────┘        trace ─► planners ─► plans ─► scenarios ─► oracles ─► report
//! ```
//!
//! - The *gateway* is the controller's client. Requests fail there.
//! - The *feed* carries watch events. They are late or lost there.
//! - A *process* is one run of the controller's function. It crashes and is started again.
//!
//! Planners decide which faults to try, and oracles decide whether a run is correct. Both are pure
//! functions of recorded traces. Each scenario has its own thread, paused clock and API server, so
//! it never waits in real time and replays from its token.
//!
//! The crate is new and experimental: its API, faults and oracles may change.
//!
//! # Determinism
//!
//! Scenarios replay exactly if the controller takes time and randomness from [`Cx`] and does not
//! depend on the iteration order of a hash map. A nondeterministic controller is reported with the
//! first request that differs between two runs. It is still tested, but its scenarios count
//! as failed only if they fail twice.
//!
//! # Quiescence
//!
//! The controller under test may have its own timers, so the cluster counts as idle once no write
//! was committed for some virtual time: 15 minutes in the reference. In a scenario, a few seconds
//! are enough if its state already equals the reference; otherwise the scenario waits for up to
//! [`within`](Check::within).

#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod actors;
mod canonical;
mod check;
mod cx;
mod gateway;
mod hub;
mod oracles;
mod permissions;
mod plan;
mod process;
#[cfg(feature = "cli")]
mod program;
mod random;
mod report;
mod run;
mod runner;
mod shrink;
mod story;
mod trace;
mod view;

#[cfg(feature = "cli")]
#[cfg_attr(docsrs, doc(cfg(feature = "cli")))]
pub use self::program::program;
pub use self::{
    canonical::{Difference, State},
    check::{Check, check, converges},
    cx::{Cx, External},
    gateway::{
        ExternalError,
        request::{ResourceName, Target, Verb},
    },
    oracles::{Oracle, Violation},
    permissions::Permissions,
    plan::{Fault, Occurrence, Pace, Plan, Point, TokenError},
    report::{Failure, Report},
    story::Story,
    trace::{Abort, Checkpoint, Commit, Delivery, Mark, Request, Restless, Trace},
    view::View,
};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
