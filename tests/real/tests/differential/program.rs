//! The webhook program of the corpus. Both servers call the same one.

use std::net::TcpListener;
use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use pintle::webhook::{Admission, Certificates, Denied, WebhookServer};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

/// A running webhook program, which stops when this is dropped.
pub(super) struct Program {
    /// Values for `{hook}`, `{ca}` and `{stopped}` in scenarios.
    pub(super) names: [(&'static str, String); 3],
    _stop: DropGuard,
}

impl Program {
    pub(super) fn start() -> Self {
        let certificates = Certificates::self_signed(["127.0.0.1"]).unwrap();
        let bundle = STANDARD.encode(certificates.authority_pem().unwrap());
        // Both ports are closed again; nothing will listen on the second.
        let ports = [(); 2].map(|()| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().port()
        });
        let [port, stopped] = ports;
        let shutdown = CancellationToken::new();
        let stop = shutdown.clone().drop_guard();
        tokio::spawn(async move {
            let address = ("127.0.0.1", port);
            let served = webhooks().serve(address, &certificates, &shutdown).await;
            served.unwrap();
        });
        let url = |port: u16| format!("https://127.0.0.1:{port}");
        Self {
            names: [
                ("hook", url(port)),
                ("ca", bundle),
                ("stopped", url(stopped)),
            ],
            _stop: stop,
        }
    }
}

fn webhooks() -> WebhookServer {
    WebhookServer::new()
        .validate("/validate", validate)
        .validate("/echo", echo)
        .validate("/slow", |_: Admission<Value>| async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            Ok(())
        })
        .mutate("/label", |mut object: Value, admission| async move {
            admission.audit_annotation("labelled", admission.name.as_str());
            object["metadata"]["labels"]["by"] = "webhook".into();
            Ok(object)
        })
        .mutate("/break", |mut object: Value, _| async move {
            object["data"] = "text".into();
            Ok(object)
        })
        .mutate("/unknown", |mut object: Value, _| async move {
            object["unknown"] = json!({"field": 1});
            Ok(object)
        })
        .mutate("/a", |object, _| async { Ok(append(object, "a")) })
        .mutate("/b", |object, _| async { Ok(append(object, "b")) })
        .mutate("/scale", |mut object: Value, _| async move {
            object["spec"]["replicas"] = 2.into();
            Ok(object)
        })
        .convert("/convert", convert)
}

/// Responds with the verdict in `data.verdict`.
async fn validate(admission: Admission<Value>) -> Result<(), Denied> {
    let object = admission.object.as_ref().or(admission.old_object.as_ref());
    let verdict = object.and_then(|object| object["data"]["verdict"].as_str());
    match verdict.unwrap_or_default() {
        "deny" => {
            admission.audit_annotation("verdict", "denied");
            Err(Denied::new("this is denied"))
        }
        "invalid" => Err(Denied::invalid("this is invalid")),
        "empty" => Err(Denied::new("")),
        "panic" => panic!("asked to"),
        "warn" => {
            admission.audit_annotation("verdict", "warn");
            admission.audit_annotation("invalid key!", "dropped");
            admission.warn("first");
            admission.warn(format!("dry run: {}", admission.dry_run));
            Ok(())
        }
        "warn and deny" => {
            admission.warn("beware");
            Err(Denied::new("this is denied"))
        }
        _ => Ok(()),
    }
}

/// Denies with the request itself as the message, without the fields that differ between any two
/// requests.
async fn echo(admission: Admission<Value>) -> Result<(), Denied> {
    let mut request = admission.request;
    for field in ["uid", "userInfo"] {
        request.as_object_mut().unwrap().remove(field);
    }
    for object in ["object", "oldObject"] {
        if let Some(metadata) = request[object]["metadata"].as_object_mut() {
            for field in [
                "resourceVersion",
                "managedFields",
                "uid",
                "creationTimestamp",
            ] {
                metadata.remove(field);
            }
        }
    }
    Err(Denied::new(request.to_string()))
}

fn append(mut object: Value, letter: &str) -> Value {
    let trace = object["metadata"]["annotations"]["trace"].as_str();
    let trace = format!("{}{letter}", trace.unwrap_or_default());
    object["metadata"]["annotations"]["trace"] = trace.into();
    object
}

/// Converts between `spec.address` (`host:port`) of v1 and `spec.host` and `spec.port` of v2.
async fn convert(mut object: Value, to: String) -> Result<Value, String> {
    let spec = object["spec"].take();
    if spec["host"] == "unconvertible" {
        return Err("cannot convert this host".to_owned());
    }
    object["spec"] = if to.ends_with("/v2") {
        let address = spec["address"].as_str().unwrap_or_default();
        let (host, port) = address.split_once(':').unwrap_or((address, "0"));
        match port.parse::<i64>() {
            Ok(port) => json!({"host": host, "port": port}),
            Err(_) => return Err(format!("not a port: {port}")),
        }
    } else {
        let host = spec["host"].as_str().unwrap_or_default();
        json!({"address": format!("{host}:{}", spec["port"])})
    };
    object["metadata"]["annotations"]["converted"] = "yes".into();
    object["apiVersion"] = to.into();
    Ok(object)
}
