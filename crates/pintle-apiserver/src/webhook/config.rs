//! The `clientConfig` of a webhook: its address and the certificates it is verified with.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::{LocalWebhook, tls::Roots};

/// Where a webhook listens.
#[derive(Debug, Clone)]
pub(crate) enum Destination {
    /// `url`
    Url { host: String, port: u16 },
    /// `service`
    Service {
        namespace: String,
        name: String,
        port: u16,
    },
    /// A closure in this process.
    Local(Arc<LocalWebhook>),
}

/// Where and how to call a webhook.
#[derive(Debug, Clone)]
pub(crate) struct ClientConfig {
    pub(crate) destination: Destination,
    /// Starts with a slash; `/` if the configuration has no path.
    pub(super) path: String,
    /// The host and port in the URL of the request.
    pub(super) authority: String,
    pub(super) roots: Roots,
}

impl ClientConfig {
    /// Reads a `clientConfig` that passed validation.
    pub(crate) fn read(config: &Value) -> Result<Self, String> {
        let bundle = config["caBundle"].as_str().unwrap_or_default();
        let bundle = STANDARD.decode(bundle).map_err(|error| error.to_string())?;
        let roots = Roots::new(bundle);
        if let Some(url) = config["url"].as_str() {
            let url: http::Uri = url
                .parse()
                .map_err(|error| format!("Unparsable URL: {error}"))?;
            let host = url.host().unwrap_or_default();
            return Ok(Self {
                destination: Destination::Url {
                    host: host.trim_matches(['[', ']']).to_owned(),
                    port: url.port_u16().unwrap_or(443),
                },
                path: url.path().to_owned(),
                authority: url
                    .authority()
                    .map(|authority| authority.as_str().to_owned())
                    .unwrap_or_default(),
                roots,
            });
        }
        let service = &config["service"];
        if !service.is_object() {
            return Err("webhook configuration must have either service or URL".to_owned());
        }
        let text = |field: &str| service[field].as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (text("namespace"), text("name"));
        let port = service["port"]
            .as_u64()
            .and_then(|port| port.try_into().ok());
        let port = port.unwrap_or(443);
        let mut path = text("path");
        if !path.starts_with('/') {
            path.insert(0, '/');
        }
        Ok(Self {
            authority: format!("{name}.{namespace}.svc:{port}"),
            destination: Destination::Service {
                namespace,
                name,
                port,
            },
            path,
            roots,
        })
    }

    /// Returns the configuration of a closure in this process.
    pub(crate) fn local(webhook: Arc<LocalWebhook>) -> Self {
        Self {
            destination: Destination::Local(webhook),
            path: String::new(),
            authority: String::new(),
            roots: Roots::new(Vec::new()),
        }
    }

    /// Returns the name that the certificate must have.
    pub(super) fn server_name(&self) -> String {
        match &self.destination {
            Destination::Url { host, .. } => host.clone(),
            Destination::Service {
                namespace, name, ..
            } => format!("{name}.{namespace}.svc"),
            Destination::Local(_) => String::new(),
        }
    }
}
