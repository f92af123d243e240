//! A webhook, compiled from its entry in a configuration.

use std::{sync::Arc, time::Duration};

use serde_json::Value;

use super::conditions::compile_condition;
use crate::{
    admission::expression::Expression,
    api::{selector_text, webhook_entry_errors},
    meta::LabelSelector,
    schema::field::aggregate,
    webhook::{ClientConfig, Limits, LocalWebhook, WebhookError},
};

/// A webhook.
#[derive(Debug)]
pub(crate) struct Hook {
    /// The configuration it belongs to; its own name if it is in this process.
    pub(crate) configuration: String,
    pub(super) name: String,
    /// Unique among the webhooks of one phase.
    pub(super) id: String,
    pub(super) rules: Vec<Rule>,
    /// Whether requests in other versions of the same resource are ignored.
    pub(super) exact: bool,
    pub(super) namespace_selector: LabelSelector,
    pub(super) object_selector: LabelSelector,
    pub(super) conditions: Vec<Expression>,
    pub(super) ignore_failures: bool,
    pub(super) timeout: Duration,
    pub(super) reinvocable: bool,
    /// The `apiVersion` of reviews; empty if the webhook accepts no known version.
    pub(super) review_version: &'static str,
    /// The error is reported by each call.
    pub(super) client: Result<ClientConfig, String>,
    /// Limits concurrent calls and the size of their responses.
    pub(super) limits: Arc<Limits>,
}

/// A rule of a webhook or policy: the operations and resources that it applies to.
#[derive(Debug)]
pub(in crate::admission) struct Rule {
    pub(super) operations: Vec<String>,
    pub(super) groups: Vec<String>,
    pub(super) versions: Vec<String>,
    /// Resource and subresource.
    pub(super) resources: Vec<(String, String)>,
    pub(super) scope: Scope,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    All,
    Namespaced,
    Cluster,
}

/// Reads a label selector.
pub(in crate::admission) fn read_selector(selector: &Value) -> Result<LabelSelector, String> {
    LabelSelector::parse(&selector_text(selector).unwrap_or_default())
}

fn list(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

impl Rule {
    /// Reads a rule of a webhook or a policy.
    pub(in crate::admission) fn read(rule: &Value) -> Self {
        Self {
            operations: list(&rule["operations"]),
            groups: list(&rule["apiGroups"]),
            versions: list(&rule["apiVersions"]),
            resources: list(&rule["resources"])
                .iter()
                .map(|resource| {
                    let (resource, sub) = resource.split_once('/').unwrap_or((resource, ""));
                    (resource.to_owned(), sub.to_owned())
                })
                .collect(),
            scope: match rule["scope"].as_str() {
                Some("Namespaced") => Scope::Namespaced,
                Some("Cluster") => Scope::Cluster,
                _ => Scope::All,
            },
        }
    }
}

impl Hook {
    /// Compiles an entry of a stored configuration.
    pub(super) fn configured(
        configuration: &str,
        index: usize,
        entry: &Value,
        mutating: bool,
    ) -> Result<Self, WebhookError> {
        let client = ClientConfig::read(&entry["clientConfig"]);
        let id = format!("{configuration}/{index}");
        Self::compile(configuration, id, entry, mutating, client)
    }

    /// Compiles an in-process webhook, with the checks for stored configurations.
    pub(crate) fn local(
        entry: &Value,
        mutating: bool,
        handler: LocalWebhook,
    ) -> Result<Self, WebhookError> {
        let errors = webhook_entry_errors(entry, mutating);
        if !errors.is_empty() {
            return Err(WebhookError(aggregate(&errors)));
        }
        let name = entry["name"].as_str().unwrap_or_default();
        let client = ClientConfig::local(Arc::new(handler));
        Self::compile(name, format!("local/{name}"), entry, mutating, Ok(client))
    }

    /// Returns a webhook for an entry that cannot be compiled: every call to it fails.
    pub(super) fn broken(
        configuration: &str,
        index: usize,
        entry: &Value,
        error: String,
    ) -> Option<Self> {
        let mut entry = entry.clone();
        entry["matchConditions"] = Value::Null;
        entry["namespaceSelector"] = Value::Null;
        entry["objectSelector"] = Value::Null;
        let id = format!("{configuration}/{index}");
        Self::compile(configuration, id, &entry, false, Err(error)).ok()
    }

    fn compile(
        configuration: &str,
        id: String,
        entry: &Value,
        mutating: bool,
        client: Result<ClientConfig, String>,
    ) -> Result<Self, WebhookError> {
        let selector = |field: &str| read_selector(&entry[field]).map_err(WebhookError);
        let conditions = entry["matchConditions"].as_array().into_iter().flatten();
        let conditions = conditions.map(|condition| {
            let expression = condition["expression"].as_str().unwrap_or_default();
            compile_condition(expression.trim(), false).map_err(WebhookError)
        });
        let timeout = entry["timeoutSeconds"].as_u64().unwrap_or(10);
        let versions = list(&entry["admissionReviewVersions"]);
        let mut versions = versions.iter().map(String::as_str);
        let review_version = versions.find_map(|version| match version {
            "v1" => Some("admission.k8s.io/v1"),
            "v1beta1" => Some("admission.k8s.io/v1beta1"),
            _ => None,
        });
        Ok(Self {
            configuration: configuration.to_owned(),
            name: entry["name"].as_str().unwrap_or_default().to_owned(),
            id,
            rules: entry["rules"]
                .as_array()
                .into_iter()
                .flatten()
                .map(Rule::read)
                .collect(),
            exact: entry["matchPolicy"] == "Exact",
            namespace_selector: selector("namespaceSelector")?,
            object_selector: selector("objectSelector")?,
            conditions: conditions.collect::<Result<_, _>>()?,
            ignore_failures: entry["failurePolicy"] == "Ignore",
            timeout: Duration::from_secs(timeout),
            reinvocable: mutating && entry["reinvocationPolicy"] == "IfNeeded",
            review_version: review_version.unwrap_or_default(),
            client,
            limits: Arc::default(),
        })
    }
}
