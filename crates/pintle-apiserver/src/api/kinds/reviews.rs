//! Access and token reviews: evaluated on create, never stored.

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::Kind;
use crate::{
    admission::{Exchanged, Operation},
    api::{
        Answer, Api, ApiError, Call, ISSUER, User,
        request::negotiate,
        response,
        write::{Unstored, set_namespace, wipe_system_metadata},
    },
    authz::{
        access::{Access, Resource, What},
        rule::Rule,
    },
    meta::{
        Tree,
        names::{label_value, qualified_name},
    },
    schema::field::FieldError,
};

/// The kinds of review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Review {
    /// `subjectaccessreviews` and `localsubjectaccessreviews`
    Access,
    /// `selfsubjectaccessreviews`
    SelfAccess,
    /// `selfsubjectrulesreviews`
    SelfRules,
    /// `selfsubjectreviews`
    SelfSubject,
    /// `tokenreviews`
    Token,
}

impl Kind for Review {
    fn is_review(&self) -> bool {
        true
    }

    fn create_unstored<'a>(&'a self, api: &'a Api, call: &'a Call) -> BoxFuture<'a, Answer> {
        Box::pin(api.review(call, *self))
    }
}

impl Api {
    async fn review(&self, call: &Call, kind: Review) -> Answer {
        let resource = &call.target.resource;
        let form = negotiate::plain(&call.headers)?;
        let options = call.write_options("CreateOptions")?;
        let mut review = call.object(&options)?;
        set_namespace(resource, call.target.namespace.as_deref(), &mut review)?;
        wipe_system_metadata(&mut review);
        self.record_manager(resource, "", &options, None, &mut review);
        let exchanged = Exchanged {
            group: &resource.group,
            version: &resource.version,
            kind: &resource.kind,
        };
        let admission = Unstored {
            call,
            operation: Operation::Create,
            kind: exchanged,
            options: &options,
        };
        self.mutate_unstored(&admission, &mut review).await?;
        if matches!(kind, Review::Access | Review::SelfAccess) {
            check(call, kind, &review)?;
        }
        self.validate_unstored(&admission, &review).await?;
        let spec = review.get("spec").cloned().unwrap_or_default();
        let status = match kind {
            Review::Access | Review::SelfAccess => {
                let other = subject(&spec);
                let user = match kind {
                    Review::Access => &other,
                    _ => &call.user,
                };
                let decision = self.authorize(user, &access(&spec));
                let mut status = json!({"allowed": decision.is_allowed()});
                let reason = decision.reason();
                if !reason.is_empty() {
                    status["reason"] = reason.into();
                }
                status
            }
            Review::SelfRules => {
                let namespace = spec["namespace"].as_str().unwrap_or_default();
                if namespace.is_empty() {
                    return Err(ApiError::bad_request("no namespace on request"));
                }
                // Upstream does not echo the request's spec.
                review.insert("metadata".into(), json!({}));
                review.insert("spec".into(), json!({}));
                self.rules_of(&call.user, namespace)
            }
            Review::SelfSubject => {
                let now = self.clock.stamp();
                review.insert("metadata".into(), json!({"creationTimestamp": now}));
                json!({"userInfo": call.user.info()})
            }
            Review::Token => self.review_token(&spec)?,
        };
        review.insert("apiVersion".into(), resource.api_version().into());
        review.insert("kind".into(), resource.kind.clone().into());
        review.insert("status".into(), status);
        let answer = response::written(&Value::Object(review)).into_bytes();
        Ok(response::formed(201, form, answer))
    }

    /// Returns what a user may do in a namespace.
    fn rules_of(&self, user: &User, namespace: &str) -> Value {
        let found = self.authorizer.rules(user, namespace);
        let resources = found.rules.iter().filter(|rule| !rule.resources.is_empty());
        let resources: Vec<Value> = resources.map(Rule::resource_info).collect();
        let urls = found.rules.iter().filter(|rule| !rule.urls.is_empty());
        let urls: Vec<Value> = urls
            .map(|rule| json!({"verbs": rule.verbs, "nonResourceURLs": rule.urls}))
            .collect();
        let mut status = json!({
            "resourceRules": resources,
            "nonResourceRules": urls,
            "incomplete": false,
        });
        if !found.error.is_empty() {
            status["evaluationError"] = found.error.into();
        }
        status
    }

    /// Returns the user that a token authenticates.
    fn review_token(&self, spec: &Value) -> Result<Value, ApiError> {
        let token = spec["token"].as_str().unwrap_or_default();
        if token.is_empty() {
            let why = "token is required for TokenReview in authentication";
            return Err(ApiError::bad_request(why));
        }
        let audiences = spec["audiences"].as_array().into_iter().flatten();
        let audiences = audiences.filter_map(Value::as_str).map(str::to_owned);
        let mut audiences: Vec<String> = audiences.collect();
        if audiences.is_empty() {
            audiences.push(ISSUER.to_owned());
        }
        Ok(match self.session(token, &audiences) {
            Ok(session) => json!({"authenticated": true, "user": session.user.info(),
                "audiences": session.audiences}),
            Err(None) => json!({"user": {}, "error": "invalid bearer token"}),
            Err(Some(why)) => {
                json!({"user": {}, "error": format!("[invalid bearer token, {why}]")})
            }
        })
    }
}

