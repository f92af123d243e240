//! Scripts: the nodes of a cluster and the behavior of Pods and claims, as YAML or JSON.

use std::collections::BTreeMap;

use pintle::cache::{InvalidSelector, Selector};
use pintle_apiserver::{crd, quota::resource_amount};
use serde::Deserialize;

use crate::{
    nodes::{NodeBehavior, NodeTemplate, TaintEffect},
    pods::{Behavior, LogLine, Pods},
    volumes::behavior::{ClaimBehavior, Claims},
};

/// The nodes of a cluster and the behavior of its Pods and claims, read from YAML or JSON.
///
/// A script is set with [`Builder::script`](crate::Builder::script), or by the program with
/// `pintle-cluster --script FILE`:
///
/// ```yaml
/// nodes:                       # in addition to the numbered nodes
/// - name: gpu-0
///   labels: { disk: ssd }
///   taints: [{ key: gpu, value: "true", effect: NoSchedule }]
///   allocatable: { cpu: "4", nvidia.com/gpu: "1" }
///   behavior: disk-full        # see NodeBehavior; default: healthy
/// pods:                        # the last entry that matches a Pod wins
/// - selector: app=web          # as in kubectl -l; default: all Pods
///   namespace: prod            # default: all namespaces
///   behavior: exit code=3 after=5s   # see Behavior
/// - selector: app=web
///   logs:                      # a string, or a list of lines
///   - starting
///   - { after: 5s, line: "panic: out of luck" }
/// claims:
/// - selector: app=db
///   behavior: never-bind       # see ClaimBehavior
/// ```
///
/// # Examples
///
/// ```
/// use pintle_cluster::Script;
///
/// let script = Script::parse("pods: [{ selector: app=web, behavior: crash-loop }]")?;
/// let error = Script::parse("pods: [{ behavior: fly }]").unwrap_err();
/// assert_eq!(error.to_string(), r#"pods[0]: invalid behavior "fly": unknown verb "fly""#);
/// # Ok::<(), pintle_cluster::InvalidScript>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Script {
    pub(crate) nodes: Vec<(NodeTemplate, NodeBehavior)>,
    pub(crate) pods: Vec<PodRule>,
    pub(crate) claims: Vec<ClaimRule>,
}

/// When the claims that a selector matches are bound.
#[derive(Clone, Debug)]
pub(crate) struct ClaimRule {
    pub(crate) selector: String,
    pub(crate) namespace: Option<String>,
    pub(crate) behavior: ClaimBehavior,
}

impl ClaimRule {
    /// Applies the rule.
    pub(crate) fn apply(self, claims: Claims) {
        let mut claims = claims.matching(self.selector);
        if let Some(namespace) = self.namespace {
            claims = claims.in_namespace(namespace);
        }
        ignore_invalid(claims.behave(self.behavior));
    }
}

/// Logs an invalid selector. Scripts are checked when they are read.
fn ignore_invalid(applied: Result<(), InvalidSelector>) {
    if let Err(error) = applied {
        tracing::error!(%error, "script has an invalid selector; ignoring the entry");
    }
}

/// The behavior and logs of the Pods that a selector matches.
#[derive(Clone, Debug)]
pub(crate) struct PodRule {
    pub(crate) selector: String,
    pub(crate) namespace: Option<String>,
    pub(crate) behavior: Option<Behavior>,
    pub(crate) logs: Option<Vec<LogLine>>,
}

impl PodRule {
    /// Applies the rule.
    pub(crate) fn apply(self, pods: Pods) {
        let mut pods = pods.matching(self.selector);
        if let Some(namespace) = self.namespace {
            pods = pods.in_namespace(namespace);
        }
        if let Some(behavior) = self.behavior {
            ignore_invalid(pods.behave(behavior));
        }
        if let Some(lines) = self.logs {
            ignore_invalid(pods.logs(lines));
        }
    }
}

