//! Writes the status of Foos, in whichever form their definition takes it.
//!
//! With a status subresource the status is patched there; without one it is a plain field of the
//! Foo. Nothing but discovery tells the two apart: a server answers 404 for a Foo that is gone and
//! for a subresource that was never there, in the same words. So a 404 asks discovery, and so does a
//! plain patch that left no trace, which is how a definition that gained the subresource shows.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
};

use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use parking_lot::Mutex;
use pintle::{cache::ObjectKey, clock::Clock};
use serde_json::json;

use crate::{
    controller::{Changed, NAME, SyncError},
    foo::{Foo, FooStatus},
    status::{self, Report},
};

pub(crate) struct StatusWriter {
    client: Client,
    clock: Clock,
    /// The definition has no status subresource: there the status is a plain field.
    is_plain: AtomicBool,
    /// The server drops the status fields that the original `Foo` does not have.
    is_pruned: AtomicBool,
    /// The `resourceVersion` of each Foo after our last write, until the cache shows it: from an
    /// older copy, a patch that changes nothing looks like one that does.
    unseen: Mutex<BTreeMap<ObjectKey, Option<String>>>,
}

impl StatusWriter {
    pub(crate) fn new(client: Client, clock: Clock) -> Self {
        Self {
            client,
            clock,
            is_plain: AtomicBool::new(false),
            is_pruned: AtomicBool::new(false),
            unseen: Mutex::default(),
        }
    }

    /// Writes the status where it differs from what the Foo has.
    pub(crate) async fn write(
        &self,
        key: &ObjectKey,
        foo: &Foo,
        report: &Report,
    ) -> Result<Changed, SyncError> {
        let mut asked = false;
        loop {
            let plain = self.is_plain.load(Ordering::Relaxed);
            let wanted = self.status(foo, report, plain);
            if self.has(foo, &wanted) {
                self.forget(key);
                return Ok(Changed::No);
            }
            let stored = match self.patch(key, foo, &wanted, plain).await {
                Ok(stored) => Some(stored),
                Err(kube::Error::Api(status)) if status.is_not_found() => None,
                Err(error) => return Err(SyncError::api("writing the status")(error)),
            };
            let ignored = |stored: &Foo| plain && !self.has(stored, &wanted);
            if !asked && stored.as_ref().is_none_or(ignored) {
                asked = true;
                let plain_now = !self.has_subresource().await?;
                if plain_now != plain {
                    self.is_plain.store(plain_now, Ordering::Relaxed);
                    continue;
                }
            }
            let Some(stored) = stored else {
                return Err(SyncError::Gone);
            };
            let pruned = status::is_pruned(&wanted, stored.status.as_ref());
            self.is_pruned.store(pruned, Ordering::Relaxed);
            return Ok(self.compare(key, foo, stored.resource_version()));
        }
    }

    async fn patch(
        &self,
        key: &ObjectKey,
        foo: &Foo,
        status: &FooStatus,
        plain: bool,
    ) -> Result<Foo, kube::Error> {
        let namespace = key.namespace().unwrap_or_default();
        let foos = Api::<Foo>::namespaced(self.client.clone(), namespace);
        let mut patch = json!({ "metadata": { "uid": foo.uid() }, "status": status });
        // Null removes what another form of the definition left behind; absence would keep it.
        patch["status"]["observedGeneration"] = json!(status.observed_generation);
        let patch = Patch::Merge(patch);
        if plain {
            foos.patch(key.name(), &as_ourselves(), &patch).await
        } else {
            foos.patch_status(key.name(), &as_ourselves(), &patch).await
        }
    }

    /// Whether the write that left a Foo at `stored` changed it.
    fn compare(&self, key: &ObjectKey, foo: &Foo, stored: Option<String>) -> Changed {
        let mut unseen = self.unseen.lock();
        let unchanged = stored == foo.resource_version() || unseen.get(key) == Some(&stored);
        if stored == foo.resource_version() {
            unseen.remove(key);
        } else {
            unseen.insert(key.clone(), stored);
        }
        if unchanged { Changed::No } else { Changed::Yes }
    }

    /// Forgets a Foo that is fine as it is, or gone.
    pub(crate) fn forget(&self, key: &ObjectKey) {
        self.unseen.lock().remove(key);
    }

    /// Asks discovery, which every account may read.
    async fn has_subresource(&self) -> Result<bool, SyncError> {
        let version = Foo::api_version(&());
        match self.client.list_api_group_resources(&version).await {
            Ok(known) => {
                let status = format!("{}/status", Foo::plural(&()));
                Ok(known.resources.iter().any(|known| known.name == status))
            }
            // The definition itself is gone, and every Foo with it.
            Err(kube::Error::Api(status)) if status.is_not_found() => Err(SyncError::Gone),
            Err(error) => Err(SyncError::api("asking which subresources Foos have")(error)),
        }
    }

    /// The status to report. As a plain field it is part of what the generation counts, so naming
    /// the generation in it would chase our own writes.
    fn status(&self, foo: &Foo, report: &Report, plain: bool) -> FooStatus {
        let observed = foo.metadata.generation.filter(|_| !plain);
        report.to_status(foo, observed, &self.clock)
    }

    /// Whether `foo` says `wanted` already, as far as its server can say it.
    fn has(&self, foo: &Foo, wanted: &FooStatus) -> bool {
        match &foo.status {
            Some(has) if self.is_pruned.load(Ordering::Relaxed) => {
                has.available_replicas == wanted.available_replicas
            }
            has => has.as_ref() == Some(wanted),
        }
    }
}

pub(crate) fn as_ourselves() -> PatchParams {
    PatchParams {
        field_manager: Some(NAME.to_owned()),
        ..PatchParams::default()
    }
}
