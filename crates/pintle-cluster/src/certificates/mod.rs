//! Approves, signs and cleans up `CertificateSigningRequest`s.
//!
//! Kubelets' requests for client certificates are approved if RBAC allows the requester to create
//! them; all other requests wait until another client approves them. The cluster's API server
//! authority signs approved requests for the `kubernetes.io` signers that issue certificates. On
//! another server, whose authority has its own signer, nothing is signed.

mod plan;

use std::sync::Arc;

use k8s_openapi::{
    ByteString,
    api::{
        authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
        certificates::v1::CertificateSigningRequest,
    },
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use pintle::{
    cache::ObjectKey,
    controller::{Action, Context, ReconcileError},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::plan::Step;
use crate::{
    api::{self, unless_stale},
    loops::{Environment, LoopError},
    meta,
};

/// Runs the loop until `stop` is cancelled.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    let shared = environment.clone();
    environment
        .controller::<CertificateSigningRequest>("certificate-signing-requests")
        .run_by_key(move |key, cx| reconcile(key, cx, shared.clone()), &stop)
        .await?;
    Ok(())
}

async fn reconcile(
    key: ObjectKey,
    cx: Context,
    environment: Arc<Environment>,
) -> Result<Action, ReconcileError> {
    let Some(cached) = cx.lister::<CertificateSigningRequest>()?.get(&key) else {
        return Ok(Action::await_change());
    };
    let request = cached.get()?;
    let now = environment.clock.now();
    let left = plan::expires_in(&request, now);
    if left.is_zero() {
        unless_stale(cx.delete(&cached).await)?;
        return Ok(Action::await_change());
    }
    match plan::plan(&request, now) {
        Step::None => {}
        Step::Review(permissions) => {
            for (subresource, message) in permissions {
                if is_allowed(&request, subresource, &cx).await? {
                    approve(&request, message, &cx).await?;
                    break;
                }
            }
        }
        Step::Fail(message) => {
            let mut failed = (*request).clone();
            let status = failed.status.get_or_insert_default();
            let condition = plan::condition("Failed", "SignerValidationFailure", &message, now);
            status.conditions.get_or_insert_default().push(condition);
            api::replace_status(&cx, &failed).await?;
        }
        Step::Sign(validity) => {
            let Some(server) = &environment.server else {
                return Ok(Action::requeue_after(left));
            };
            let signed = server.authority().and_then(|authority| {
                let parsed = plan::parsed(&request);
                let parsed = parsed.map_err(pintle_apiserver::AuthorityError::Request)?;
                authority.sign(
                    &parsed,
                    &request.spec.usages.clone().unwrap_or_default(),
                    validity,
                )
            });
            let certificate = signed.map_err(|error| ReconcileError::retry(error.to_string()))?;
            let mut issued = (*request).clone();
            let status = issued.status.get_or_insert_default();
            status.certificate = Some(ByteString(certificate.into_bytes()));
            api::replace_status(&cx, &issued).await?;
        }
    }
    Ok(Action::requeue_after(left))
}

/// Returns whether RBAC allows the requester to create requests of this kind.
async fn is_allowed(
    request: &CertificateSigningRequest,
    subresource: &str,
    cx: &Context,
) -> Result<bool, kube::Error> {
    let spec = &request.spec;
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: spec.username.clone(),
            uid: spec.uid.clone(),
            groups: spec.groups.clone(),
            extra: spec.extra.clone(),
            resource_attributes: Some(ResourceAttributes {
                group: Some("certificates.k8s.io".into()),
                resource: Some("certificatesigningrequests".into()),
                subresource: Some(subresource.into()),
                verb: Some("create".into()),
                version: Some("*".into()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let reviews = Api::<SubjectAccessReview>::all(cx.client().clone());
    let answer = reviews.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

async fn approve(
    request: &CertificateSigningRequest,
    message: &str,
    cx: &Context,
) -> Result<(), kube::Error> {
    let status = request.status.as_ref();
    let conditions = status.and_then(|it| it.conditions.clone());
    let mut conditions = json!(conditions.unwrap_or_default());
    if let Some(conditions) = conditions.as_array_mut() {
        conditions.push(json!({
            "type": "Approved", "status": "True", "reason": "AutoApproved", "message": message,
        }));
    }
    let patch = Patch::Merge(json!({
        "metadata": { "resourceVersion": request.metadata.resource_version },
        "status": { "conditions": conditions },
    }));
    let requests = Api::<CertificateSigningRequest>::all(cx.client().clone());
    let name = meta::name(&request.metadata);
    let params = PatchParams::default();
    unless_stale(requests.patch_approval(name, &params, &patch).await)?;
    Ok(())
}
