//! Impersonation: the `Impersonate-User` and related headers.
//!
//! There are two ways to permit a user to act as another:
//!
//! - The verb `impersonate` on `users`, `groups`, `serviceaccounts`, `uids` and
//!   `userextras/KEY`, which allows every request.
//! - Since 1.36, constrained impersonation: `impersonate:MODE` on the user, and
//!   `impersonate-on:MODE:VERB` on the target of the request.
//!
//! The mode that last succeeded for the user is tried first, then the constrained modes, then the
//! verb. A denied request gets the first error, and a node has its group only in constrained modes,
//! so both depend on what the user did before, as in kube-apiserver.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderValue, request::Parts};
use parking_lot::Mutex;

use super::{
    Access,
    access::{Resource, What},
};
use crate::{
    api::{ADMINISTRATORS, Api, ApiError, User, decode_percent, ensure_groups, service_account},
    meta::NameRule,
};

/// The prefix of all impersonation headers.
const PREFIX: &str = "impersonate-";
const EXTRA: &str = "impersonate-extra-";
/// The API group of resources that represent attributes of a user.
const AUTHENTICATION: &str = "authentication.k8s.io";
/// The extra field that names the node of a service account's Pod.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// With this many groups or extra values, permission for all of them is tried first.
const MANY: usize = 4;
/// How many users' last modes are remembered.
const MAX_USERS: usize = 10_000;

/// The ways to impersonate, in the order in which they are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// A service account acts as the node its Pod runs on.
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    /// A user that is neither a node nor a service account.
    UserInfo,
    /// The verb `impersonate`.
    Legacy,
}

const MODES: [Mode; 5] = [
    Mode::AssociatedNode,
    Mode::ArbitraryNode,
    Mode::ServiceAccount,
    Mode::UserInfo,
    Mode::Legacy,
];

/// The mode that last succeeded for each user.
#[derive(Debug, Default)]
pub(crate) struct LastModes(Mutex<BTreeMap<String, Mode>>);

impl LastModes {
    fn get(&self, user: &str) -> Option<Mode> {
        self.0.lock().get(user).copied()
    }

    fn set(&self, user: &str, mode: Mode) {
        let mut modes = self.0.lock();
        if modes.len() >= MAX_USERS && !modes.contains_key(user) {
            modes.pop_first();
        }
        modes.insert(user.to_owned(), mode);
    }
}

/// Returns the user a request acts as: `user`, or the user that its headers name.
///
/// # Errors
///
/// Fails if `user` may not impersonate the other user, or if the headers name attributes but no
/// user.
pub(super) fn acting_user(api: &Api, parts: &Parts, user: User) -> Result<User, ApiError> {
    let Some(wanted) = wanted(&parts.headers)? else {
        return Ok(user);
    };
    let last = api.impersonated.get(&user.name);
    let others = MODES.into_iter().filter(|mode| Some(*mode) != last);
    let mut first = None;
    for mode in last.into_iter().chain(others) {
        if !mode.applies(&wanted, &user) {
            continue;
        }
        match mode.check(api, parts, &wanted, &user) {
            Ok(acting) => {
                if last != Some(mode) {
                    api.impersonated.set(&user.name, mode);
                }
                return Ok(acting);
            }
            Err(error) => {
                first.get_or_insert(error);
            }
        }
    }
    Err(first.unwrap_or_else(|| ApiError::internal("all impersonation modes failed")))
}

