//! Deletes the contents of terminating namespaces.

mod plan;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ListParams, PropagationPolicy},
    core::PartialObjectMeta,
};
use pintle::{
    cache::ObjectKey,
    controller::{Action, Context, ReconcileError},
};
use tokio_util::sync::CancellationToken;

use self::plan::{Content, Report};
use crate::{
    api::{message, unless_stale},
    discovery::{self, Discovered},
    loops::{Environment, LoopError},
    meta,
};

/// How often to check for remaining objects: Pods with a grace period, objects with finalizers.
/// Their deletion does not enqueue the namespace.
const RECHECK: Duration = Duration::from_secs(1);

/// Runs the loop until `stop` is cancelled.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    let shared = environment.clone();
    environment
        .controller::<Namespace>("namespaces")
        .workers(5)
        .run_by_key(move |key, cx| reconcile(key, cx, shared.clone()), &stop)
        .await?;
    Ok(())
}

async fn reconcile(
    key: ObjectKey,
    cx: Context,
    environment: Arc<Environment>,
) -> Result<Action, ReconcileError> {
    let Some(cached) = cx.lister::<Namespace>()?.get(&key) else {
        return Ok(Action::await_change());
    };
    let namespace = cached.get()?;
    if !plan::needs_emptying(&namespace) {
        return Ok(Action::await_change());
    }
    let report = empty(cx.client(), key.name()).await;
    let status = plan::status(&namespace, &report, environment.clock.now());
    let mut namespace = (*namespace).clone();
    if status.is_some() {
        namespace.status = status;
        let Some(written) = unless_stale(cx.replace_status(&namespace).await)? else {
            return Ok(Action::await_change());
        };
        namespace = written;
    }
    if !report.is_clean() {
        return Ok(Action::requeue_after(RECHECK));
    }
    finalize(cx.client(), &plan::finalized(&namespace)).await?;
    Ok(Action::await_change())
}

/// Deletes all Pods in the namespace and, once they are gone, everything else.
async fn empty(client: &Client, namespace: &str) -> Report {
    let mut report = Report::default();
    let contents = match contents(client).await {
        Ok(contents) => contents,
        Err(error) => {
            report.discovery_error = Some(message(&error));
            return report;
        }
    };
    let (pods, others): (Vec<_>, Vec<_>) = contents.into_iter().partition(Content::is_pods);
    for contents in [pods, others] {
        for content in contents {
            if let Err(error) = delete_kind(client, namespace, &content, &mut report).await {
                let (plural, group) = (&content.plural, &content.group);
                let cause = message(&error);
                report
                    .delete_errors
                    .push(format!("{plural}.{group}: {cause}"));
            }
        }
        if !report.is_clean() {
            break;
        }
    }
    report
}

/// Returns the namespaced kinds that can be listed and deleted.
async fn contents(client: &Client) -> Result<BTreeSet<Content>, kube::Error> {
    let deletable = |kind: &Discovered| kind.namespaced && kind.can("delete") && kind.can("list");
    let kinds = discovery::kinds(client).await?;
    Ok(kinds
        .into_iter()
        .filter(deletable)
        .map(|Discovered { resource, .. }| Content {
            group: resource.group,
            version: resource.version,
            plural: resource.plural,
            kind: resource.kind,
        })
        .collect())
}

async fn delete_kind(
    client: &Client,
    namespace: &str,
    content: &Content,
    report: &mut Report,
) -> Result<(), kube::Error> {
    let resource = discovery::resource(
        &content.group,
        &content.version,
        &content.kind,
        &content.plural,
    );
    let objects = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
    let list = |objects: Api<DynamicObject>| async move {
        unless_stale(objects.list_metadata(&ListParams::default()).await)
    };
    // A kind that was removed after discovery has no objects.
    let Some(present) = list(objects.clone()).await? else {
        return Ok(());
    };
    if present.items.is_empty() {
        return Ok(());
    }
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    let is_being_deleted =
        |object: &PartialObjectMeta<DynamicObject>| meta::is_being_deleted(&object.metadata);
    for object in present
        .items
        .iter()
        .filter(|object| !is_being_deleted(object))
    {
        unless_stale(objects.delete(meta::name(&object.metadata), &params).await)?;
    }
    let Some(left) = list(objects).await? else {
        return Ok(());
    };
    let finalizers = |object: &PartialObjectMeta<DynamicObject>| {
        object.metadata.finalizers.clone().unwrap_or_default()
    };
    let left: Vec<Vec<String>> = left.items.iter().map(finalizers).collect();
    report.add(content, left.iter().map(Vec::as_slice));
    Ok(())
}

async fn finalize(client: &Client, namespace: &Namespace) -> Result<(), kube::Error> {
    let body = serde_json::to_vec(namespace).map_err(kube::Error::SerdeError)?;
    let path = format!(
        "/api/v1/namespaces/{}/finalize",
        meta::name(&namespace.metadata)
    );
    let request = http::Request::put(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body)
        .map_err(kube::Error::HttpError)?;
    unless_stale(client.request::<serde_json::Value>(request).await)?;
    Ok(())
}
