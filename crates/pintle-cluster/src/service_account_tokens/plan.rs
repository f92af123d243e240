//! Decides what to do with the Secret of a token.

use k8s_openapi::{
    ByteString,
    api::core::v1::{Secret, ServiceAccount},
};

use crate::meta;

/// The type of these Secrets.
const TYPE: &str = "kubernetes.io/service-account-token";
/// The annotations that name the account.
const ACCOUNT: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

const TOKEN: &str = "token";
const NAMESPACE: &str = "namespace";
const ROOT_CA: &str = "ca.crt";

/// What to do with a Secret.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    None,
    /// Its account is gone.
    Delete,
    /// Write this, after adding a token if it has none.
    Fill {
        secret: Box<Secret>,
        token: bool,
    },
}

/// Returns whether a Secret is for a token.
pub(super) fn is_token(secret: &Secret) -> bool {
    secret.type_.as_deref() == Some(TYPE)
}

/// Returns the name of the account whose token a Secret is for.
pub(super) fn account_of(secret: &Secret) -> Option<&str> {
    meta::annotation(&secret.metadata, ACCOUNT).filter(|_| is_token(secret))
}

/// Decides what to do with a Secret. `account` is the service account that it names.
pub(super) fn plan(secret: &Secret, account: Option<&ServiceAccount>, root_ca: &str) -> Step {
    if account_of(secret).is_none() || meta::is_being_deleted(&secret.metadata) {
        return Step::None;
    }
    let uid = meta::annotation(&secret.metadata, ACCOUNT_UID).unwrap_or_default();
    let account = account.filter(|it| uid.is_empty() || uid == meta::uid(&it.metadata));
    let Some(account) = account else {
        return Step::Delete;
    };
    let data = |name: &str| {
        let data = secret.data.as_ref().and_then(|data| data.get(name));
        data.map_or(&[][..], |value| &value.0)
    };
    let needs_ca = !root_ca.is_empty() && data(ROOT_CA) != root_ca.as_bytes();
    let needs_namespace = data(NAMESPACE).is_empty();
    let token = data(TOKEN).is_empty();
    if !needs_ca && !needs_namespace && !token {
        return Step::None;
    }
    let mut secret = Box::new(secret.clone());
    let annotations = secret.metadata.annotations.get_or_insert_default();
    let name = meta::name(&account.metadata).to_owned();
    annotations.insert(ACCOUNT.into(), name);
    annotations.insert(ACCOUNT_UID.into(), meta::uid(&account.metadata).to_owned());
    if needs_ca {
        set(&mut secret, ROOT_CA, root_ca);
    }
    if needs_namespace {
        let namespace = secret.metadata.namespace.clone().unwrap_or_default();
        set(&mut secret, NAMESPACE, &namespace);
    }
    Step::Fill { secret, token }
}

/// Sets the token of a Secret.
pub(super) fn set_token(secret: &mut Secret, token: &str) {
    set(secret, TOKEN, token);
}

fn set(secret: &mut Secret, name: &str, value: &str) {
    let data = secret.data.get_or_insert_default();
    data.insert(name.into(), ByteString(value.as_bytes().to_vec()));
}

#[cfg(test)]
mod tests;
