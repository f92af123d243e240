//! Impersonation: the `Impersonate-User` and related headers.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderValue};

use super::{
    query::decode,
    user::{User, groups_of, service_account},
};
use crate::api::ApiError;

const EXTRA: &str = "impersonate-extra-";

/// Returns the user a request acts as: `user`, or the one they impersonate. Only administrators may
/// impersonate.
pub(crate) fn impersonated(headers: &HeaderMap, user: User) -> Result<User, ApiError> {
    let name = first(headers, "impersonate-user");
    let groups: Vec<String> = headers
        .get_all("impersonate-group")
        .iter()
        .map(text)
        .collect();
    if name.is_empty() {
        return match without_user(headers, &groups) {
            Some(why) => Err(ApiError::bad_request(why)),
            None => Ok(user),
        };
    }
    let account = service_account(&name);
    if !user.is_administrator() {
        return Err(refused(&user.name, &name, account));
    }
    let groups = groups_of(&name, groups);
    Ok(User {
        name,
        uid: first(headers, "impersonate-uid"),
        groups,
        extra: extra(headers),
    })
}

fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

fn first(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).map(text).unwrap_or_default()
}

/// Returns the extra attributes. Their names are percent-encoded, because header names are limited to
/// ASCII.
fn extra(headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            let key = decode(key, false);
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

fn refused(user: &str, wanted: &str, account: Option<(&str, &str)>) -> ApiError {
    let cannot = |what: &str, place: String| {
        format!("User {user:?} cannot impersonate resource {what:?} in API group \"\" {place}")
    };
    if let Some((namespace, name)) = account {
        let why = cannot("serviceaccounts", format!("in the namespace {namespace:?}"));
        return ApiError::forbidden("", "serviceaccounts", name, &why);
    }
    let why = cannot("users", "at the cluster scope".to_owned());
    ApiError::forbidden("", "users", wanted, &why)
}

#[cfg(test)]
mod tests;
