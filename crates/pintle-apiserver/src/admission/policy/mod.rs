//! Admission policies: the plugins `ValidatingAdmissionPolicy` and `MutatingAdmissionPolicy`.
//!
//! [`Policies`] holds the compiled policies that have bindings. It changes only when a policy or a
//! binding does; as long as there are none, a write only loads a flag.
//!
//! ```text
//! write ─► policy matches ─► binding matches ─► parameters ─► match conditions ─► evaluate
//! ```
//!
//! A policy applies once for each of its bindings and each parameter object of the binding. All
//! validating policies are evaluated, and the first denial is returned. Mutating policies run one
//! after the other, each on the previous result. Policies and bindings are ordered by name, so that
//! the outcome is deterministic. Messages are kube-apiserver's.
//!
//! Evaluating an expression is synchronous and bounded by its budget. A write yields between two
//! parameters, so that a binding with thousands of them does not delay other requests.

mod compile;
mod matching;
mod mutating;
mod params;
mod patch;
mod typecheck;
mod validating;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

use self::compile::{Binding, Policy};
pub use self::typecheck::policy_warnings;
pub(crate) use self::{
    compile::{apply_type, json_patch_type},
    mutating::MutatingPolicies,
    validating::ValidatingPolicies,
};
use super::Request;
use crate::{
    api::{Api, ApiError},
    meta::Tree,
    store::key_of,
};

pub(crate) const GROUP: &str = "admissionregistration.k8s.io";

/// The number of policies with variables that may be evaluated at a time. Variables that refer to
/// each other may need up to 32 threads for their stacks.
const MAX_STACKS: usize = 4;

/// The policies of both phases.
#[derive(Debug)]
pub(crate) struct Policies {
    mutating: Phase,
    validating: Phase,
    stacks: Semaphore,
}

impl Default for Policies {
    fn default() -> Self {
        Self {
            mutating: Phase::new(true),
            validating: Phase::new(false),
            stacks: Semaphore::new(MAX_STACKS),
        }
    }
}

impl Policies {
    /// Returns the mutating or the validating policies.
    pub(crate) fn phase(&self, mutating: bool) -> &Phase {
        if mutating {
            &self.mutating
        } else {
            &self.validating
        }
    }

    /// Waits until expressions of a policy may be evaluated. The permit must not be held across an
    /// await, so that no write waits for it longer than an evaluation takes.
    async fn stacks(&self, policy: &Policy) -> Option<SemaphorePermit<'_>> {
        if policy.variables.is_empty() {
            return None;
        }
        self.stacks.acquire().await.ok()
    }
}

/// Yields to other tasks before each evaluation of a write, except the first.
#[derive(Debug, Default)]
struct Turns {
    started: bool,
}

impl Turns {
    async fn next(&mut self) {
        if std::mem::replace(&mut self.started, true) {
            tokio::task::yield_now().await;
        }
    }
}

/// The policies of one phase.
#[derive(Debug)]
pub(crate) struct Phase {
    mutating: bool,
    /// Whether a policy has a binding; read by every write.
    any: AtomicBool,
    current: RwLock<Arc<Vec<Bound>>>,
    sources: Mutex<Sources>,
}

/// A policy and its bindings, ordered by name.
#[derive(Debug, Clone)]
struct Bound {
    policy: Arc<Policy>,
    bindings: Vec<Arc<Binding>>,
}

/// Stored policies and bindings, by name.
#[derive(Debug, Default)]
struct Sources {
    policies: BTreeMap<String, Arc<Policy>>,
    bindings: BTreeMap<String, Arc<Binding>>,
}

impl Phase {
    fn new(mutating: bool) -> Self {
        Self {
            mutating,
            any: AtomicBool::new(false),
            current: RwLock::default(),
            sources: Mutex::default(),
        }
    }

    fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    fn current(&self) -> Arc<Vec<Bound>> {
        Arc::clone(&self.current.read())
    }