/// Returns the user that the headers name, as they name it.
fn wanted(headers: &HeaderMap) -> Result<Option<User>, ApiError> {
    let mut names = headers.keys();
    if !names.any(|name| name.as_str().starts_with(PREFIX)) {
        return Ok(None);
    }
    let name = first(headers, "impersonate-user");
    let groups = headers.get_all("impersonate-group");
    let groups: Vec<String> = groups.iter().map(text).collect();
    if name.is_empty() {
        return match without_user(headers, &groups) {
            Some(why) => Err(ApiError::bad_request(why)),
            None => Ok(None),
        };
    }
    Ok(Some(User {
        name,
        uid: first(headers, "impersonate-uid"),
        groups,
        extra: extra(headers),
    }))
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::AssociatedNode => "associated-node",
            Self::ArbitraryNode => "arbitrary-node",
            Self::ServiceAccount => "serviceaccount",
            Self::UserInfo => "user-info",
            Self::Legacy => "",
        }
    }

    fn applies(self, wanted: &User, user: &User) -> bool {
        let only_name =
            wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let node = node_name(&wanted.name);
        match self {
            Self::AssociatedNode => {
                let own = user.extra.get(NODE_NAME).map(Vec::as_slice);
                let is_own = matches!((own, node), (Some([own]), Some(node)) if own == node);
                only_name && is_own && service_account(&user.name).is_some()
            }
            Self::ArbitraryNode => only_name && node.is_some(),
            Self::ServiceAccount => only_name && service_account(&wanted.name).is_some(),
            Self::UserInfo => node.is_none() && service_account(&wanted.name).is_none(),
            Self::Legacy => true,
        }
    }

    /// Checks that `user` may act as `wanted`, and returns the resulting user.
    fn check(self, api: &Api, parts: &Parts, wanted: &User, user: &User) -> Result<User, ApiError> {
        let constrained = self != Self::Legacy;
        let verb = if constrained {
            let mut access = Access::of_request(&parts.method, &parts.uri);
            access.verb = format!("impersonate-on:{}:{}", self.name(), access.verb).into();
            api.require(user, &access)?;
            format!("impersonate:{}", self.name())
        } else {
            "impersonate".to_owned()
        };
        let group = if constrained { AUTHENTICATION } else { "" };
        let access = |group: &'static str, plural: &'static str, name: &str| {
            let resource = Resource {
                group: group.into(),
                plural: plural.into(),
                name: name.to_owned().into(),
                ..Resource::default()
            };
            Access::to(verb.clone(), resource)
        };
        let mut acting = wanted.clone();
        let mut who = access(group, "users", &wanted.name);
        if let What::Resource(who) = &mut who.what {
            if let (true, Some(node)) = (constrained, node_name(&wanted.name)) {
                who.plural = "nodes".into();
                // Permission to act as the Pod's own node does not name the node.
                let own = self == Self::AssociatedNode;
                who.name = if own {
                    "*".into()
                } else {
                    node.to_owned().into()
                };
                acting.groups = vec!["system:nodes".to_owned()];
            }
            if let Some((namespace, name)) = service_account(&wanted.name) {
                who.plural = "serviceaccounts".into();
                who.namespace = namespace.to_owned().into();
                who.name = name.to_owned().into();
            }
        }
        api.require(user, &who)?;
        if !wanted.uid.is_empty() {
            api.require(user, &access(AUTHENTICATION, "uids", &wanted.uid))?;
        }
        let groups = |name: &str| access(group, "groups", name);
        if constrained {
            check_groups(&wanted.groups)
                .map_err(|(name, why)| groups(name).forbidden(user, why))?;
        }
        let many = constrained && wanted.groups.len() >= MANY;
        if !(many && api.authorize(user, &groups("*")).is_allowed()) {
            for name in &wanted.groups {
                api.require(user, &groups(name))?;
            }
        }
        let extras = |key: &str, value: &str| {
            let mut access = access(AUTHENTICATION, "userextras", value);
            if let What::Resource(resource) = &mut access.what {
                resource.sub = key.to_owned().into();
            }
            access
        };
        if constrained {
            check_extra(&wanted.extra).map_err(|why| extras("", "").forbidden(user, &why))?;
        }
        let values: usize = wanted.extra.values().map(Vec::len).sum();
        let many = constrained && (wanted.extra.len() >= MANY || values >= MANY);
        if !(many && api.authorize(user, &extras("*", "*")).is_allowed()) {
            for (key, values) in &wanted.extra {
                for value in values {
                    api.require(user, &extras(key, value))?;
                }
            }
        }
        acting.groups = ensure_groups(&acting.name, acting.groups);
        Ok(acting)
    }
}

/// Rejects groups that only the verb `impersonate` can grant. The error is the wrong name and the
/// reason.
fn check_groups(groups: &[String]) -> Result<(), (&'static str, &'static str)> {
    if groups.iter().any(String::is_empty) {
        return Err(("", "impersonating the empty string group is not allowed"));
    }
    if groups.iter().any(|group| group == ADMINISTRATORS) {
        let why = "impersonating the system:masters group is not allowed";
        return Err((ADMINISTRATORS, why));
    }
    Ok(())
}

/// Rejects extra attributes that only the verb `impersonate` can grant.
fn check_extra(extra: &BTreeMap<String, Vec<String>>) -> Result<(), String> {
    for (key, values) in extra {
        if key.is_empty() {
            return Err("impersonating the empty string key in extra is not allowed".into());
        }
        let domain = key.split_once('/').filter(|(_, path)| !path.is_empty());
        let fits = |domain: &str| NameRule::Subdomain.problems(domain, false).is_empty();
        if !domain.is_some_and(|(domain, _)| fits(domain)) {
            return Err(format!(
                "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: \
                 {key:?}: must be a domain-prefixed path (such as \"acme.io/foo\")"
            ));
        }
        if key.chars().any(char::is_uppercase) {
            return Err(format!(
                "impersonating a non-lowercase key in extra is not allowed: {key:?}"
            ));
        }
        if values.iter().any(String::is_empty) {
            return Err("impersonating the empty string value in extra is not allowed".into());
        }
    }
    Ok(())
}

/// Returns the name of a node from the name of its user.
fn node_name(user: &str) -> Option<&str> {
    let name = user.strip_prefix("system:node:")?;
    let fits = NameRule::Subdomain.problems(name, false).is_empty();
    fits.then_some(name)
}

fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

fn first(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).map(text).unwrap_or_default()
}

/// Returns the extra attributes. Their names are percent-encoded, because header names are limited
/// to ASCII.
fn extra(headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            let key = decode_percent(key, false);
            extra.entry(key).or_default().push(text(value));
        }
    }
    extra
}

/// Returns the error for a request that impersonates attributes without a user name.
fn without_user(headers: &HeaderMap, groups: &[String]) -> Option<String> {
    let (uid, extra) = (first(headers, "impersonate-uid"), extra(headers));
    if uid.is_empty() && groups.is_empty() && extra.is_empty() {
        return None;
    }
    let list = |values: &[String]| {
        let values: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
        format!("{{{}}}", values.join(", "))
    };
    let groups = match groups {
        [] => "(nil)".to_owned(),
        groups => list(groups),
    };
    let extra = if extra.is_empty() {
        "(nil)".to_owned()
    } else {
        let pairs = extra.iter();
        let pairs = pairs.map(|(key, values)| format!("{key:?}:[]string{}", list(values)));
        format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
    };
    Some(format!(
        "requested &user.DefaultInfo{{Name:\"\", UID:{uid:?}, Groups:[]string{groups}, \
         Extra:map[string][]string{extra}}} without impersonating a user name"
    ))
}

#[cfg(test)]
mod tests;
