//! `TokenRequests`: issuing a token for a service account.

use std::sync::{Arc, LazyLock};

use pintle_clock::format_seconds;
use serde_json::{Value, json};

use super::ISSUER;
use crate::{
    admission::{Exchanged, Operation},
    api::{
        Answer, Api, ApiError, Call,
        request::negotiate,
        response,
        write::{Unstored, set_namespace},
    },
    meta::{self, Tree},
    registry::{Resource, unstored},
    schema::field::FieldError,
    store::Object,
};

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";
/// The allowed lifetime of a token, in seconds.
const LIFETIME: std::ops::RangeInclusive<i64> = 600..=1 << 32;
/// The lifetime kubelets request, in seconds. Such a token lives longer, for clients that read it
/// only once.
const KUBELET_LIFETIME: i64 = 60 * 60 + 7;
const EXTENDED_LIFETIME: i64 = 365 * 24 * 60 * 60;

static REQUEST: LazyLock<Arc<Resource>> =
    LazyLock::new(|| Arc::new(unstored(GROUP, "v1", "tokenrequests", KIND)));

/// The objects a token is bound to.
#[derive(Debug, Default)]
struct Bound {
    pod: Option<Arc<Object>>,
    secret: Option<Arc<Object>>,
    /// The name, and the UID if the node exists.
    node: Option<(String, String)>,
}

impl Api {
    /// Handles POST of a token request.
    pub(crate) async fn create_token(&self, call: &Call) -> Answer {
        let form = negotiate::plain(&call.headers)?;
        let options = call.write_options("CreateOptions")?;
        let namespace = call.target.namespace.as_deref();
        let name = call.target.name.as_deref().unwrap_or_default();
        let mut token_call = call.clone();
        token_call.target.resource = Arc::clone(&REQUEST);
        let mut request = token_call.object(&options)?;
        set_namespace(&REQUEST, namespace, &mut request)?;
        self.record_manager(&REQUEST, "token", &options, None, &mut request);
        if meta::text(&request, "name").is_empty() {
            meta::metadata(&mut request).insert("name".into(), name.into());
        }
        let kind = Exchanged {
            group: GROUP,
            version: "v1",
            kind: KIND,
        };
        let admission = Unstored {
            call,
            operation: Operation::Create,
            kind,
            options: &options,
        };
        self.mutate_unstored(&admission, &mut request).await?;
        let found = meta::text(&request, "name");
        if !found.is_empty() && found != name {
            let why = "must match the service account name if specified";
            let errors = vec![FieldError::invalid("metadata.name", found, why)];
            return Err(ApiError::invalid(GROUP, KIND, name, errors));
        }
        let account = self.store.get(call.collection()?, &call.key());
        let account = account.ok_or_else(|| call.missing())?;
        let now = self.clock.now();
        fill(&mut request, &account, &format_seconds(now))?;
        let spec = request.get("spec").cloned().unwrap_or_default();
        let life = life(&spec)?;
        self.validate_unstored(&admission, &request).await?;
        let bound = self.bound(&spec["boundObjectRef"], namespace, name)?;

        let now = now.as_second();
        let mut own = json!({"namespace": namespace,
            "serviceaccount": {"name": name, "uid": account.header().uid}});
        let mut end = now.saturating_add(life);
        let for_us = spec["audiences"].as_array().into_iter().flatten();
        let for_us = for_us.into_iter().all(|audience| audience == ISSUER);
        if bound.pod.is_some() && life == KUBELET_LIFETIME && for_us {
            own["warnafter"] = end.into();
            end = now.saturating_add(EXTENDED_LIFETIME);
        }
        bound.add_to(&mut own);
        let claims = json!({
            "aud": spec["audiences"], "exp": end, "iat": now, "iss": ISSUER, "jti": self.rng.uuid(),
            "kubernetes.io": own, "nbf": now,
            "sub": format!("system:serviceaccount:{}:{name}", namespace.unwrap_or_default()),
        });
        let token = self.accounts.key().and_then(|key| key.sign(&claims));
        let token = token.map_err(ApiError::internal)?;
        let expiry = jiff::Timestamp::from_second(now.saturating_add(life));
        let expiry = expiry.unwrap_or(jiff::Timestamp::MAX);
        let status = json!({"token": token, "expirationTimestamp": format_seconds(expiry)});
        request.insert("status".into(), status);
        request.insert("apiVersion".into(), REQUEST.api_version().into());
        request.insert("kind".into(), KIND.into());
        let answer = Value::Object(request).to_string().into_bytes();
        Ok(response::formed(201, form, answer))
    }

