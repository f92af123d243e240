//! Sea trials for Kubernetes controllers: does a controller converge, whatever happens?
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
//! A check runs a story, such as "create, scale, delete, recreate", once without faults. Then it runs
//! the story again under faults that a real API server and network can produce, one at a time: a
//! crash before and after each write, a lost answer, a competing writer, a watch that is late, cut or
//! expired, an impatient user. Whenever the world comes to rest, its state has to equal that of the
//! reference.
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
//! - The *feed* carries list and watch responses. Events are late or lost there.
//! - A *process* is one run of the controller's function. It crashes and is started again.
//!
//! Planners decide which faults to try, and oracles what is wrong. Both are functions of recorded
//! traces. Each scenario has a thread, a paused clock and an API server of its own, so it needs
//! no real waiting and replays from its token.
//!
//! The crate is new and experimental: its API, faults and oracles may change.
//!
//! # Determinism
//!
//! Scenarios replay exactly if the controller takes the time and randomness from [`Cx`] and no order
//! from a hash map. A controller that behaves differently each time is reported with the first request
//! that differs, and is tried all the same; its scenarios count as failed only if they fail again.
//!
//! # Quiescence
//!
//! A controller under trial may have timers of its own, so "at rest" means that nothing was committed
//! for a while of virtual time. The reference waits for 15 minutes. Scenarios wait for seconds if they
//! already are where the reference was, and for up to [`within`](Check::within) if they are not.

#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod actors;
mod canonical;
mod check;
mod cx;
mod gateway;
mod hub;
mod oracles;
mod plan;
mod process;
mod report;
mod rights;
mod run;
mod runner;
mod shrink;
mod story;
mod trace;
mod view;

pub use self::{
    canonical::{Difference, State},
    check::{Check, check, converges},
    cx::{Cx, External},
    gateway::{
        ExternalError,
        request::{ResourceName, Target, Verb},
    },
    oracles::{Oracle, Violation},
    plan::{Fault, Pace, Plan, Point, TokenError},
    report::{Failure, Report},
    rights::Rights,
    story::Story,
    trace::{Abort, Checkpoint, Commit, Delivery, Mark, Request, Restless, Trace},
    view::View,
};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
