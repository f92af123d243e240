//! Admission webhooks: the plugins `MutatingAdmissionWebhook` and `ValidatingAdmissionWebhook`.
//!
//! [`Hooks`] holds the compiled webhooks of all configurations and of this process, in the order in
//! which they are called. It changes only when one of them does; while there are no webhooks, a
//! write only loads a flag.
//!
//! ```text
//! write ─► match: rules, selectors, conditions ─► review ─► call ─► verify ─► patch or verdict
//! ```
//!
//! Mutating webhooks run one after the other, each on the previous result. Validating webhooks run
//! concurrently. If a webhook fails, its failure policy decides whether the request is denied or
//! the webhook is skipped. Messages are kube-apiserver's.

mod call;
mod conditions;
mod hook;
mod matching;
mod mutating;
mod patched;
mod types;
mod validating;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};
use serde_json::Value;

pub(super) use self::{
    call::{described, shown},
    conditions::hold,
    hook::{Rule, read_selector},
    matching::{Invocation, in_namespace, matching_resource, selects_object},
    mutating::Rounds,
    patched::patched_object,
};
pub(crate) use self::{
    conditions::compile_condition, hook::Hook, mutating::MutatingWebhooks,
    validating::ValidatingWebhooks,
};
use super::Request;
use crate::{api::Api, conversion_webhook::Converters, store::key_of, webhook::Client};

/// Everything the server needs to call webhooks.
#[derive(Debug)]
pub(crate) struct Webhooks {
    pub(crate) client: Client,
    pub(crate) converters: Converters,
    mutating: Hooks,
    validating: Hooks,
}

impl Default for Webhooks {
    fn default() -> Self {
        Self {
            client: Client::default(),
            converters: Converters::default(),
            mutating: Hooks::new(true),
            validating: Hooks::new(false),
        }
    }
}

impl Webhooks {
    /// Returns the mutating or the validating webhooks.
    pub(crate) fn hooks(&self, mutating: bool) -> &Hooks {
        if mutating {
            &self.mutating
        } else {
            &self.validating
        }
    }
}

/// The webhooks of one phase.
#[derive(Debug)]
pub(crate) struct Hooks {
    mutating: bool,
    /// Whether there are any webhooks; read by every write.
    any: AtomicBool,
    /// In the order in which they are called.
    current: RwLock<Arc<Vec<Arc<Hook>>>>,
    sources: Mutex<Sources>,
}

/// Where webhooks come from.
#[derive(Debug, Default)]
struct Sources {
    /// From stored configurations, by the name of the configuration.
    configured: BTreeMap<String, Arc<Configuration>>,
    /// In this process, by id.
    local: BTreeMap<u64, Arc<Hook>>,
    next: u64,
}

/// A stored configuration.
#[derive(Debug)]
struct Configuration {
    /// The entries that were compiled.
    entries: Value,
    hooks: Vec<Arc<Hook>>,
}

impl Configuration {
    /// Compiles the entries of a configuration. Calls to an invalid webhook fail.
    fn compile(name: &str, entries: Value, mutating: bool) -> Self {
        let list = entries.as_array().into_iter().flatten().enumerate();
        let hooks = list.filter_map(|(i, entry)| {
            let compiled = Hook::configured(name, i, entry, mutating);
            compiled.map_or_else(
                |error| {
                    tracing::warn!(
                        configuration = name,
                        %error,
                        "invalid webhook configuration; calls to it will fail"
                    );
                    Hook::broken(name, i, entry, error.to_string())
                },
                Some,
            )
        });
        let hooks = hooks.map(Arc::new).collect();
        Self { entries, hooks }
    }
}

impl Hooks {
    fn new(mutating: bool) -> Self {
        Self {
            mutating,
            any: AtomicBool::new(false),
            current: RwLock::default(),
            sources: Mutex::default(),
        }
    }

    /// Returns true if there are no webhooks.
    pub(super) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    pub(super) fn current(&self) -> Arc<Vec<Arc<Hook>>> {
        Arc::clone(&self.current.read())
    }

    /// Adds a webhook in this process and returns its id.
    pub(crate) fn add_local(&self, hook: Hook) -> u64 {
        let mut sources = self.sources.lock();
        let id = sources.next;
        sources.next += 1;
        sources.local.insert(id, Arc::new(hook));
        self.publish(&sources);
        id
    }

    pub(crate) fn remove_local(&self, id: u64) {
        let mut sources = self.sources.lock();
        sources.local.remove(&id);
        self.publish(&sources);
    }

    /// Reads a configuration after it was written or deleted.
    pub(crate) fn refresh(&self, api: &Api, name: &str) {
        let plural = if self.mutating {
            "mutatingwebhookconfigurations"
        } else {
            "validatingwebhookconfigurations"
        };
        let collection = api
            .registry
            .builtin_collection("admissionregistration.k8s.io", plural);
        let key = key_of(None, name);
        self.replace(name, || {
            let stored = api.store.get(collection?, &key)?;
            Some(Value::Object(stored.decode())["webhooks"].take())
        });
    }

    /// Replaces a configuration with the stored one, whose entries `stored` reads.
    fn replace(&self, name: &str, mut stored: impl FnMut() -> Option<Value>) {
        let mut compiled: Option<Arc<Configuration>> = None;
        loop {
            // Held while reading the store, so that the newest state is published last.
            let mut sources = self.sources.lock();
            let Some(entries) = stored() else {
                sources.configured.remove(name);
                return self.publish(&sources);
            };
            // A change that only affects metadata does not recompile the webhooks.
            let known = sources.configured.get(name).cloned();
            let current = |compiled: &Arc<Configuration>| compiled.entries == entries;
            if let Some(compiled) = known.filter(current).or(compiled.take().filter(current)) {
                sources.configured.insert(name.to_owned(), compiled);
                return self.publish(&sources);
            }
            // Other writes continue while the webhooks are compiled, and may change them.
            drop(sources);
            compiled = Some(Arc::new(Configuration::compile(
                name,
                entries,
                self.mutating,
            )));
        }
    }

    fn publish(&self, sources: &Sources) {
        let configured = sources.configured.values();
        let mut hooks: Vec<Arc<Hook>> = configured
            .flat_map(|configuration| &configuration.hooks)
            .chain(sources.local.values())
            .map(Arc::clone)
            .collect();
        // Stable, so the webhooks of one configuration keep their order.
        hooks.sort_by(|a, b| a.configuration.cmp(&b.configuration));
        let any = !hooks.is_empty();
        *self.current.write() = Arc::new(hooks);
        self.any.store(any, Ordering::Release);
    }
}

/// Returns true for the kinds that configure admission. No webhook is called for them, so that a
/// broken one can always be removed.
fn is_exempt(request: &Request<'_>) -> bool {
    const KINDS: [&str; 6] = [
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
        "mutatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "validatingwebhookconfigurations",
    ];
    let mut kinds = KINDS.iter();
    kinds.any(|plural| request.is_for("admissionregistration.k8s.io", plural))
}

#[cfg(test)]
mod tests;