    /// Looks up the object that the token will be bound to.
    fn bound(
        &self,
        wanted: &Value,
        namespace: Option<&str>,
        account: &str,
    ) -> Result<Bound, ApiError> {
        let mut bound = Bound::default();
        if !wanted.is_object() {
            return Ok(bound);
        }
        let text = |field: &str| wanted[field].as_str().unwrap_or_default();
        let (version, kind, name) = (text("apiVersion"), text("kind"), text("name"));
        let (group, version) = match version.split_once('/') {
            Some((group, version)) if !version.contains('/') => (group, version),
            Some(_) => ("", ""),
            None => ("", version),
        };
        let get = |plural: &str, namespace| {
            let found = self.named(plural, namespace, name);
            found.ok_or_else(|| ApiError::not_found("", plural, name))
        };
        let object = match (group, kind) {
            ("", "Pod") => {
                let pod = get("pods", namespace)?;
                bound.node = self.node_of(&pod, account)?;
                Arc::clone(bound.pod.insert(pod))
            }
            ("", "Secret") => Arc::clone(bound.secret.insert(get("secrets", namespace)?)),
            ("", "Node") => {
                let node = get("nodes", None)?;
                bound.node = Some((name.to_owned(), node.header().uid.clone()));
                node
            }
            _ => {
                return Err(ApiError::bad_request(format!(
                    "cannot bind token to object of type {group}/{version}, Kind={kind}"
                )));
            }
        };
        let uid = text("uid");
        if !uid.is_empty() && uid != object.header().uid {
            let why = format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            );
            return Err(ApiError::conflict("", kind, name, &why));
        }
        Ok(bound)
    }

    /// Returns the node of a Pod, after checking that the Pod runs under the account.
    fn node_of(&self, pod: &Object, account: &str) -> Result<Option<(String, String)>, ApiError> {
        let pod = Value::Object(pod.decode());
        let text = |field: &str| pod["spec"][field].as_str().unwrap_or_default();
        if text("serviceAccountName") != account {
            return Err(ApiError::bad_request(format!(
                "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
            )));
        }
        let name = text("nodeName");
        if name.is_empty() {
            return Ok(None);
        }
        let node = self.named("nodes", None, name);
        let uid = node.map_or_else(String::new, |node| node.header().uid.clone());
        Ok(Some((name.to_owned(), uid)))
    }
}

impl Bound {
    /// Adds the objects to the claims of a token.
    fn add_to(&self, own: &mut Value) {
        for (what, object) in [("pod", &self.pod), ("secret", &self.secret)] {
            if let Some(object) = object {
                own[what] = json!({"name": object.name(), "uid": object.header().uid});
            }
        }
        if let Some((name, uid)) = &self.node {
            own["node"] = json!({"name": name});
            if !uid.is_empty() {
                own["node"]["uid"] = uid.clone().into();
            }
        }
    }
}

/// Fills in the fields a request omits.
fn fill(request: &mut Tree, account: &Object, now: &str) -> Result<(), ApiError> {
    let uid = &account.header().uid;
    let found = meta::text(request, "uid");
    if !found.is_empty() && found != uid {
        let why = format!(
            "the UID in the token request ({found}) does not match the UID of the service account ({uid})"
        );
        return Err(ApiError::conflict(GROUP, KIND, account.name(), &why));
    }
    let metadata = meta::metadata(request);
    metadata.insert("name".into(), account.name().into());
    metadata.insert("uid".into(), uid.clone().into());
    metadata.insert("creationTimestamp".into(), now.into());
    let spec = request.entry("spec").or_insert_with(|| json!({}));
    if spec["audiences"].as_array().is_none_or(Vec::is_empty) {
        spec["audiences"] = json!([ISSUER]);
    }
    Ok(())
}

/// Returns the lifetime of the token, in seconds.
fn life(spec: &Value) -> Result<i64, ApiError> {
    let life = spec["expirationSeconds"].as_i64().unwrap_or(0);
    if LIFETIME.contains(&life) {
        return Ok(life);
    }
    let why = if life < *LIFETIME.start() {
        "may not specify a duration less than 10 minutes"
    } else {
        "may not specify a duration larger than 2^32 seconds"
    };
    let errors = vec![FieldError::invalid("spec.expirationSeconds", life, why)];
    Err(ApiError::invalid(GROUP, KIND, "", errors))
}
