//! Fills Secrets of the type `kubernetes.io/service-account-token` with a token of their account,
//! and deletes them with the account.
//!
//! A token is bound to its Secret: it is valid until the Secret or the account is deleted.

mod plan;

use std::sync::Arc;

use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{Secret, ServiceAccount},
};
use kube::{Api, api::PostParams};
use pintle::{
    cache::{Lister, Object, ObjectKey},
    controller::{Action, Context, Predicate, ReconcileError},
};
use tokio_util::sync::CancellationToken;

use self::plan::Step;
use crate::{
    api::unless_stale,
    loops::{Environment, LoopError},
    meta,
};

/// The longest validity of a token, in seconds. The token usually ends earlier, with its Secret.
const LONGEST: i64 = 1 << 32;

/// Runs the loop until `stop` is cancelled.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    let secrets = environment.informers.informer::<Secret>().lister();
    let is_token = Predicate::new(|_, secret: &Object<Secret>| {
        secret.get().is_ok_and(|secret| plan::is_token(&secret))
    });
    let shared = environment.clone();
    environment
        .controller::<Secret>("service-account-tokens")
        .filter(is_token)
        .watches::<ServiceAccount>(move |account, _| tokens_of(&secrets, account.key()))
        .run_by_key(move |key, cx| reconcile(key, cx, shared.clone()), &stop)
        .await?;
    Ok(())
}

/// Returns the keys of the Secrets for the tokens of an account.
fn tokens_of(secrets: &Lister<Secret>, account: &ObjectKey) -> Vec<ObjectKey> {
    let mut secrets = secrets
        .namespace(account.namespace().unwrap_or_default())
        .list();
    secrets.retain(|secret| {
        let secret = secret.get();
        secret.is_ok_and(|secret| plan::account_of(&secret) == Some(account.name()))
    });
    let mut keys: Vec<_> = secrets.iter().map(|secret| secret.key().clone()).collect();
    keys.sort_unstable();
    keys
}

async fn reconcile(
    key: ObjectKey,
    cx: Context,
    environment: Arc<Environment>,
) -> Result<Action, ReconcileError> {
    let Some(cached) = cx.lister::<Secret>()?.get(&key) else {
        return Ok(Action::await_change());
    };
    let secret = cached.get()?;
    let Some(name) = plan::account_of(&secret) else {
        return Ok(Action::await_change());
    };
    let namespace = key.namespace().unwrap_or_default();
    let known = cx
        .lister::<ServiceAccount>()?
        .get(&ObjectKey::namespaced(namespace, name));
    let mut account = known.map(|account| account.get()).transpose()?;
    let accounts = Api::<ServiceAccount>::namespaced(cx.client().clone(), namespace);
    if plan::plan(&secret, account.as_deref(), &environment.root_ca) == Step::Delete {
        // The cache may not have seen the account yet.
        account = accounts.get_opt(name).await?.map(Arc::new);
    }
    match plan::plan(&secret, account.as_deref(), &environment.root_ca) {
        Step::None => {}
        Step::Delete => {
            unless_stale(cx.delete(&cached).await)?;
        }
        Step::Fill { mut secret, token } => {
            if token {
                let request = request(&secret);
                let issued = accounts
                    .create_token_request(name, &PostParams::default(), &request)
                    .await;
                let Some(issued) = unless_stale(issued)? else {
                    return Ok(Action::await_change());
                };
                let token = issued.status.and_then(|status| status.token);
                plan::set_token(&mut secret, &token.unwrap_or_default());
            }
            unless_stale(cx.replace(&*secret).await)?;
        }
    }
    Ok(Action::await_change())
}

/// Builds the request for a token that is bound to a Secret.
fn request(secret: &Secret) -> TokenRequest {
    TokenRequest {
        spec: Some(TokenRequestSpec {
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Secret".into()),
                name: Some(meta::name(&secret.metadata).to_owned()),
                uid: Some(meta::uid(&secret.metadata).to_owned()),
            }),
            expiration_seconds: Some(LONGEST),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    }
}
