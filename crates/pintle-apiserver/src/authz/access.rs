//! The access that a request needs, as authorization sees it.

use std::borrow::Cow;

use http::{Method, Uri};

use crate::{
    api::{
        ApiError, Query, User,
        path::{self, Prefix, ResourcePath},
    },
    meta::{NameRule, field_selector},
};

/// A verb, and the resource or path it applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Access<'a> {
    pub(crate) verb: Cow<'a, str>,
    pub(crate) what: What<'a>,
}

/// The target of an access.
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
        // Upstream escapes text from the request, in case a browser shows it.
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
    /// Returns the access that a request needs, from its method and URI alone.
    pub(crate) fn of_request(method: &Method, uri: &Uri) -> Self {
        let decoded = path::decoded(uri.path());
        let Some(path) = ResourcePath::of(&path::segments(&decoded)) else {
            return Self {
                verb: Cow::Owned(method.as_str().to_lowercase()),
                what: What::Path(Cow::Owned(decoded)),
            };
        };
        let mut name = Cow::Borrowed(path.name);
        let verb = match (path.prefix, method) {
            (Some(Prefix::Watch), _) => "watch",
            (Some(Prefix::Proxy), _) => "proxy",
            (None, &(Method::GET | Method::HEAD)) if name.is_empty() => {
                let query = Query::parse(uri.query());
                name = selected_name(query.get("fieldSelector")).map_or(name, Cow::Owned);
                if query.flag("watch") { "watch" } else { "list" }
            }
            (None, &(Method::GET | Method::HEAD)) => "get",
            (None, &Method::POST) => "create",
            (None, &Method::PUT) => "update",
            (None, &Method::PATCH) => "patch",
            (None, &Method::DELETE) if name.is_empty() => "deletecollection",
            (None, &Method::DELETE) => "delete",
            (None, _) => "",
        };
        let sub = if verb == "proxy" { "" } else { path.sub };
        let owned = |text: &str| Cow::Owned(text.to_owned());
        Self::to(
            verb,
            Resource {
                group: owned(path.group),
                plural: owned(path.plural),
                sub: owned(sub),
                namespace: owned(path.namespace()),
                name: Cow::Owned(name.into_owned()),
            },
        )
    }
}

/// Returns the single name that a field selector allows: a list of one object needs permission to
/// that object only.
fn selected_name(selector: &str) -> Option<String> {
    let requirements = field_selector::parse(selector).ok()?;
    let names = requirements
        .into_iter()
        .filter(|requirement| requirement.equal && requirement.field == "metadata.name");
    let name = names.map(|requirement| requirement.value).min()?;
    let fits = !name.is_empty() && NameRule::PathSegment.problems(&name, false).is_empty();
    fits.then_some(name)
}

#[cfg(test)]
mod tests;
