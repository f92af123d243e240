//! Scripts: behaviors of the Pods that selectors match, set while the cluster runs.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use pintle::cache::{InvalidSelector, Selector};
use pintle_apiserver::{PodLogLine, PodLogRequest};
use tokio::sync::watch;

use super::{
    behavior::Behavior,
    logs::{self, LogLine},
};
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
    what: What,
}

/// The setting of a script. A script for the behavior and one for the logs do not replace each
/// other.
#[derive(Clone, Debug)]
enum What {
    Behavior(Behavior),
    Logs(Vec<LogLine>),
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
        let behavior = |rule: &Rule| match &rule.what {
            What::Behavior(behavior) => Some(behavior.clone()),
            What::Logs(_) => None,
        };
        self.find(pod, behavior)
            .unwrap_or_else(|| Behavior::of(pod))
    }

    /// Returns the logs of containers that ran from one time to another: those of the newest matching
    /// script with logs, else of the annotation, else none.
    pub(crate) fn logs(&self, request: PodLogRequest<'_>) -> Vec<PodLogLine> {
        let Ok(pod) = serde_json::from_value::<Pod>(request.pod.clone()) else {
            return Vec::new();
        };
        let logs = |rule: &Rule| match &rule.what {
            What::Logs(lines) => Some(lines.clone()),
            What::Behavior(_) => None,
        };
        let annotated = || {
            let text = meta::annotation(&pod.metadata, Behavior::LOGS).unwrap_or_default();
            text.lines().map(LogLine::from).collect()
        };
        let lines = self.find(&pod, logs).unwrap_or_else(annotated);
        logs::between(&lines, request.started, request.until)
    }

    fn find<T>(&self, pod: &Pod, what: impl Fn(&Rule) -> Option<T>) -> Option<T> {
        let rules = self.rules.lock();
        let mut matching = rules.iter().rev().filter(|rule| rule.matches(pod));
        matching.find_map(what)
    }

    /// Returns a receiver that is notified of every change.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn retain(&self, keeps: impl Fn(&Rule) -> bool) {
        self.rules.lock().retain(keeps);
    }
}

/// Selects simulated Pods, to script their containers; see [`Cluster::pods`](crate::Cluster::pods).
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
        self.set(What::Behavior(behavior))
    }

    /// Sets what the containers of the selected Pods log each time they start, as `kubectl logs` shows
    /// it.
    ///
    /// It takes precedence over the annotation [`Behavior::LOGS`] and over earlier scripts.
    ///
    /// # Errors
    ///
    /// Fails if the selector is invalid.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use pintle_cluster::{Cluster, LogLine};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = Cluster::start().await;
    /// let failure = LogLine::from("panic: out of luck").after(Duration::from_secs(5));
    /// let web = cluster.pods().matching("app=web");
    /// web.logs([LogLine::from("starting"), failure])?;
    /// # cluster.stop().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn logs(&self, lines: impl IntoIterator<Item = LogLine>) -> Result<(), InvalidSelector> {
        self.set(What::Logs(lines.into_iter().collect()))
    }

    fn set(&self, what: What) -> Result<(), InvalidSelector> {
        let selector = self.parsed()?;
        let kind = std::mem::discriminant(&what);
        self.scripts
            .retain(|rule| !self.is_mine(rule) || std::mem::discriminant(&rule.what) != kind);
        self.scripts.rules.lock().push(Rule {
            namespace: self.namespace.clone(),
            text: self.selector.clone(),
            selector,
            what,
        });
        self.scripts.changed.send_replace(());
        Ok(())
    }

    fn is_mine(&self, rule: &Rule) -> bool {
        rule.namespace == self.namespace && rule.text == self.selector
    }

    /// Removes the scripts with this selection, so that earlier scripts, annotations and defaults
    /// apply again.
    ///
    /// # Errors
    ///
    /// Fails if the selector is invalid.
    pub fn reset(&self) -> Result<(), InvalidSelector> {
        self.parsed()?;
        self.scripts.retain(|rule| !self.is_mine(rule));
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