/// Returns the subject that an access review asks about.
fn subject(spec: &Value) -> User {
    let list = |value: &Value| -> Vec<String> {
        let items = value.as_array().into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let extra = spec["extra"].as_object().into_iter().flatten();
    User {
        name: spec["user"].as_str().unwrap_or_default().to_owned(),
        uid: spec["uid"].as_str().unwrap_or_default().to_owned(),
        groups: list(&spec["groups"]),
        extra: extra
            .map(|(name, values)| (name.clone(), list(values)))
            .collect(),
    }
}

/// Returns the access that a review asks about.
fn access(spec: &Value) -> Access<'_> {
    let resource = &spec["resourceAttributes"];
    let about = if resource.is_object() {
        resource
    } else {
        &spec["nonResourceAttributes"]
    };
    let text = |name: &str| about[name].as_str().unwrap_or_default().into();
    let what = if resource.is_object() {
        What::Resource(Resource {
            group: text("group"),
            plural: text("resource"),
            sub: text("subresource"),
            namespace: text("namespace"),
            name: text("name"),
        })
    } else {
        What::Path(text("path"))
    };
    Access {
        verb: text("verb"),
        what,
    }
}

/// Validates an access review: it must name a subject and either a resource or a path, and agree
/// with the namespace of the request.
fn check(call: &Call, kind: Review, review: &Tree) -> Result<(), ApiError> {
    let resource = &call.target.resource;
    let spec = review.get("spec").unwrap_or(&Value::Null);
    let mut errors = Vec::new();
    let asked = |field: &str| spec.get(field).is_some_and(Value::is_object);
    match (asked("resourceAttributes"), asked("nonResourceAttributes")) {
        (true, true) => errors.push(FieldError::invalid(
            "spec.nonResourceAttributes",
            spec["nonResourceAttributes"].clone(),
            "cannot be specified in combination with resourceAttributes",
        )),
        (false, false) => errors.push(FieldError::invalid(
            "spec.resourceAttributes",
            Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )),
        _ => {}
    }
    let no_subject = spec["user"].as_str().unwrap_or_default().is_empty()
        && spec["groups"].as_array().is_none_or(Vec::is_empty);
    if no_subject && kind == Review::Access {
        errors.push(FieldError::invalid(
            "spec.user",
            "",
            "at least one of user or group must be specified",
        ));
    }
    for (which, is_label) in [("fieldSelector", false), ("labelSelector", true)] {
        let selector = &spec["resourceAttributes"][which];
        check_selector(selector, which, is_label, &mut errors);
    }
    if let Some(error) = metadata_error(call, review) {
        errors.push(error);
    }
    if let Some(namespace) = &call.target.namespace {
        let about = spec["resourceAttributes"]["namespace"]
            .as_str()
            .unwrap_or_default();
        if asked("resourceAttributes") && about != namespace {
            errors.push(FieldError::invalid(
                "spec.resourceAttributes.namespace",
                about,
                "must match metadata.namespace",
            ));
        }
        if asked("nonResourceAttributes") {
            errors.push(FieldError::invalid(
                "spec.nonResourceAttributes",
                spec["nonResourceAttributes"].clone(),
                "disallowed on this kind of request",
            ));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(&resource.group, "", "", errors))
}

/// Checks a selector that a review asks about. RBAC ignores valid selectors.
fn check_selector(selector: &Value, which: &str, is_label: bool, errors: &mut Vec<FieldError>) {
    if !selector.is_object() {
        return;
    }
    let at = format!("spec.resourceAttributes.{which}");
    let raw = selector["rawSelector"].as_str().unwrap_or_default();
    let requirements = selector["requirements"].as_array();
    let requirements = requirements.map_or(&[][..], Vec::as_slice);
    if !raw.is_empty() && !requirements.is_empty() {
        let why = "may not specified at the same time as requirements";
        errors.push(FieldError::invalid(format!("{at}.rawSelector"), raw, why));
    }
    if raw.is_empty() && requirements.is_empty() {
        let why = format!("when {at} is specified, requirements or rawSelector is required");
        errors.push(FieldError::required(format!("{at}.requirements"), why));
    }
    for (i, requirement) in requirements.iter().enumerate() {
        let at = format!("{at}.requirements[{i}]");
        let key = requirement["key"].as_str().unwrap_or_default();
        let values = requirement["values"].as_array();
        let values = values.map_or(&[][..], Vec::as_slice);
        if key.is_empty() && !is_label {
            let why = "must be specified";
            errors.push(FieldError::required(format!("{at}.key"), why));
        }
        match requirement["operator"].as_str() {
            Some("In" | "NotIn") if values.is_empty() => {
                let why = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(FieldError::required(format!("{at}.values"), why));
            }
            Some("Exists" | "DoesNotExist") if !values.is_empty() => {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::forbidden(format!("{at}.values"), why));
            }
            // Newer clients may send operators that this server does not know.
            _ => {}
        }
        if is_label {
            let problems = qualified_name(key).into_iter();
            errors.extend(problems.map(|why| FieldError::invalid(format!("{at}.key"), key, why)));
            for (i, value) in values.iter().filter_map(Value::as_str).enumerate() {
                let at = format!("{at}.values[{i}]");
                let problems = label_value(value).into_iter();
                errors.extend(problems.map(|why| FieldError::invalid(at.as_str(), value, why)));
            }
        }
    }
}

/// Rejects metadata: reviews have none except the namespace.
fn metadata_error(call: &Call, review: &Tree) -> Option<FieldError> {
    let metadata = review.get("metadata")?.as_object()?;
    let local = call.target.resource.namespaced;
    let asked_in = |field: &str| local && field == "namespace";
    if metadata
        .keys()
        .all(|field| field == "managedFields" || asked_in(field))
    {
        return None;
    }
    let why = if local {
        "must be empty except for namespace"
    } else {
        "must be empty"
    };
    Some(FieldError::invalid("metadata", metadata.clone(), why))
}