    /// Reads a policy or binding after it was written or deleted.
    pub(crate) fn refresh(&self, api: &Api, binding: bool, name: &str) {
        let plural = match (self.mutating, binding) {
            (true, true) => "mutatingadmissionpolicybindings",
            (true, false) => "mutatingadmissionpolicies",
            (false, true) => "validatingadmissionpolicybindings",
            (false, false) => "validatingadmissionpolicies",
        };
        let collection = api.registry.builtin_collection(GROUP, plural);
        let key = key_of(None, name);
        self.replace(binding, name, || {
            let stored = api.store.get(collection?, &key)?;
            Some(Value::Object(stored.decode())["spec"].take())
        });
    }

    /// Replaces a policy or binding with the stored one, whose spec `stored` reads.
    fn replace(&self, binding: bool, name: &str, mut stored: impl FnMut() -> Option<Value>) {
        let mut compiled: Option<Arc<Policy>> = None;
        loop {
            // Held while reading the store, so that the newest state is published last.
            let mut sources = self.sources.lock();
            let Some(spec) = stored() else {
                if binding {
                    sources.bindings.remove(name);
                } else {
                    sources.policies.remove(name);
                }
                return self.publish(&sources);
            };
            if binding {
                let binding = Binding::read(name, &spec);
                sources.bindings.insert(name.to_owned(), Arc::new(binding));
                return self.publish(&sources);
            }
            // A change that only affects metadata does not recompile the policy.
            let known = sources.policies.get(name).cloned();
            let current = |policy: &Arc<Policy>| policy.spec == spec;
            if let Some(policy) = known.filter(current).or(compiled.take().filter(current)) {
                sources.policies.insert(name.to_owned(), policy);
                return self.publish(&sources);
            }
            // Other writes continue while the policy is compiled, and may change it.
            drop(sources);
            compiled = Some(Arc::new(Policy::compile(name, &spec, self.mutating)));
        }
    }

    fn publish(&self, sources: &Sources) {
        let bound = sources.policies.iter().filter_map(|(name, policy)| {
            let bindings = sources.bindings.values();
            let bindings: Vec<_> = bindings
                .filter(|binding| binding.policy == *name)
                .cloned()
                .collect();
            (!bindings.is_empty()).then(|| Bound {
                policy: Arc::clone(policy),
                bindings,
            })
        });
        let bound: Vec<Bound> = bound.collect();
        let any = !bound.is_empty();
        *self.current.write() = Arc::new(bound);
        self.any.store(any, Ordering::Release);
    }
}

/// Returns true for kinds that no policy applies to: policies and bindings, so that a broken one
/// can always be removed, and reviews, so that no policy can change what the server reports about
/// users and their permissions.
fn is_exempt(request: &Request<'_>) -> bool {
    const KINDS: [&str; 4] = [
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
    ];
    let mut kinds = KINDS.iter();
    request.resource.hooks.is_review() || kinds.any(|plural| request.is_for(GROUP, plural))
}

/// Returns the namespace of the object as `namespaceObject` shows it, or null for a cluster-scoped
/// object.
fn namespace_object(api: &Api, request: &Request<'_>) -> Result<Value, ApiError> {
    let name = request.namespace.unwrap_or_default();
    if name.is_empty() || request.resource.hooks.is_namespace() {
        return Ok(Value::Null);
    }
    let collection = api.registry.builtin_collection("", "namespaces");
    let stored = collection.and_then(|collection| api.store.get(collection, name));
    let Some(stored) = stored else {
        return Err(ApiError::not_found("", "namespaces", name));
    };
    let namespace: Tree = stored.decode();
    let mut metadata = namespace.get("metadata").cloned().unwrap_or(json!({}));
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.remove("managedFields");
        metadata.remove("ownerReferences");
        metadata.insert("resourceVersion".into(), stored.revision.to_string().into());
    }
    let part = |name: &str| namespace.get(name).cloned().unwrap_or(json!({}));
    Ok(json!({"metadata": metadata, "spec": part("spec"), "status": part("status")}))
}

#[cfg(test)]
mod tests;
