//! Service account tokens: issuing and verifying them.
//!
//! A token is valid until it expires, or its account or the object it is bound to is gone. All
//! three are checked each time it is presented. An account or object that is deleted but held by a
//! finalizer or its grace period counts as gone a minute after its deletion timestamp.

mod jwt;
mod request;

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock, Weak},
};

use parking_lot::Mutex;
use serde_json::{Value, json};
use subtle::ConstantTimeEq;

pub(crate) use self::jwt::Unsigned;
use self::jwt::{Foreign, Key};
use super::Kind;
use crate::api::{
    Api, User,
    request::{
        options::Warnings,
        user::{AUTHENTICATED, CREDENTIAL},
    },
};
use crate::{
    meta::{self, Tree},
    store::{Object, key_of},
};

/// The annotation that limits a Pod to the secrets of its account.
pub(crate) const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";

/// The issuer of tokens, and their default audience.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc";
/// The tolerated clock skew, in milliseconds.
const LEEWAY: i64 = 60_000;

/// `serviceaccounts`.
#[derive(Debug)]
pub(super) struct ServiceAccounts;

impl Kind for ServiceAccounts {
    fn warn(&self, account: &Tree, stored: Option<&Tree>, warnings: &Warnings) {
        let enforces = |account: &Tree| {
            let metadata = account.get("metadata");
            metadata.is_some_and(|metadata| metadata["annotations"].get(ENFORCE).is_some())
        };
        if enforces(account) && !stored.is_some_and(enforces) {
            warnings.add(format!(
                "metadata.annotations[{ENFORCE}]: deprecated in v1.32+; prefer separate \
                 namespaces to isolate access to mounted secrets"
            ));
        }
    }
}

/// Signs and verifies tokens.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    /// Generated on first use; fails if the system provides no randomness.
    key: OnceLock<Option<Key>>,
    /// The administrator tokens of the listeners that are still open.
    listeners: Mutex<Vec<Weak<str>>>,
}

/// The user that a token authenticates, and the audiences it is valid for.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) user: User,
    pub(crate) audiences: Vec<String>,
}

/// Why a token authenticates no user; `None` if it is not a token of this server.
pub(crate) type NoSession = Option<String>;

impl Accounts {
    fn key(&self) -> Result<&Key, Unsigned> {
        let key = self.key.get_or_init(|| Key::generate().ok());
        key.as_ref().ok_or(Unsigned)
    }

    /// Accepts the token of a listener until its last other reference is dropped.
    pub(crate) fn add_listener(&self, token: &Arc<str>) {
        let mut listeners = self.listeners.lock();
        listeners.retain(|token| token.strong_count() > 0);
        listeners.push(Arc::downgrade(token));
    }

    /// Returns true if this is the token of a listener. Compares in constant time.
    fn is_listeners(&self, token: &str) -> bool {
        let listeners = self.listeners.lock();
        let tokens = listeners.iter().filter_map(Weak::upgrade);
        tokens.fold(false, |found, known| {
            found | bool::from(known.as_bytes().ct_eq(token.as_bytes()))
        })
    }

    /// Returns the public keys that verify tokens.
    pub(crate) fn keys(&self) -> Result<Value, Unsigned> {
        Ok(json!({"keys": [self.key()?.public()]}))
    }
}

/// Returns the `OpenID` provider configuration for a server that clients know as `host`.
pub(crate) fn provider(host: Option<&str>) -> Value {
    let place = host.map_or_else(|| ISSUER.to_owned(), |host| format!("https://{host}"));
    json!({
        "issuer": ISSUER,
        "jwks_uri": format!("{place}/openid/v1/jwks"),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    })
}

fn common(some: &[String], others: &[String]) -> Vec<String> {
    let both = some.iter().filter(|one| others.contains(one));
    both.cloned().collect()
}

fn quoted(audiences: &[String]) -> String {
    let each: Vec<String> = audiences.iter().map(|one| format!("{one:?}")).collect();
    format!("[{}]", each.join(" "))
}

impl Api {
    /// Returns the user of any kind of token that is valid for one of the audiences.
    pub(crate) fn session(&self, token: &str, audiences: &[String]) -> Result<Session, NoSession> {
        if self.accounts.is_listeners(token) {
            let audiences = common(&[ISSUER.to_owned()], audiences);
            if !audiences.is_empty() {
                let user = User::admin();
                return Ok(Session { user, audiences });
            }
        }
        self.account_session(token, audiences)
    }

