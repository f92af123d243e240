//! Scenarios that describe what a user of the sample controller sees, on any cluster.
//!
//! A [`World`] is a cluster: the embedded one under virtual time or over TCP, or a real control
//! plane. A [`Scene`] is a world with the Foo CRD, a way to start controllers whose requests pass a
//! [`Gate`], and helpers to act and to wait. The [`scenarios`] are written against a scene and run
//! on every world, with every controller that implements Foo.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_debug_implementations,
    reason = "test support: a failure here fails the calling test"
)]

mod controllers;
mod embedded;
mod gate;
pub mod scenarios;
mod scene;

use std::time::Duration;

use kube::Client;
use pintle::clock::Clock;

pub use self::{
    controllers::{Running, Start, sample_controller},
    embedded::{Crd, InProcess, OverTcp},
    gate::{Gate, Permission, failure},
    scene::Scene,
};

/// How time passes in a world.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The interval between polls.
    pub tick: Duration,
    /// How long to wait for something that must happen.
    pub timeout: Duration,
    /// The resync period of the controllers.
    pub resync: Duration,
    /// How long to check that nothing happens: several resync periods.
    pub idle: Duration,
}

/// A cluster to run scenarios on.
#[allow(
    async_fn_in_trait,
    reason = "scenarios run on the thread of their test"
)]
pub trait World {
    /// Returns an administrator's client.
    fn client(&self) -> Client;
    /// Returns the client for controllers.
    fn controller_client(&self) -> Client {
        self.client()
    }
    /// Returns the namespace that scenarios use.
    fn namespace(&self) -> String;
    /// Returns how time passes.
    fn pace(&self) -> Pace;
    /// Returns the clock for controllers.
    fn clock(&self) -> Clock;
    /// Returns whether the CRD stores conditions; upstream's prunes them.
    fn keeps_conditions(&self) -> bool {
        true
    }
    /// Marks Pods as ready in a world without nodes. Called at each poll.
    async fn run_pods(&self) {}
    /// Stops the API server and starts it again with the same data.
    async fn restart_api_server(&self) {
        panic!("the API server of this world cannot be restarted");
    }
}
