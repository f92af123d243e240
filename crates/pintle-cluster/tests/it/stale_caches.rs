//! Loops with stale caches create nothing twice.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use crate::support::{Kubectl, gateway::Gateway, start_of_time, virtual_server};
use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response};
use http_body_util::{BodyExt, BodyStream, StreamBody, combinators::UnsyncBoxBody};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{PersistentVolumeClaim, ReplicationController},
};
use pintle_cluster::{Cluster, Loops};
use serde_json::json;
use tokio::time::sleep;
use tower::Service;

/// The delay of every watch event.
const LAG: Duration = Duration::from_secs(4);

/// Delays watch events.
#[derive(Clone)]
struct Late(Gateway);

impl<B> Service<Request<B>> for Late
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<UnsyncBoxBody<Bytes, Infallible>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let query = request.uri().query().unwrap_or_default();
        let is_watch = query.contains("watch=");
        let response = self.0.call(request);
        Box::pin(async move {
            let response = response.await?;
            Ok(response.map(|body| {
                if !is_watch {
                    return body.boxed_unsync();
                }
                let frames = BodyStream::new(body).map(|frame| async move {
                    sleep(LAG).await;
                    frame
                });
                // Delays every frame by `LAG`, however many frames precede it.
                StreamBody::new(frames.buffered(10_000)).boxed_unsync()
            }))
        })
    }
}

/// Proves cluster/stale-caches.
#[test]
fn stale_caches_create_nothing_twice() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let server = virtual_server();
        let kubectl = Kubectl::new(server.client());
        let gateway = Gateway::new(&server, None);
        let cluster = Cluster::builder()
            .server(server.clone())
            .client(kube::Client::new(Late(gateway.clone()), "default"))
            .starting_at(start_of_time())
            .seed(11)
            .nodes(2)
            .loops(Loops::ALL)
            .start()
            .await;
        sleep(Duration::from_mins(1)).await;
        gateway.reset();
        kubectl.create_deployment("web", "nginx:1", 3).await;
        kubectl.create_stateful_set("db", "postgres:1", 3).await;
        kubectl.create_daemon_set("agent", "agent:1").await;
        let template = json!({
            "metadata": { "labels": { "app": "old" } },
            "spec": { "containers": [{ "name": "main", "image": "old:1" }] },
        });
        let spec = json!({ "replicas": 2, "template": template });
        let controller = json!({ "metadata": { "name": "old" }, "spec": spec });
        kubectl.create::<ReplicationController>(controller).await;
        let pod = json!({ "restartPolicy": "Never",
            "containers": [{ "name": "main", "image": "pi:1" }] });
        let spec = json!({ "completions": 4, "parallelism": 2, "template": { "spec": pod } });
        let job = json!({ "metadata": { "name": "pi" }, "spec": spec });
        kubectl.create::<Job>(job).await;
        sleep(Duration::from_mins(10)).await;

        let writes = gateway.traffic().writes;
        let posts = |plural: &str| {
            let end = format!("/{plural}");
            let is_post = |write: &&String| write.starts_with("POST") && write.ends_with(&end);
            writes.iter().filter(is_post).count()
        };
        assert_eq!(posts("pods"), 3 + 3 + 2 + 2 + 4, "{writes:#?}");
        assert_eq!(posts("replicasets"), 1);
        assert_eq!(posts("controllerrevisions"), 2);
        assert_eq!(posts("persistentvolumeclaims"), 3);
        assert_eq!(posts("persistentvolumes"), 3);
        let deletions = writes.iter().filter(|write| write.starts_with("DELETE"));
        assert_eq!(deletions.count(), 0, "{writes:#?}");
        let status = kubectl.get::<Job>("pi").await.status.unwrap();
        assert_eq!((status.succeeded, status.failed), (Some(4), None));
        for claim in kubectl.list::<PersistentVolumeClaim>().await {
            assert_eq!(claim.status.unwrap().phase.as_deref(), Some("Bound"));
        }
        cluster.stop().await;
    });
}
