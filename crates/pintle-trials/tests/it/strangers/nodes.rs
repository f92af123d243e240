//! A hand-written loop over two watchers, which remembers Pods in its own map. Each node of a ring
//! has a Pod and a claim. Reproduces instaclustr/cassandra-operator#398: a claim is freed only if
//! the Pod was seen while it terminated.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    time::Duration,
};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{
    Api, CustomResource, Resource, ResourceExt,
    api::{DeleteParams, PostParams},
};
use kube_runtime::{WatchStreamExt, watcher, watcher::Event};
use pintle_trials::Cx;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "stranger.example.com",
    version = "v1",
    kind = "Ring",
    namespaced
)]
pub(crate) struct RingSpec {
    #[schemars(range(min = 0, max = 4))]
    nodes: usize,
}

#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
enum Change {
    Ring(Event<Ring>),
    Pod(Box<Event<Pod>>),
}

fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

fn is_exists(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

struct Operator {
    pods: Api<Pod>,
    claims: Api<PersistentVolumeClaim>,
    rings: BTreeMap<String, Ring>,
    terminating: BTreeSet<String>,
    broken: bool,
}

impl Operator {
    async fn sync(&mut self, ring: &Ring) -> Result<(), kube::Error> {
        let ring_name = ring.name_any();
        let selector = kube::api::ListParams::default().labels(&format!("ring={ring_name}"));
        let pods = self.pods.list(&selector).await?.items;
        let claims = self.claims.list(&selector).await?.items;
        let owners = [ring.controller_owner_ref(&()).unwrap()];
        for number in 0..ring.spec.nodes {
            let name = format!("{ring_name}-{number}");
            let meta =
                json!({"name": name, "labels": {"ring": ring_name}, "ownerReferences": owners});
            if !claims.iter().any(|claim| claim.name_any() == name) {
                let claim = object(json!({"metadata": meta, "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                }}));
                let made = self.claims.create(&PostParams::default(), &claim).await;
                made.map(drop)
                    .or_else(|e| if is_exists(&e) { Ok(()) } else { Err(e) })?;
            }
            if !pods.iter().any(|pod| pod.name_any() == name) {
                let pod = object(json!({"metadata": meta, "spec": {
                    "containers": [{"name": "db", "image": "db"}],
                    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}],
                }}));
                let made = self.pods.create(&PostParams::default(), &pod).await;
                made.map(drop)
                    .or_else(|e| if is_exists(&e) { Ok(()) } else { Err(e) })?;
            }
        }
        let superfluous = |name: &str| {
            let number = name
                .rsplit('-')
                .next()
                .and_then(|it| it.parse::<usize>().ok());
            number.is_some_and(|number| number >= ring.spec.nodes)
        };
        for pod in pods.iter().filter(|pod| superfluous(&pod.name_any())) {
            if pod.metadata.deletion_timestamp.is_none() {
                let gone = DeleteParams::default().preconditions(kube::api::Preconditions {
                    uid: pod.uid(),
                    resource_version: None,
                });
                let done = self.pods.delete(&pod.name_any(), &gone).await;
                done.map(drop).or_else(|e| {
                    if is_missing(&e) || is_exists(&e) {
                        Ok(())
                    } else {
                        Err(e)
                    }
                })?;
            }
        }
        for claim in claims.iter().filter(|claim| superfluous(&claim.name_any())) {
            let name = claim.name_any();
            let used = pods.iter().any(|pod| pod.name_any() == name);
            if used || claim.metadata.deletion_timestamp.is_some() {
                continue;
            }
            if self.broken && !self.terminating.remove(&name) {
                continue;
            }
            let gone = DeleteParams::default().preconditions(kube::api::Preconditions {
                uid: claim.uid(),
                resource_version: None,
            });
            let done = self.claims.delete(&name, &gone).await;
            done.map(drop).or_else(|e| {
                if is_missing(&e) || is_exists(&e) {
                    Ok(())
                } else {
                    Err(e)
                }
            })?;
        }
        Ok(())
    }

    fn observe(&mut self, change: Change) {
        match change {
            Change::Ring(Event::Init) => self.rings.clear(),
            Change::Ring(Event::Apply(ring) | Event::InitApply(ring)) => {
                self.rings.insert(ring.name_any(), ring);
            }
            Change::Ring(Event::Delete(ring)) => {
                self.rings.remove(&ring.name_any());
            }
            Change::Ring(Event::InitDone) => {}
            Change::Pod(event) => {
                if let Event::Apply(pod) = *event
                    && pod.metadata.deletion_timestamp.is_some()
                {
                    self.terminating.insert(pod.name_any());
                }
            }
        }
    }
}

async fn controller(cx: Cx, broken: bool) {
    let client = cx.client();
    let mut operator = Operator {
        pods: Api::namespaced(client.clone(), "default"),
        claims: Api::namespaced(client.clone(), "default"),
        rings: BTreeMap::new(),
        terminating: BTreeSet::new(),
        broken,
    };
    let config = watcher::Config::default;
    let rings = watcher(Api::<Ring>::all(client.clone()), config()).default_backoff();
    let pods = watcher(Api::<Pod>::all(client), config()).default_backoff();
    let changes = stream::select(
        rings
            .filter_map(async |it| it.ok().map(Change::Ring))
            .boxed_local(),
        pods.filter_map(async |it| Some(Change::Pod(Box::new(it.ok()?))))
            .boxed_local(),
    );
    let mut changes = pin!(changes);
    let mut retry = false;
    loop {
        let wait = Duration::from_secs(if retry { 2 } else { 300 });
        match tokio::time::timeout(wait, changes.next()).await {
            Ok(Some(change)) => operator.observe(change),
            Ok(None) => return,
            Err(_) => {}
        }
        retry = false;
        for ring in operator.rings.values().cloned().collect::<Vec<_>>() {
            if ring.meta().deletion_timestamp.is_none() {
                retry |= operator.sync(&ring).await.is_err();
            }
        }
    }
}

fn ring() -> Ring {
    Ring::new("ring", RingSpec { nodes: 1 })
}

super::twins!(controller, ring(), SameEnd);
