//! Parses a request: its verb, resource and object, from the method, path and body.

use std::fmt;

use http::{Method, Uri};

/// The verb of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads a collection.
    List,
    /// Watches a collection.
    Watch,
    /// Creates an object.
    Create,
    /// Replaces an object.
    Update,
    /// Patches or applies an object.
    Patch,
    /// Deletes an object.
    Delete,
    /// Deletes a collection.
    DeleteCollection,
    /// Anything else: discovery, version.
    Other,
}

impl Verb {
    /// Returns the verb as a Role names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Other => "other",
        }
    }

    /// Returns whether the request may change the cluster.
    pub fn is_write(self) -> bool {
        matches!(
            self,
            Self::Create | Self::Update | Self::Patch | Self::Delete | Self::DeleteCollection
        )
    }
}

/// The resource of a request: `deployments` of `apps`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResourceName {
    /// The group; empty for the core group.
    pub group: String,
    /// The plural.
    pub plural: String,
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plural)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}

/// A parsed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The verb.
    pub verb: Verb,
    /// The resource.
    pub resource: ResourceName,
    /// The version of the API.
    pub version: String,
    /// The namespace, if the path names one.
    pub namespace: Option<String>,
    /// The name; for a create, the name in the body, or the prefix of a generated name and `*`.
    pub name: String,
    /// The subresource; empty for the object itself.
    pub subresource: String,
    /// Whether a list accepts any version, so that a lagging server may return an older state.
    pub any_version: bool,
}

impl Target {
    /// Parses a request.
    pub(crate) fn read(method: &Method, uri: &Uri, body: &[u8]) -> Self {
        let mut parts: Vec<&str> = uri.path().split('/').filter(|it| !it.is_empty()).collect();
        let query = uri.query().unwrap_or_default();
        let mut target = Self {
            verb: Verb::Other,
            resource: ResourceName::default(),
            version: String::new(),
            namespace: None,
            name: String::new(),
            subresource: String::new(),
            any_version: query.split('&').any(|pair| pair == "resourceVersion=0"),
        };
        match parts.first() {
            Some(&"api") if parts.len() > 2 => {
                parts[1].clone_into(&mut target.version);
                parts.drain(..2);
            }
            Some(&"apis") if parts.len() > 3 => {
                parts[1].clone_into(&mut target.resource.group);
                parts[2].clone_into(&mut target.version);
                parts.drain(..3);
            }
            _ => {
                uri.path().clone_into(&mut target.name);
                return target;
            }
        }
        if parts.first() == Some(&"namespaces")
            && parts.len() > 2
            && !matches!(parts[2], "status" | "finalize")
        {
            target.namespace = Some(parts[1].to_owned());
            parts.drain(..2);
        }
        let mut parts = parts.into_iter();
        parts
            .next()
            .unwrap_or_default()
            .clone_into(&mut target.resource.plural);
        parts
            .next()
            .unwrap_or_default()
            .clone_into(&mut target.name);
        target.subresource = parts.collect::<Vec<_>>().join("/");
        let named = !target.name.is_empty();
        target.verb = match *method {
            Method::GET if is_watch(query) => Verb::Watch,
            Method::GET if named => Verb::Get,
            Method::GET => Verb::List,
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE if named => Verb::Delete,
            Method::DELETE => Verb::DeleteCollection,
            _ => Verb::Other,
        };
        if target.verb == Verb::Create && !named {
            target.name = created_name(body);
        }
        target
    }

    /// Returns whether faults and oracles ignore this resource: events are lossy by design, and
    /// leases and reviews are not state.
    pub fn is_bookkeeping(&self) -> bool {
        is_bookkeeping(&self.resource)
    }

    /// Returns `verb/resource/namespace/name/subresource`, the stable name of the request.
    pub fn fingerprint(&self) -> String {
        let mut text = format!("{}/{}", self.verb.as_str(), self.resource);
        for part in [self.namespace.as_deref().unwrap_or(""), &self.name] {
            text.push('/');
            text.push_str(part);
        }
        if !self.subresource.is_empty() {
            text.push('/');
            text.push_str(&self.subresource);
        }
        text
    }
}

/// Returns whether objects of this resource are not part of the state that is compared.
pub(crate) fn is_bookkeeping(resource: &ResourceName) -> bool {
    resource.plural == "events"
        || matches!(
            resource.group.as_str(),
            "coordination.k8s.io" | "authorization.k8s.io" | "authentication.k8s.io"
        )
}

fn is_watch(query: &str) -> bool {
    query
        .split('&')
        .any(|pair| matches!(pair, "watch=true" | "watch=1" | "watch"))
}

fn created_name(body: &[u8]) -> String {
    let Ok(object) = serde_json::from_slice::<serde_json::Value>(body) else {
        return String::new();
    };
    let meta = &object["metadata"];
    if let Some(name) = meta["name"].as_str().filter(|name| !name.is_empty()) {
        return name.to_owned();
    }
    meta["generateName"]
        .as_str()
        .map(|prefix| format!("{prefix}*"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
