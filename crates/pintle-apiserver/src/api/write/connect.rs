//! Connects: `exec`, `attach`, `portforward` and `proxy`.
//!
//! No kubelet runs here, so there is nothing to connect to. A connect is still authorized and passes
//! through admission, so that a test of a role or a policy for `pods/exec` sees the denial.

use http::Method;
use serde_json::{Value, json};

use super::Unstored;
use crate::{
    admission::{Exchanged, Operation},
    api::{
        Answer, Api, ApiError, Call, WriteOptions,
        request::{query::Query, route::Target},
    },
    authz::{Access, Decision, access},
    meta::Tree,
    registry::Sub,
    store::key_of,
};

/// The subresources that need permission to `create` with every method: a WebSocket is opened with
/// GET, and needs the same permission as the older requests with POST.
const CREATES: [&str; 3] = ["attach", "exec", "portforward"];

impl Target {
    /// Returns true if a request for this target connects to its object.
    pub(in crate::api) fn is_connect(&self) -> bool {
        let sub = self.sub.as_deref();
        self.resource.custom.is_none()
            && sub.is_some_and(|sub| sub == "proxy" || CREATES.contains(&sub))
    }
}

impl Api {
    /// Handles a connect: returns the denial of admission or authorization, 404 if the object does
    /// not exist, or 501.
    pub(in crate::api) async fn connect(&self, call: &Call, sub: &Sub) -> Answer {
        let proxies = sub.name == "proxy";
        let served = match call.method {
            Method::GET | Method::POST => true,
            Method::PUT | Method::PATCH | Method::DELETE | Method::HEAD | Method::OPTIONS => {
                proxies
            }
            _ => false,
        };
        if !served {
            return Err(ApiError::wrong_method());
        }
        if call.query.all("dryRun").next().is_some() {
            return Err(ApiError::bad_request("dryRun is not supported"));
        }
        let options = WriteOptions {
            warnings: call.warnings.clone(),
            audit: call.audit.clone(),
            ..WriteOptions::default()
        };
        let mut object = connect_options(call, sub)?;
        let admission = Unstored {
            call,
            operation: Operation::Connect,
            kind: Exchanged {
                group: &sub.group,
                version: &sub.version,
                kind: &sub.kind,
            },
            options: &options,
        };
        self.admit_unstored(&admission, &mut object).await?;
        if !proxies && call.method != Method::POST {
            self.require_create_to_connect(call, &sub.name)?;
        }
        let resource = &call.target.resource;
        let name = if proxies {
            proxied_name(call)?
        } else {
            call.target.name.as_deref().unwrap_or_default()
        };
        let key = key_of(call.target.namespace.as_deref(), name);
        if self.store.get(call.collection()?, &key).is_none() {
            return Err(ApiError::not_found(&resource.group, &resource.plural, name));
        }
        Err(ApiError::not_implemented(&format!(
            "the {} subresource of {}",
            sub.name, resource.plural
        )))
    }

    /// Checks that the user may also connect with POST.
    fn require_create_to_connect(&self, call: &Call, sub: &str) -> Result<(), ApiError> {
        let resource = access::Resource {
            sub: sub.into(),
            ..call.accessed()
        };
        match self.authorize(&call.user, &Access::to("create", resource)) {
            Decision::Allowed(_) => Ok(()),
            Decision::NoOpinion(reason) => {
                let resource = &call.target.resource;
                let name = call.target.name.as_deref().unwrap_or_default();
                let (group, plural) = (&resource.group, &resource.plural);
                Err(ApiError::forbidden(group, plural, name, &reason))
            }
        }
    }
}

/// Returns the name of the object that a proxy is for. The path has `name`, `name:port` or
/// `scheme:name:port`.
fn proxied_name(call: &Call) -> Result<&str, ApiError> {
    let id = call.target.name.as_deref().unwrap_or_default();
    let parts: Vec<&str> = id.split(':').collect();
    let name = match parts[..] {
        [name] | [name, _] | ["" | "http" | "https", name, _] => name,
        _ => "",
    };
    if name.is_empty() {
        let singular = &call.target.resource.singular;
        let why = format!("invalid {singular} request {id:?}");
        return Err(ApiError::bad_request(why));
    }
    Ok(name)
}

/// Returns the options of a connect, such as `PodExecOptions`, from the query and path.
fn connect_options(call: &Call, sub: &Sub) -> Result<Tree, ApiError> {
    let mut options = Tree::new();
    match sub.name.as_str() {
        "proxy" => {
            if !call.target.subpath.is_empty() {
                options.insert("path".into(), call.target.subpath.clone().into());
            }
        }
        "portforward" => {
            let ports = ports(&call.query)?;
            if !ports.is_empty() {
                options.insert("ports".into(), ports.into());
            }
        }
        _ => {
            for flag in ["stdin", "stdout", "stderr", "tty"] {
                if call.query.flag(flag) {
                    options.insert(flag.into(), true.into());
                }
            }
            let container = call.query.get("container");
            if !container.is_empty() {
                options.insert("container".into(), container.into());
            }
            let command: Vec<&str> = call.query.all("command").collect();
            if sub.name == "exec" && !command.is_empty() {
                options.insert("command".into(), json!(command));
            }
        }
    }
    Ok(options)
}

/// Returns the ports in a query, which may be separated by commas.
fn ports(query: &Query) -> Result<Vec<Value>, ApiError> {
    let ports = query.all("ports").flat_map(|ports| ports.split(','));
    let ports = ports.map(|port| match port.parse::<u16>() {
        Ok(port) => Ok(Value::from(port)),
        Err(error) => {
            use std::num::IntErrorKind::PosOverflow;
            let why = match error.kind() {
                PosOverflow => "value out of range",
                _ => "invalid syntax",
            };
            Err(ApiError::bad_request(format!(
                "cannot convert to []int32: strconv.ParseUint: parsing {port:?}: {why}"
            )))
        }
    });
    ports.collect()
}
