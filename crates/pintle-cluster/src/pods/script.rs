//! Scripts: behaviors of the Pods that selectors match, set while the cluster runs.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use pintle::cache::{InvalidSelector, Selector};
use tokio::sync::watch;

use super::behavior::Behavior;
use crate::meta;

/// The scripts of a cluster, newest last. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Scripts {
    rules: Arc<Mutex<Vec<Rule>>>,
    changed: watch::Sender<()>,
}

#[derive(Clone, Debug)]
struct Rule {
    namespace: Option<String>,
    /// The text of the selector; equal texts are the same rule.
    text: String,
    selector: Selector,
    behavior: Behavior,
}

impl Rule {
    fn matches(&self, pod: &Pod) -> bool {
        let namespace = pod.metadata.namespace.as_ref();
        let is_here = self.namespace.is_none() || self.namespace.as_ref() == namespace;
        is_here && meta::selects(&self.selector, &pod.metadata)
    }
}

impl Scripts {
    pub(crate) fn new() -> Self {
        Self {
            rules: Arc::default(),
            changed: watch::Sender::new(()),
        }
    }

    /// Returns the behavior of a Pod: that of the newest matching script, of its annotation, or the
    /// default.
    pub(crate) fn behavior(&self, pod: &Pod) -> Behavior {
        let rules = self.rules.lock();
        let scripted = rules.iter().rev().find(|rule| rule.matches(pod));
        scripted.map_or_else(|| Behavior::of(pod), |rule| rule.behavior.clone())
    }

    /// Returns a receiver that is notified of every change.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn retain_others(&self, namespace: Option<&str>, text: &str) {
        self.rules
            .lock()
            .retain(|rule| rule.namespace.as_deref() != namespace || rule.text != text);
    }
}

/// Selects simulated Pods, to script what their containers do; see
/// [`Cluster::pods`](crate::Cluster::pods).
#[derive(Clone, Debug)]
#[must_use = "a selection has no effect until a behavior is set"]
pub struct Pods {
    scripts: Scripts,
    namespace: Option<String>,
    selector: String,
}

impl Pods {
    pub(crate) fn new(scripts: Scripts) -> Self {
        Self {
            scripts,
            namespace: None,
            selector: String::new(),
        }
    }

    /// Limits the selection to the Pods whose labels match, for example `"app=web"`. The syntax is
    /// that of `kubectl -l`.
    pub fn matching(mut self, selector: impl Into<String>) -> Self {
        self.selector = selector.into();
        self
    }

    /// Limits the selection to one namespace.
    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Sets what the containers of the selected Pods do, including Pods created later.
    ///
    /// It takes precedence over the annotation of a Pod and over earlier scripts. Running
    /// containers can exit or become unready, but can no longer fail to start. The script ends with
    /// the cluster: one restarted on the same server no longer has it.
    ///
    /// # Errors
    ///
    /// Fails if the selector is invalid.
    pub fn behave(&self, behavior: Behavior) -> Result<(), InvalidSelector> {
        let selector = self.parsed()?;
        self.scripts
            .retain_others(self.namespace.as_deref(), &self.selector);
        self.scripts.rules.lock().push(Rule {
            namespace: self.namespace.clone(),
            text: self.selector.clone(),
            selector,
            behavior,
        });
        self.scripts.changed.send_replace(());
        Ok(())
    }

    /// Removes the script with this selection, so that earlier scripts, annotations and defaults
    /// apply again.
    ///
    /// # Errors
    ///
    /// Fails if the selector is invalid.
    pub fn reset(&self) -> Result<(), InvalidSelector> {
        self.parsed()?;
        self.scripts
            .retain_others(self.namespace.as_deref(), &self.selector);
        self.scripts.changed.send_replace(());
        Ok(())
    }

    fn parsed(&self) -> Result<Selector, InvalidSelector> {
        if self.selector.is_empty() {
            return Ok(Selector::everything());
        }
        self.selector.parse()
    }

    /// Sets [`Behavior::run`].
    ///
    /// # Errors
    ///
    /// Fails if the selector is invalid.
    pub fn run(&self) -> Result<(), InvalidSelector> {
        self.behave(Behavior::run())
    }

    /// Sets [`Behavior::exit`].
    ///
    /// # Errors
    ///
    /// Fails if the selector is invalid.
    pub fn exit(&self, code: i32) -> Result<(), InvalidSelector> {
        self.behave(Behavior::exit(code))
    }

    /// Sets [`Behavior::crash_loop`].
    ///
    /// # Errors
    ///
    /// Fails if the selector is invalid.
    pub fn crash_loop(&self) -> Result<(), InvalidSelector> {
        self.behave(Behavior::crash_loop())
    }

    /// Sets [`Behavior::oom_kill`].
    ///
    /// # Errors
    ///
    /// Fails if the selector is invalid.
    pub fn oom_kill(&self) -> Result<(), InvalidSelector> {
        self.behave(Behavior::oom_kill())
    }

    /// Sets [`Behavior::never_ready`].
    ///
    /// # Errors
    ///
    /// Fails if the selector is invalid.
    pub fn never_ready(&self) -> Result<(), InvalidSelector> {
        self.behave(Behavior::never_ready())
    }

    /// Sets [`Behavior::fail_image_pull`].
    ///
    /// # Errors
    ///
    /// Fails if the selector is invalid.
    pub fn fail_image_pull(&self) -> Result<(), InvalidSelector> {
        self.behave(Behavior::fail_image_pull())
    }
}
