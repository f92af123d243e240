//! What a request wants to do, as authorization sees it.

use std::borrow::Cow;

use http::{Method, Uri};

use crate::{
    api::{ApiError, Query, User, decode_percent},
    meta::NameRule,
};

/// A verb, and the resource or path it applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Access<'a> {
    pub(crate) verb: Cow<'a, str>,
    pub(crate) what: What<'a>,
}

/// What an access is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What<'a> {
    Resource(Resource<'a>),
    /// A path that is not a resource, such as `/healthz`.
    Path(Cow<'a, str>),
}

/// A resource, or one object of it. Fields that do not apply are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Resource<'a> {
    pub(crate) group: Cow<'a, str>,
    pub(crate) plural: Cow<'a, str>,
    pub(crate) sub: Cow<'a, str>,
    pub(crate) namespace: Cow<'a, str>,
    pub(crate) name: Cow<'a, str>,
}

impl Resource<'_> {
    /// Returns the resource as rules name it: `pods` or `pods/status`.
    pub(crate) fn combined(&self) -> Cow<'_, str> {
        if self.sub.is_empty() {
            Cow::Borrowed(&*self.plural)
        } else {
            Cow::Owned(format!("{}/{}", self.plural, self.sub))
        }
    }
}

impl<'a> Access<'a> {
    /// Creates an access to a resource.
    pub(crate) fn to(verb: impl Into<Cow<'a, str>>, resource: Resource<'a>) -> Self {
        Self {
            verb: verb.into(),
            what: What::Resource(resource),
        }
    }

    /// Returns the error for a user without this access.
    pub(crate) fn forbidden(&self, user: &User, reason: &str) -> ApiError {
        let (user, verb) = (&user.name, &self.verb);
        let what = match &self.what {
            What::Path(path) => format!("User {user:?} cannot {verb} path {path:?}"),
            What::Resource(resource) => {
                let (what, group) = (resource.combined(), &resource.group);
                let cannot =
                    format!("User {user:?} cannot {verb} resource {what:?} in API group {group:?}");
                match &*resource.namespace {
                    "" => format!("{cannot} at the cluster scope"),
                    namespace => format!("{cannot} in the namespace {namespace:?}"),
                }
            }
        };
        // Upstream escapes what comes from the request, in case a browser shows it.
        let mut why = what
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        if !reason.is_empty() {
            why = format!("{why}: {reason}");
        }
        match &self.what {
            What::Path(_) => ApiError::forbidden_path(&why),
            What::Resource(Resource {
                group,
                plural,
                name,
                ..
            }) => ApiError::forbidden(group, plural, name, &why),
        }
    }
}

impl Access<'static> {
    /// Returns what a request wants to do, from its method and path alone.
    pub(crate) fn of_request(method: &Method, uri: &Uri) -> Self {
        let path = decode_percent(uri.path(), false);
        let other = |verb: &str| Self {
            verb: Cow::Owned(verb.to_owned()),
            what: What::Path(Cow::Owned(path.clone())),
        };
        let lower = method.as_str().to_lowercase();
        let trimmed = path.trim_matches('/');
        let mut parts: Vec<&str> = trimmed.split('/').collect();
        let group = match parts[..] {
            ["api", _, _, ..] => {
                parts.drain(..2);
                ""
            }
            ["apis", group, _, _, ..] => {
                parts.drain(..3);
                group
            }
            _ => return other(&lower),
        };
        let mut verb = match *method {
            Method::POST => "create",
            Method::GET | Method::HEAD => "get",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "",
        };
        if let ["watch" | "proxy", _, ..] = parts[..] {
            verb = if parts[0] == "watch" {
                "watch"
            } else {
                "proxy"
            };
            parts.remove(0);
        }
        let mut namespace = "";
        if let ["namespaces", name, rest @ ..] = &parts[..] {
            namespace = name;
            if !matches!(rest, [] | ["status" | "finalize", ..]) {
                parts.drain(..2);
            }
        }
        let part = |at: usize| parts.get(at).copied().unwrap_or_default();
        let sub = if verb == "proxy" { "" } else { part(2) };
        let mut name = part(1).to_owned();
        if name.is_empty() && verb == "get" {
            let query = Query::parse(uri.query());
            verb = if query.flag("watch") { "watch" } else { "list" };
            name = selected_name(query.get("fieldSelector")).unwrap_or_default();
        }
        if name.is_empty() && verb == "delete" {
            verb = "deletecollection";
        }
        let owned = |text: &str| Cow::Owned(text.to_owned());
        Self::to(
            verb,
            Resource {
                group: owned(group),
                plural: owned(part(0)),
                sub: owned(sub),
                namespace: owned(namespace),
                name: Cow::Owned(name),
            },
        )
    }
}

/// Returns the single name that a field selector allows: a list of one object needs the right to
/// that object only.
fn selected_name(selector: &str) -> Option<String> {
    let terms = selector.split(',').map(str::trim);
    let mut names = terms.filter_map(|term| {
        let rest = term.strip_prefix("metadata.name")?;
        let name = rest.strip_prefix("==").or_else(|| rest.strip_prefix('='))?;
        Some(name.trim().to_owned())
    });
    let name = names.next_back()?;
    let fits = !name.is_empty() && NameRule::PathSegment.problems(&name, false).is_empty();
    fits.then_some(name)
}

#[cfg(test)]
mod tests;
