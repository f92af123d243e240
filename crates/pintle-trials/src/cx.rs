//! The context of the controller under test: everything it would otherwise take from its
//! environment.

use std::sync::Arc;

use pintle_clock::{Clock, Rng};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::gateway::{ExternalError, Gateway, request::Verb};

/// The context of one process: a client, a clock and randomness.
///
/// A trial starts the controller many times, each time with a new context. Controllers that take
/// time and random numbers from here replay exactly. Others can be tested as well; see
/// [determinism](crate#determinism).
#[derive(Clone)]
pub struct Cx {
    pub(crate) client: kube::Client,
    pub(crate) gateway: Gateway,
    pub(crate) clock: Clock,
    pub(crate) rng: Rng,
    pub(crate) shutdown: CancellationToken,
}

impl Cx {
    /// Returns a client of the scenario's API server. It does not retry on its own.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Returns the wall clock, which follows virtual time.
    pub fn clock(&self) -> Clock {
        self.clock.clone()
    }

    /// Returns a random number generator that yields the same sequence when the scenario is
    /// replayed.
    pub fn rng(&self) -> Rng {
        self.rng.clone()
    }

    /// Returns the number of this process, from 1. Processes that run side by side differ, so it
    /// can be part of the identity with which a replica holds a Lease.
    pub fn process(&self) -> u32 {
        self.gateway.session.id
    }

    /// Returns a shutdown token, for controllers that require one. It is never cancelled: a
    /// scenario crashes processes instead.
    pub fn shutdown(&self) -> &CancellationToken {
        &self.shutdown
    }

    /// Returns a service outside the cluster, such as a DNS provider: entries by id, which survive
    /// the process.
    ///
    /// Requests to it are subject to the same faults as those to the API server, and its entries
    /// are part of the state that is compared.
    pub fn external(&self, name: &str) -> External {
        External {
            gateway: self.gateway.clone(),
            name: Arc::from(name),
        }
    }
}

impl std::fmt::Debug for Cx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cx")
            .field("process", &self.gateway.session.id)
            .finish_non_exhaustive()
    }
}

/// A simulated service outside the cluster; see [`Cx::external`].
#[derive(Clone)]
pub struct External {
    gateway: Gateway,
    name: Arc<str>,
}

impl External {
    /// Creates or replaces an entry.
    ///
    /// # Errors
    ///
    /// Fails if an injected fault breaks the request. The entry may have been written nevertheless.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: if the future is dropped, the entry may or may not have been written.
    pub async fn put(&self, id: &str, value: impl Into<Value>) -> Result<(), ExternalError> {
        let value = value.into();
        self.gateway
            .external(Verb::Create, &self.name, id, |entries| {
                entries.insert(id.to_owned(), value);
            })
            .await
    }

    /// Removes an entry. Returns whether it existed.
    ///
    /// # Errors
    ///
    /// Fails if an injected fault breaks the request. The entry may have been removed nevertheless.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: if the future is dropped, the entry may or may not have been removed.
    pub async fn remove(&self, id: &str) -> Result<bool, ExternalError> {
        self.gateway
            .external(Verb::Delete, &self.name, id, |entries| {
                entries.remove(id).is_some()
            })
            .await
    }

    /// Returns an entry.
    ///
    /// # Errors
    ///
    /// Fails if an injected fault breaks the request.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn get(&self, id: &str) -> Result<Option<Value>, ExternalError> {
        self.gateway
            .external(Verb::Get, &self.name, id, |entries| {
                entries.get(id).cloned()
            })
            .await
    }

    /// Returns the ids of all entries.
    ///
    /// # Errors
    ///
    /// Fails if an injected fault breaks the request.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn list(&self) -> Result<Vec<String>, ExternalError> {
        self.gateway
            .external(Verb::List, &self.name, "", |entries| {
                entries.keys().cloned().collect()
            })
            .await
    }
}

impl std::fmt::Debug for External {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("External").field(&self.name).finish()
    }
}
