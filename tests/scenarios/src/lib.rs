//! What a user of the sample controller sees, told once for every kind of cluster.
//!
//! A [`World`] is a cluster: the embedded one under virtual time or over TCP, or a real control
//! plane. A [`Scene`] is a world with the Foo CRD, controllers that run on it through a [`Gate`],
//! and words to speak about it. The [`scenarios`] know no more than that.

// Support for tests: what goes wrong here fails the test that called it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod embedded;
mod gate;
pub mod scenarios;
mod scene;

use std::time::Duration;

use kube::Client;
use pintle::clock::Clock;

pub use self::{
    embedded::{Crd, InProcess, OverTcp},
    gate::{Gate, Right},
    scene::{Running, Scene, Start},
};

/// How time passes in a world.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How long to wait before looking again.
    pub tick: Duration,
    /// How long to wait for what must happen.
    pub patience: Duration,
    /// How often the controllers sync every Foo again.
    pub resync: Duration,
    /// How long to watch that nothing happens: several resyncs.
    pub rest: Duration,
}

/// A cluster to play on.
#[allow(
    async_fn_in_trait,
    reason = "scenarios run on the thread of their test"
)]
pub trait World {
    /// A client of somebody who may do everything.
    fn client(&self) -> Client;
    /// The client that controllers get.
    fn controller_client(&self) -> Client {
        self.client()
    }
    /// Where everything happens.
    fn namespace(&self) -> String;
    /// How time passes.
    fn pace(&self) -> Pace;
    /// The time of controllers.
    fn clock(&self) -> Clock;
    /// Whether the definition of Foo has room for conditions; the original's drops them.
    fn keeps_conditions(&self) -> bool {
        true
    }
    /// Does what nodes would do, where there are none: says that Pods are ready.
    async fn run_pods(&self) {}
    /// Takes the API server away and brings it back with all it held.
    async fn restart_api_server(&self) {
        panic!("in this world the API server cannot be restarted");
    }
}