/// The error returned when a string is not a valid [`Script`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidScript(String);

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Document {
    nodes: Vec<NodeEntry>,
    pods: Vec<PodEntry>,
    claims: Vec<ClaimEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimEntry {
    #[serde(default)]
    selector: String,
    namespace: Option<String>,
    behavior: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeEntry {
    name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    taints: Vec<TaintEntry>,
    #[serde(default)]
    allocatable: BTreeMap<String, String>,
    behavior: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaintEntry {
    key: String,
    #[serde(default)]
    value: String,
    effect: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PodEntry {
    #[serde(default)]
    selector: String,
    namespace: Option<String>,
    behavior: Option<String>,
    logs: Option<LogsEntry>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum LogsEntry {
    Text(String),
    Lines(Vec<LineEntry>),
}

#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum LineEntry {
    Text(String),
    Timed { after: String, line: String },
}

impl Script {
    /// Parses a script. Several YAML documents form one script.
    ///
    /// # Errors
    ///
    /// Fails if the script is not YAML or JSON, has an unknown field, or has an invalid value; for
    /// an invalid value, the error names the entry.
    pub fn parse(text: &str) -> Result<Self, InvalidScript> {
        let documents = crd::documents(text).map_err(|error| InvalidScript(error.to_string()))?;
        let mut script = Self::default();
        for document in documents.into_iter().filter(|it| !it.is_null()) {
            let document: Document = serde_json::from_value(document)
                .map_err(|error| InvalidScript(error.to_string()))?;
            for entry in document.nodes {
                let at = format!("nodes[{}]", script.nodes.len());
                script.nodes.push(entry.read().map_err(located(&at))?);
            }
            for entry in document.pods {
                let at = format!("pods[{}]", script.pods.len());
                script.pods.push(entry.read().map_err(located(&at))?);
            }
            for entry in document.claims {
                let at = format!("claims[{}]", script.claims.len());
                script.claims.push(entry.read().map_err(located(&at))?);
            }
        }
        Ok(script)
    }
}

fn located(at: &str) -> impl Fn(String) -> InvalidScript {
    move |why| InvalidScript(format!("{at}: {why}"))
}

impl NodeEntry {
    fn read(self) -> Result<(NodeTemplate, NodeBehavior), String> {
        let mut node = NodeTemplate::new(self.name);
        for (key, value) in self.labels {
            node = node.label(key, value);
        }
        for taint in self.taints {
            let known = TaintEffect::ALL.into_iter();
            let effect = known.into_iter().find(|it| it.as_str() == taint.effect);
            let effect =
                effect.ok_or_else(|| format!("unknown taint effect {:?}", taint.effect))?;
            node = node.taint(taint.key, taint.value, effect);
        }
        for (resource, amount) in self.allocatable {
            if resource_amount(&resource, &amount).is_none_or(|amount| amount < 0) {
                return Err(format!("invalid amount of {resource}: {amount:?}"));
            }
            node = node.allocatable(resource, amount);
        }
        let behavior = self.behavior.as_deref().unwrap_or_default();
        let behavior: Result<NodeBehavior, _> = behavior.parse();
        Ok((node, behavior.map_err(|error| error.to_string())?))
    }
}

fn check_selector(selector: &str) -> Result<(), String> {
    if !selector.is_empty() {
        let selector: Result<Selector, _> = selector.parse();
        selector.map_err(|error| error.to_string())?;
    }
    Ok(())
}

impl ClaimEntry {
    fn read(self) -> Result<ClaimRule, String> {
        check_selector(&self.selector)?;
        let behavior = self.behavior.parse::<ClaimBehavior>();
        Ok(ClaimRule {
            selector: self.selector,
            namespace: self.namespace,
            behavior: behavior.map_err(|error| error.to_string())?,
        })
    }
}

impl PodEntry {
    fn read(self) -> Result<PodRule, String> {
        check_selector(&self.selector)?;
        if self.behavior.is_none() && self.logs.is_none() {
            return Err("neither behavior nor logs is set".to_owned());
        }
        let behavior = self.behavior.map(|text| text.parse::<Behavior>());
        let behavior = behavior.transpose().map_err(|error| error.to_string())?;
        let logs = match self.logs {
            None => None,
            Some(LogsEntry::Text(text)) => Some(text.lines().map(LogLine::from).collect()),
            Some(LogsEntry::Lines(lines)) => {
                let lines = lines.into_iter().map(LineEntry::read);
                Some(lines.collect::<Result<_, _>>()?)
            }
        };
        Ok(PodRule {
            selector: self.selector,
            namespace: self.namespace,
            behavior,
            logs,
        })
    }
}

impl LineEntry {
    fn read(self) -> Result<LogLine, String> {
        match self {
            Self::Text(text) => Ok(LogLine::from(text.as_str())),
            Self::Timed { after, line } => {
                let after = crate::pods::duration(&after)?;
                Ok(LogLine::from(line.as_str()).after(after))
            }
        }
    }
}

#[cfg(test)]
mod tests;
