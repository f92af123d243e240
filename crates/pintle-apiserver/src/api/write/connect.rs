//! Connects: `exec`, `attach`, `portforward` and `proxy`.
//!
//! No kubelet runs here, so there is nothing to connect to. A connect still passes through
//! admission, so that a test of a policy for `pods/exec` sees the denial.

use http::Method;
use serde_json::{Value, json};

use super::Unstored;
use crate::{
    admission::{Exchanged, Operation},
    api::{Answer, Api, ApiError, Call},
    authz::{Access, Decision, access},
    meta::Tree,
};

/// The subresources that need permission to `create` with every method: a WebSocket is opened with
/// GET, and needs the same permission as the older requests with POST.
const CREATES: [&str; 3] = ["attach", "exec", "portforward"];

impl Api {
    /// Handles a connect: returns the denial of admission or authorization, 404 if the object does
    /// not exist, or 501.
    pub(crate) async fn connect(&self, call: &Call, sub: &str) -> Answer {
        let resource = &call.target.resource;
        if call.query.all("dryRun").next().is_some() {
            return Err(ApiError::bad_request("dryRun is not supported"));
        }
        if let Some(exchanged) = resource.sub(sub) {
            let kind = Exchanged {
                group: &exchanged.group,
                version: &exchanged.version,
                kind: &exchanged.kind,
            };
            let options = call.write_options("CreateOptions")?;
            let mut object = connect_options(call);
            let admission = Unstored {
                call,
                operation: Operation::Connect,
                kind,
                options: &options,
            };
            self.admit_unstored(&admission, &mut object).await?;
        }
        if CREATES.contains(&sub) && call.method != Method::POST {
            self.require_create_to_connect(call, sub)?;
        }
        if self.store.get(call.collection()?, &call.key()).is_none() {
            return Err(call.missing());
        }
        Err(ApiError::not_implemented(&format!(
            "the {sub} subresource of {}",
            resource.plural
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

/// Returns the options of a connect, such as `PodExecOptions`.
fn connect_options(call: &Call) -> Tree {
    let mut options = Tree::new();
    for flag in ["stdin", "stdout", "stderr", "tty"] {
        if call.query.flag(flag) {
            options.insert(flag.into(), true.into());
        }
    }
    for field in ["container", "path"] {
        let value = call.query.get(field);
        if !value.is_empty() {
            options.insert(field.into(), value.into());
        }
    }
    let command: Vec<&str> = call.query.all("command").collect();
    if !command.is_empty() {
        options.insert("command".into(), json!(command));
    }
    let ports = call.query.all("ports").flat_map(|ports| ports.split(','));
    let ports: Vec<Value> = ports
        .filter_map(|port| port.parse::<u16>().ok())
        .map(Value::from)
        .collect();
    if !ports.is_empty() {
        options.insert("ports".into(), ports.into());
    }
    options
}
