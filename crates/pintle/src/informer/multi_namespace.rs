//! Several namespaces behind one cache.
//!
//! A watch covers one namespace or all of them. An informer of several namespaces therefore runs
//! one reflector and log per namespace, and applies all logs to one cache:
//!
//! ```text
//! reflector of "blue"  ─► log ─┐
//!                              ├─► handle_deltas ─► cache ─► handlers
//! reflector of "green" ─► log ─┘
//! ```
//!
//! All of it runs in the one task of the informer, so the cache has one writer and a list replaces
//! the objects of its namespace in one step. When a namespace leaves the set, its reflector is
//! dropped before its objects are removed, so that none of them can reappear.
//!
//! Each namespace advances through `resourceVersion`s independently. A quiet one lags behind until
//! its next bookmark, so whether the cache shows a write is decided per namespace.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::{
    StreamExt,
    future::{AbortHandle, Abortable, BoxFuture},
    stream::FuturesUnordered,
};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, futures::OwnedNotified, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    namespaces::Namespaces,
    processor::Processor,
    shared_informer::{Runner, pump},
};
use crate::{
    delta_fifo::{Delta, DeltaFifo},
    object::Kind,
    reflector::{Phase, Status},
};

/// Builds the reflector of one namespace, which fills the given log.
pub(super) type MakeReflector<K> = dyn Fn(&str, Arc<DeltaFifo<K>>, Option<Duration>, CancellationToken) -> Reflecting
    + Send
    + Sync;

