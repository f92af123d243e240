//! Connects: `exec`, `attach`, `portforward` and `proxy`.
//!
//! No kubelet runs here, so there is nothing to connect to. A connect is admitted all the same,
//! so that a test of a policy for `pods/exec` sees the refusal.

use serde_json::{Value, json};

use crate::{
    admission::{Exchanged, Operation},
    api::{Answer, Api, ApiError, Call},
    meta::Tree,
};

impl Api {
    /// Answers a connect: 404 without the object, the refusal of admission, or 501.
    pub(crate) async fn connect(&self, call: &Call, sub: &str) -> Answer {
        let resource = &call.target.resource;
        if self.store.get(call.collection()?, &call.key()).is_none() {
            return Err(call.missing());
        }
        if let Some(exchanged) = resource.sub(sub) {
            let kind = Exchanged {
                group: &exchanged.group,
                version: &exchanged.version,
                kind: &exchanged.kind,
            };
            let options = call.write_options("CreateOptions")?;
            let mut object = connect_options(call);
            self.admit_unstored(call, Operation::Connect, kind, &options, &mut object)
                .await?;
        }
        Err(ApiError::not_implemented(&format!(
            "the {sub} subresource of {}",
            resource.plural
        )))
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
