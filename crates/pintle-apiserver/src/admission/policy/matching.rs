//! Which writes a policy or a binding applies to.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    admission::{
        Request,
        webhook::{Rule, in_namespace, matching_resource, read_selector, selects_object},
    },
    api::Api,
    meta::{LabelSelector, Tree},
    registry::Resource,
};

/// The `matchConstraints` of a policy, or the `matchResources` of a binding.
#[derive(Debug)]
pub(super) struct MatchResources {
    rules: Vec<NamedRule>,
    exclude: Vec<NamedRule>,
    exact: bool,
    namespace_selector: LabelSelector,
    object_selector: LabelSelector,
}

/// A rule that may be restricted to objects with certain names.
#[derive(Debug)]
struct NamedRule {
    rule: Rule,
    names: Vec<String>,
}

impl MatchResources {
    pub(super) fn read(resources: &Value) -> Result<Self, String> {
        if !resources.is_object() {
            return Err("policy contained no match constraints, a required field".to_owned());
        }
        let rules = |field: &str| {
            let rules = resources[field].as_array().into_iter().flatten();
            let rules = rules.map(|rule| NamedRule {
                rule: Rule::read(rule),
                names: rule["resourceNames"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .map(str::to_owned)
                    .collect(),
            });
            rules.collect()
        };
        Ok(Self {
            rules: rules("resourceRules"),
            exclude: rules("excludeResourceRules"),
            exact: resources["matchPolicy"] == "Exact",
            namespace_selector: read_selector(&resources["namespaceSelector"])?,
            object_selector: read_selector(&resources["objectSelector"])?,
        })
    }

    /// Returns the resource under which a write matches: the request's own if possible, otherwise
    /// an equivalent one.
    pub(super) fn matches(
        &self,
        api: &Api,
        request: &Request<'_>,
        object: Option<&Tree>,
    ) -> Result<Option<Arc<Resource>>, String> {
        let in_namespace = in_namespace(api, &self.namespace_selector, request, object);
        if matches!(in_namespace, Ok(false))
            || !selects_object(&self.object_selector, request, object)
            || self.under(api, &self.exclude, request).is_some()
        {
            return Ok(None);
        }
        let resource = if self.rules.is_empty() {
            Some(Arc::clone(request.resource))
        } else {
            self.under(api, &self.rules, request)
        };
        // A missing namespace matters only to policies that apply.
        match in_namespace {
            Err(error) if resource.is_some() => Err(error.message().to_owned()),
            _ => Ok(resource),
        }
    }

    fn under(
        &self,
        api: &Api,
        rules: &[NamedRule],
        request: &Request<'_>,
    ) -> Option<Arc<Resource>> {
        let rules = rules.iter();
        let rules = rules.filter(|rule| {
            rule.names.is_empty() || rule.names.iter().any(|name| name == request.name)
        });
        matching_resource(api, rules.map(|rule| &rule.rule), self.exact, request)
    }
}