/// A reflector and its status.
pub(super) type Reflecting = (watch::Receiver<Status>, BoxFuture<'static, ()>);

/// Describes an informer of these namespaces.
pub(super) type Describe = dyn Fn(&BTreeSet<String>) -> String + Send + Sync;

/// The namespaces that an informer follows, and their progress.
pub(super) struct MultiNamespace<K> {
    namespaces: Namespaces,
    make: Box<MakeReflector<K>>,
    describe: Box<Describe>,
    /// Whether a selector leaves objects out.
    pub(super) selects: bool,
    state: Mutex<State>,
    /// Whether all namespaces have been listed at some point.
    synced: watch::Sender<bool>,
    status: watch::Sender<Status>,
    /// Notified when a namespace has advanced, and when the namespaces change.
    advanced: Arc<Notify>,
}

#[derive(Default)]
struct State {
    members: BTreeMap<String, Member>,
    ended: bool,
}

/// One namespace.
struct Member {
    synced: bool,
    /// The `resourceVersion` up to which the cache shows its changes.
    reached: String,
    status: watch::Receiver<Status>,
    abort: AbortHandle,
}

impl<K: Kind> MultiNamespace<K> {
    pub(super) fn new(
        namespaces: Namespaces,
        make: Box<MakeReflector<K>>,
        describe: Box<Describe>,
        selects: bool,
    ) -> Self {
        let informer = Self {
            namespaces,
            make,
            describe,
            selects,
            state: Mutex::default(),
            synced: watch::Sender::new(false),
            status: watch::Sender::default(),
            advanced: Arc::default(),
        };
        informer.publish();
        informer
    }

    /// Returns whether every object in `namespace` is in the cache or about to be.
    pub(super) fn covers(&self, namespace: Option<&str>) -> bool {
        !self.selects && namespace.is_some_and(|namespace| self.namespaces.contains(namespace))
    }

    pub(super) fn status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    pub(super) fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    pub(super) fn has_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Returns whether every namespace that is in the set now has been listed.
    pub(super) fn is_filled(&self) -> bool {
        let wanted = self.namespaces.names();
        let state = self.state.lock();
        wanted.iter().all(|namespace| {
            let member = state.members.get(namespace);
            member.is_some_and(|member| member.synced)
        })
    }

    /// Waits until every namespace in the set has been listed; returns false if the informer
    /// stopped first.
    pub(super) async fn filled(&self, stopped: &CancellationToken) -> bool {
        loop {
            // Subscribe before checking, or a change in between is missed.
            let advanced = self.advanced();
            if self.has_synced() && self.is_filled() {
                return true;
            }
            tokio::select! {
                biased;
                () = stopped.cancelled() => return false,
                () = advanced => {}
            }
        }
    }

    /// Returns the `resourceVersion` up to which the cache shows the changes in `namespace`, or
    /// `None` if the namespace is not followed or the informer has ended.
    pub(super) fn reached(&self, namespace: &str) -> Option<String> {
        let state = self.state.lock();
        match state.members.get(namespace) {
            _ if state.ended => None,
            Some(member) => Some(member.reached.clone()),
            // The namespace was added but is not listed yet.
            None => self
                .namespaces
                .contains(namespace)
                .then(|| NOTHING.to_owned()),
        }
    }

    /// Resolves when a namespace has advanced, or the namespaces have changed, since the call.
    pub(super) fn advanced(&self) -> OwnedNotified {
        Arc::clone(&self.advanced).notified_owned()
    }

    /// Follows the namespaces until `shutdown`.
    pub(super) async fn run(
        &self,
        processor: &Processor<K>,
        runner: &Runner,
        resync: Option<Duration>,
        shutdown: &CancellationToken,
    ) {
        let _end = EndOnDrop(self);
        let mut wanted = self.namespaces.subscribe();
        let mut running = FuturesUnordered::new();
        loop {
            let names = wanted.borrow_and_update().clone();
            self.leave(&names, processor);
            for namespace in self.missing(names) {
                running.push(self.enter(namespace, processor, runner, resync, shutdown));
            }
            self.publish();
            self.check_synced();
            processor.check_synced();
            loop {
                tokio::select! {
                    biased;
                    () = shutdown.cancelled() => return,
                    // The sender is in `self`, so this is never an error.
                    _ = wanted.changed() => break,
                    // The future of a removed namespace: its watch closes here.
                    Some(_) = running.next() => {}
                }
            }
        }
    }

    /// Returns the namespaces that are not followed yet.
    fn missing(&self, mut names: BTreeSet<String>) -> BTreeSet<String> {
        let state = self.state.lock();
        names.retain(|namespace| !state.members.contains_key(namespace));
        names
    }

    /// Stops following namespaces that are not in `names`, and removes their objects.
    fn leave(&self, names: &BTreeSet<String>, processor: &Processor<K>) {
        let mut gone = Vec::new();
        self.state.lock().members.retain(|namespace, member| {
            let stays = names.contains(namespace);
            if !stays {
                // The reflector and its log are not polled again.
                member.abort.abort();
                gone.push(namespace.clone());
            }
            stays
        });
        for namespace in gone {
            processor.replace_within(&namespace, Vec::new(), false);
            processor.metrics.objects(processor.indexer.lister().len());
        }
    }

    /// Follows a namespace until it is aborted.
    fn enter<'a>(
        &'a self,
        namespace: String,
        processor: &'a Processor<K>,
        runner: &'a Runner,
        resync: Option<Duration>,
        shutdown: &CancellationToken,
    ) -> Abortable<BoxFuture<'a, ()>> {
        let fifo = Arc::new(DeltaFifo::new());
        let stop = shutdown.child_token();
        let (mut status, reflector) = (self.make)(&namespace, fifo.clone(), resync, stop);
        let (abort, registration) = AbortHandle::new_pair();
        let member = Member {
            synced: false,
            reached: NOTHING.to_owned(),
            status: status.clone(),
            abort,
        };
        self.state.lock().members.insert(namespace.clone(), member);
        let follow = async move {
            tokio::join!(
                async {
                    reflector.await;
                    fifo.close();
                },
                pump(processor, runner, &fifo, Some((self, &namespace))),
                async {
                    while status.changed().await.is_ok() {
                        self.publish();
                    }
                },
            );
        };
        Abortable::new(Box::pin(follow), registration)
    }

    /// Records that the cache shows the changes in `namespace` up to `version`.
    pub(super) fn advance(&self, namespace: &str, version: Option<String>, synced: bool) {
        let newly = {
            let mut state = self.state.lock();
            let Some(member) = state.members.get_mut(namespace) else {
                return;
            };
            if let Some(version) = version.filter(|version| !version.is_empty()) {
                member.reached = version;
            }
            synced && !std::mem::replace(&mut member.synced, true)
        };
        if newly {
            self.publish();
            self.check_synced();
        }
        self.advanced.notify_waiters();
    }

    fn check_synced(&self) {
        if self.is_filled() {
            self.synced
                .send_if_modified(|synced| !std::mem::replace(synced, true));
        }
        self.advanced.notify_waiters();
    }

    /// Publishes the status of the namespace that is furthest behind as the status of the informer.
    fn publish(&self) {
        let now = Instant::now();
        let state = self.state.lock();
        let statuses: Vec<Status> = {
            let members = state.members.values();
            members
                .map(|member| member.status.borrow().clone())
                .collect()
        };
        let badness = |status: &&Status| {
            let retrying = matches!(status.phase, Phase::Retrying { .. });
            (!status.synced, status.behind_for(now), retrying)
        };
        let worst = statuses.iter().max_by_key(badness);
        let mut all = worst.cloned().unwrap_or_default();
        all.synced = statuses.iter().all(|status| status.synced);
        all.unreadable = statuses.iter().map(|status| status.unreadable).sum();
        let names = if state.members.is_empty() {
            self.namespaces.names().into_iter().collect()
        } else {
            state.members.keys().cloned().collect()
        };
        all.target = (self.describe)(&names).into();
        if state.ended {
            all.phase = Phase::Stopped;
        }
        drop(state);
        self.status.send_replace(all);
    }
}

/// A `resourceVersion` older than any other.
const NOTHING: &str = "0";

struct EndOnDrop<'a, K: Kind>(&'a MultiNamespace<K>);

impl<K: Kind> Drop for EndOnDrop<'_, K> {
    fn drop(&mut self) {
        self.0.state.lock().ended = true;
        self.0.publish();
        self.0.advanced.notify_waiters();
    }
}

/// Returns the `resourceVersion` that a cache has reached after `entries`.
pub(super) fn last_version<K>(entries: &[Delta<K>]) -> Option<String> {
    entries.iter().rev().find_map(|delta| match delta {
        Delta::Added(object) | Delta::Updated(object) | Delta::Deleted(object) => {
            Some(object.resource_version().to_owned())
        }
        Delta::Replaced {
            resource_version, ..
        } => Some(resource_version.clone()),
        Delta::Bookmark(version) => Some(version.clone()),
        Delta::Sync => None,
    })
}
