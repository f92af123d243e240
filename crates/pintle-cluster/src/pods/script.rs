//! Scripts: behaviors of the Pods that selectors match, set while the cluster runs.

use k8s_openapi::api::core::v1::Pod;
use pintle::cache::InvalidSelector;
use pintle_apiserver::{PodLogLine, PodLogRequest};

use super::{
    behavior::Behavior,
    logs::{self, LogLine},
};
use crate::{
    meta,
    rules::{Rules, Target},
};

/// The scripts of a cluster.
pub(crate) type Scripts = Rules<What>;

/// The setting of a script. A script for the behavior and one for the logs do not replace each
/// other.
#[derive(Clone, Debug)]
pub(crate) enum What {
    Behavior(Behavior),
    Logs(Vec<LogLine>),
}

impl Scripts {
    /// Returns the behavior of a Pod: from the newest matching script, else from its annotation,
    /// else the default.
    pub(crate) fn behavior(&self, pod: &Pod) -> Behavior {
        let behavior = |what: &What| match what {
            What::Behavior(behavior) => Some(behavior.clone()),
            What::Logs(_) => None,
        };
        self.find(&pod.metadata, behavior)
            .unwrap_or_else(|| Behavior::of(pod))
    }

    /// Returns the lines that a container has logged: from the newest matching script with logs,
    /// else from the annotation, else none.
    pub(crate) fn logs(&self, request: PodLogRequest<'_>) -> Vec<PodLogLine> {
        let Ok(pod) = serde_json::from_value::<Pod>(request.pod.clone()) else {
            return Vec::new();
        };
        let logs = |what: &What| match what {
            What::Logs(lines) => Some(lines.clone()),
            What::Behavior(_) => None,
        };
        let annotated = || {
            let text = meta::annotation(&pod.metadata, Behavior::LOGS).unwrap_or_default();
            text.lines().map(LogLine::from).collect()
        };
        let lines = self.find(&pod.metadata, logs).unwrap_or_else(annotated);
        logs::between(&lines, request.started, request.until)
    }
}

/// Selects simulated Pods, to script their containers; see [`Cluster::pods`](crate::Cluster::pods).
#[derive(Clone, Debug)]
#[must_use = "a selection has no effect until a behavior is set"]
pub struct Pods {
    scripts: Scripts,
    target: Target,
}

impl Pods {
    pub(crate) fn new(scripts: Scripts) -> Self {
        Self {
            scripts,
            target: Target::default(),
        }
    }

    /// Limits the selection to the Pods whose labels match, for example `"app=web"`. Uses the
    /// syntax of `kubectl -l`.
    pub fn matching(mut self, selector: impl Into<String>) -> Self {
        self.target.selector = selector.into();
        self
    }

    /// Limits the selection to one namespace.
    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.target.namespace = Some(namespace.into());
        self
    }

    /// Sets what the containers of the selected Pods do, including Pods created later.
    ///
    /// It takes precedence over the annotation of a Pod and over earlier scripts. Running
    /// containers can exit or become unready, but can no longer fail to start. The script lasts as
    /// long as the cluster: a cluster restarted on the same server does not have it.
    ///
    /// # Errors
    ///
    /// Fails if the selector is invalid.
    pub fn behave(&self, behavior: Behavior) -> Result<(), InvalidSelector> {
        self.set(What::Behavior(behavior))
    }

    /// Sets what the containers of the selected Pods log each time they start, as `kubectl logs`
    /// shows it.
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
        let kind = std::mem::discriminant(&what);
        let replaces = |other: &What| std::mem::discriminant(other) == kind;
        self.scripts.set(&self.target, what, replaces)
    }

    /// Removes the scripts with this selection, so that earlier scripts, annotations and defaults
    /// apply again.
    ///
    /// # Errors
    ///
    /// Fails if the selector is invalid.
    pub fn reset(&self) -> Result<(), InvalidSelector> {
        self.scripts.reset(&self.target)
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