    /// Returns the service account of a token that is valid for one of the audiences.
    pub(crate) fn account_session(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<Session, NoSession> {
        let because = |why: &str| Some(why.to_owned());
        let key = self
            .accounts
            .key()
            .map_err(|why| because(&why.to_string()))?;
        let claims = key.claims(token, ISSUER).map_err(|foreign| match foreign {
            Foreign::Unknown => None,
            Foreign::NoKey => because("invalid signature, no keys found"),
            Foreign::Signature => because("invalid signature"),
        })?;
        let said = claims["aud"].as_array().into_iter().flatten();
        let said: Vec<String> = said.filter_map(Value::as_str).map(str::to_owned).collect();
        let good = common(&said, audiences);
        if good.is_empty() {
            return Err(Some(format!(
                "token audiences {} is invalid for the target audiences {}",
                quoted(&said),
                quoted(audiences)
            )));
        }
        self.check_claims(&claims)?;
        Ok(Session {
            user: user(&claims),
            audiences: good,
        })
    }

    fn check_claims(&self, claims: &Value) -> Result<(), NoSession> {
        let now = self.clock.now().as_millisecond();
        let time = |name: &str| claims[name].as_i64().unwrap_or(0).saturating_mul(1000);
        let because = |why: &str| Err(Some(why.to_owned()));
        if now + LEEWAY < time("nbf") {
            return because("service account token is not valid yet");
        }
        if now - LEEWAY > time("exp") {
            return because("service account token has expired");
        }
        let own = &claims["kubernetes.io"];
        let namespace = own["namespace"].as_str();
        let account = &own["serviceaccount"];
        let name = account["name"].as_str().unwrap_or_default();
        let Some(found) = self.named("serviceaccounts", namespace, name) else {
            return Err(Some(format!("serviceaccounts {name:?} not found")));
        };
        let uid = account["uid"].as_str().unwrap_or_default();
        if found.header().uid != uid {
            let found = &found.header().uid;
            return Err(Some(format!(
                "service account UID ({found}) does not match claim ({uid})"
            )));
        }
        if self.is_gone(&found) {
            let place = namespace.unwrap_or_default();
            return Err(Some(format!(
                "service account {place}/{name} has been deleted"
            )));
        }
        self.check_bound(own, "secret", "secrets", namespace)?;
        self.check_bound(own, "pod", "pods", namespace)?;
        if own.get("pod").is_none() {
            self.check_bound(own, "node", "nodes", None)?;
        }
        Ok(())
    }

    /// Checks that the object a token is bound to still exists.
    fn check_bound(
        &self,
        own: &Value,
        what: &str,
        plural: &str,
        namespace: Option<&str>,
    ) -> Result<(), NoSession> {
        let Some(bound) = own.get(what) else {
            return Ok(());
        };
        let name = bound["name"].as_str().unwrap_or_default();
        let uid = bound["uid"].as_str().unwrap_or_default();
        match self.named(plural, namespace, name) {
            Some(found) if found.header().uid != uid => {
                let found = &found.header().uid;
                Err(Some(format!(
                    "{what} UID ({found}) does not match service account {what} ref claim ({uid})"
                )))
            }
            Some(found) if !self.is_gone(&found) => Ok(()),
            _ => Err(Some("service account token has been invalidated".into())),
        }
    }

    /// Returns true if the deletion timestamp of an object is more than the tolerated skew ago.
    fn is_gone(&self, object: &Object) -> bool {
        if !object.header().deleting {
            return false;
        }
        let tree = object.decode();
        let at = meta::text(&tree, "deletionTimestamp").parse::<jiff::Timestamp>();
        at.is_ok_and(|at| at.as_millisecond() < self.clock.now().as_millisecond() - LEEWAY)
    }

    /// Returns an object of the core group.
    fn named(&self, plural: &str, namespace: Option<&str>, name: &str) -> Option<Arc<Object>> {
        let collection = self.registry.builtin_collection("", plural)?;
        self.store.get(collection, &key_of(namespace, name))
    }
}

/// Returns the user of verified claims.
fn user(claims: &Value) -> User {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let own = &claims["kubernetes.io"];
    let mut extra = BTreeMap::new();
    let mut add = |name: &str, value: &Value| {
        if let Some(value) = value.as_str().filter(|value| !value.is_empty()) {
            let name = format!("authentication.kubernetes.io/{name}");
            extra.insert(name, vec![value.to_owned()]);
        }
    };
    add("pod-name", &own["pod"]["name"]);
    add("pod-uid", &own["pod"]["uid"]);
    add("node-name", &own["node"]["name"]);
    add("node-uid", &own["node"]["uid"]);
    let credential = format!("JTI={}", text(&claims["jti"]));
    extra.insert(CREDENTIAL.to_owned(), vec![credential]);
    User {
        name: text(&claims["sub"]),
        uid: text(&own["serviceaccount"]["uid"]),
        groups: account_groups(own["namespace"].as_str().unwrap_or_default()),
        extra,
    }
}

/// Returns the groups of an account in that namespace.
fn account_groups(namespace: &str) -> Vec<String> {
    vec![
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
        AUTHENTICATED.to_owned(),
    ]
}
