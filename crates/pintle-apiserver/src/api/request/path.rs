//! Splits the path of a request, for both the router and authorization.
//!
//! Both build on [`ResourcePath`], so that what is executed is what was authorized. The rules are
//! kube-apiserver's: a path is decoded before it is split, slashes at its ends are ignored, and an
//! empty segment is a segment that matches no route.

use super::query::decode;

/// Percent-decodes a path.
pub(crate) fn decoded(path: &str) -> String {
    decode(path, false)
}

/// Splits a decoded path.
pub(crate) fn segments(decoded: &str) -> Vec<&str> {
    match decoded.trim_matches('/') {
        "" => Vec::new(),
        path => path.split('/').collect(),
    }
}

/// A verb that precedes the resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prefix {
    /// `/watch/`, deprecated: watches what follows.
    Watch,
    /// `/proxy/`, which Kubernetes no longer serves.
    Proxy,
}

/// A path below a group and a version. Parts that it does not have are empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResourcePath<'a> {
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) prefix: Option<Prefix>,
    /// The namespace that the resource is in.
    pub(crate) within: Option<&'a str>,
    pub(crate) plural: &'a str,
    pub(crate) name: &'a str,
    pub(crate) sub: &'a str,
    /// How many segments follow the subresource.
    pub(crate) below: usize,
}

impl<'a> ResourcePath<'a> {
    /// Reads segments. Returns `None` if they name no resource.
    pub(crate) fn of(segments: &[&'a str]) -> Option<Self> {
        let (group, version, mut rest) = match segments {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let mut prefix = None;
        if let ["watch" | "proxy", after @ ..] = rest
            && !after.is_empty()
        {
            let watch = rest[0] == "watch";
            prefix = Some(if watch { Prefix::Watch } else { Prefix::Proxy });
            rest = after;
        }
        let mut within = None;
        // The resource is in the namespace, unless the path names the namespace or its subresource.
        if let ["namespaces", name, after @ ..] = rest
            && !matches!(after, [] | ["status" | "finalize", ..])
        {
            within = Some(*name);
            rest = after;
        }
        let part = |at: usize| rest.get(at).copied().unwrap_or_default();
        (!rest.is_empty()).then(|| Self {
            group,
            version,
            prefix,
            within,
            plural: part(0),
            name: part(1),
            sub: part(2),
            below: rest.len().saturating_sub(3),
        })
    }

    /// Returns the namespace as authorization sees it: for a Namespace, its own name.
    pub(crate) fn namespace(&self) -> &'a str {
        let own = if self.plural == "namespaces" {
            self.name
        } else {
            ""
        };
        self.within.unwrap_or(own)
    }
}
