//! Whether a webhook or policy applies to a request, and in which version it sees the object.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    call::{described, shown},
    conditions::hold,
    hook::{Hook, Rule, Scope},
};
use crate::{
    admission::{
        Operation, Request,
        expression::{CONDITIONS_BUDGET, Inputs, Scope as Values},
    },
    api::{Api, ApiError},
    meta::{LabelSelector, Tree},
    registry::Resource,
};

/// A call of a webhook, or an evaluation of a policy.
#[derive(Debug)]
pub(in crate::admission) struct Invocation {
    /// The resource of the request, or the equivalent one that a rule names.
    pub(in crate::admission) resource: Arc<Resource>,
}

/// Returns how to call a webhook, or `None` if it does not match the write.
pub(super) async fn invocation(
    api: &Api,
    hook: &Hook,
    request: &Request<'_>,
    object: Option<&Tree>,
) -> Result<Option<Invocation>, ApiError> {
    let in_namespace = in_namespace(api, &hook.namespace_selector, request, object);
    if matches!(in_namespace, Ok(false)) || !selects_object(&hook.object_selector, request, object)
    {
        return Ok(None);
    }
    let rules = hook.rules.iter();
    let Some(resource) = matching_resource(api, rules, hook.exact, request) else {
        return Ok(None);
    };
    // A missing namespace matters only to webhooks that apply.
    in_namespace?;
    let invocation = Invocation { resource };
    if hook.conditions.is_empty() {
        return Ok(Some(invocation));
    }
    let (new, old) = (
        shown(api, request, &invocation, object).await?,
        shown(api, request, &invocation, request.old).await?,
    );
    let described = described(request, &invocation);
    let inputs = Inputs::new(api, request, &new, &old, &described);
    let values = Values::new(&inputs, CONDITIONS_BUDGET).with_authorizer(&inputs);
    match hold(&hook.conditions, values) {
        Ok(true) => Ok(Some(invocation)),
        Ok(false) => Ok(None),
        Err(_) if hook.ignore_failures => Ok(None),
        Err(why) => Err(request.forbidden(object, &why)),
    }
}

/// Returns true if a selector selects the namespace of the object.
pub(in crate::admission) fn in_namespace(
    api: &Api,
    selector: &LabelSelector,
    request: &Request<'_>,
    object: Option<&Tree>,
) -> Result<bool, ApiError> {
    let Some(namespace) = request.namespace.filter(|name| !name.is_empty()) else {
        // Cluster-scoped objects are never exempt, except namespaces, which have labels themselves.
        let is_namespace = request.resource.hooks.is_namespace();
        return Ok(!is_namespace || selector.is_empty() || has_labels(selector, object));
    };
    if selector.is_empty() {
        return Ok(true);
    }
    let writes_itself = request.resource.hooks.is_namespace()
        && request.sub.is_empty()
        && matches!(request.operation, Operation::Create | Operation::Update);
    if writes_itself {
        return Ok(has_labels(selector, object));
    }
    let stored = api
        .registry
        .builtin_collection("", "namespaces")
        .and_then(|collection| api.store.get(collection, namespace));
    match stored {
        Some(stored) => Ok(selector.matches(&stored.header().labels)),
        None => Err(ApiError::not_found("", "namespaces", namespace)),
    }
}

/// Returns true if a selector selects the old or the new state of the object.
pub(in crate::admission) fn selects_object(
    selector: &LabelSelector,
    request: &Request<'_>,
    object: Option<&Tree>,
) -> bool {
    // The options of a connect have no metadata, so no selector matches them.
    let has_metadata = request.operation != Operation::Connect;
    let matches =
        |object: Option<&Tree>| has_metadata && object.is_some() && has_labels(selector, object);
    selector.is_empty() || matches(object) || matches(request.old)
}

fn has_labels(selector: &LabelSelector, object: Option<&Tree>) -> bool {
    let labels = object.and_then(|object| object.get("metadata")?.get("labels")?.as_object());
    let labels: BTreeMap<String, String> = labels
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
        .collect();
    selector.matches(&labels)
}

/// Returns the resource under which a rule matches: the request's own if possible, otherwise the
/// first equivalent one.
pub(in crate::admission) fn matching_resource<'r>(
    api: &Api,
    rules: impl Iterator<Item = &'r Rule> + Clone,
    exact: bool,
    request: &Request<'_>,
) -> Option<Arc<Resource>> {
    let own = request.resource;
    let mut named = rules.filter(|rule| rule.names(request)).peekable();
    named.peek()?;
    let mut own_version = named.clone();
    if own_version.any(|rule| rule.has_version(own)) {
        return Some(Arc::clone(own));
    }
    if exact {
        return None;
    }
    let equivalents = api.registry.catalog().equivalents(own);
    named.find_map(|rule| {
        let mut equivalents = equivalents.iter();
        equivalents.find(|other| rule.has_version(other)).cloned()
    })
}

fn contains(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

impl Rule {
    /// Returns true if the rule names the operation, scope, resource and subresource of a request,
    /// in whichever group and version.
    fn names(&self, request: &Request<'_>) -> bool {
        let cluster_scoped =
            request.resource.hooks.is_namespace() || request.namespace.is_none_or(str::is_empty);
        let in_scope = match self.scope {
            Scope::All => true,
            Scope::Namespaced => !cluster_scoped,
            Scope::Cluster => cluster_scoped,
        };
        in_scope
            && contains(&self.operations, request.operation.as_str())
            && self.resources.iter().any(|(resource, sub)| {
                (resource == "*" || *resource == request.resource.plural)
                    && (sub == "*" || sub == request.sub)
            })
    }

    /// Returns true if the rule names the group and version of a resource.
    fn has_version(&self, resource: &Resource) -> bool {
        contains(&self.groups, &resource.group) && contains(&self.versions, &resource.version)
    }
}
