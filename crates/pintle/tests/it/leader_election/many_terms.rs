//! Term after term in one process.

use std::sync::Arc;

use futures::StreamExt;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::runtime::Handle;

use super::*;

/// Returns a client that holds a clone of `open` for every request and response in flight.
fn counted(open: &Arc<()>, client: &Client) -> Client {
    let (open, inner) = (Arc::clone(open), client.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (open, inner) = (Arc::clone(&open), inner.clone());
        async move {
            let (parts, body) = inner.send(request).await?.into_parts();
            let frames = body
                .into_data_stream()
                .inspect(move |_| assert!(Arc::strong_count(&open) > 1))
                .map(|data| data.map(Frame::data));
            let body = StreamBody::new(frames);
            Ok::<_, kube::Error>(Response::from_parts(parts, body))
        }
    });
    Client::new(service, client.default_namespace())
}

/// Proves manager/terms.
#[tokio::test(start_paused = true)]
async fn thousand_terms_leave_no_tasks_or_requests() {
    let server = ApiServer::builder().build();
    let (open, metrics, shutdown) = (Arc::new(()), Metrics::new(), CancellationToken::new());
    let replica = |identity: &str| {
        let network = watch::Sender::new(Network::Up);
        let client = counted(&open, &through(&network, &server.client()));
        let election = LeaderElection::new(client.clone(), "operator")
            .identity(identity)
            .rng(Rng::with_seed(1))
            .metrics(&metrics);
        let elector = election.build().unwrap();
        let maps = Api::default_namespaced(elector.leadership().gate(&client));
        (network, elector, maps)
    };
    // Two replicas take turns: one leads while the other waits and watches.
    let (mut leader, mut standby) = (replica("a"), replica("b"));
    let mut term = leader.1.acquire(&shutdown).await.unwrap();
    let mut levels = Vec::new();
    for number in 0..1_000 {
        assert_eq!(term.transitions(), number);
        let (network, _, maps) = &leader;
        let end = async {
            sleep(3 * SECOND).await;
            assert_eq!(write(maps, &format!("term-{number}")).await, Ok(()));
            // Every other term is lost.
            if number % 2 == 1 {
                network.send_replace(Network::Down);
                assert_eq!(write(maps, "late").await, Err(Some(NotLeading::Cancelled)));
                term.ended().cancelled().await;
                network.send_replace(Network::Up);
            }
            term.resign().await;
        };
        let (next, ()) = tokio::join!(standby.1.acquire(&shutdown), end);
        term = next.unwrap();
        std::mem::swap(&mut leader, &mut standby);
        if [9, 999].contains(&number) {
            sleep(SECOND).await;
            let tasks = Handle::current().metrics().num_alive_tasks();
            levels.push((tasks, Arc::strong_count(&open), metrics.encode().len()));
        }
    }
    assert_eq!(levels[0].0, levels[1].0, "tasks");
    assert_eq!(levels[0].1, levels[1].1, "requests in flight");
    // The counters have grown by two digits.
    assert!(levels[1].2 < levels[0].2 + 10, "metrics: {levels:?}");
}
