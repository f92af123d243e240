//! Leases that other programs wrote.

use std::sync::Arc;

use parking_lot::Mutex;

use super::*;

/// Stores a Lease with this `spec`.
async fn store(server: &ApiServer, spec: serde_json::Value) {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "operator"}, "spec": spec,
    });
    let lease = serde_json::from_value(lease).unwrap();
    let created = leases(server).create(&PostParams::default(), &lease).await;
    created.unwrap();
}

/// Proves election/client-go-format, election/release.
#[tokio::test(start_paused = true)]
async fn lease_released_by_client_go_is_free() {
    let server = ApiServer::builder().build();
    let released = json!({
        "holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 4,
        "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z",
    });
    store(&server, released).await;
    let start = Instant::now();
    let term = Replica::new(&server, "a").lead().await;
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(term.transitions(), 5);
    assert_eq!(spec(&server).await["leaseTransitions"], 5);
}

/// Proves election/takeover-after-expiry.
#[tokio::test(start_paused = true)]
async fn newly_observed_lease_lasts_for_its_full_duration() {
    let server = ApiServer::builder().build();
    let abandoned = json!({
        "holderIdentity": "x", "leaseDurationSeconds": 40, "leaseTransitions": 4,
        "acquireTime": "2020-01-01T00:00:00.000000Z", "renewTime": "2020-01-01T00:00:00.000000Z",
    });
    store(&server, abandoned).await;
    let start = Instant::now();
    let term = Replica::new(&server, "a").lead().await;
    assert_eq!(
        start.elapsed(),
        40 * SECOND,
        "for the duration its holder chose"
    );
    assert_eq!(term.transitions(), 5);
    assert_eq!(spec(&server).await["leaseDurationSeconds"], 15);
}

/// Proves election/takeover-after-expiry.
#[tokio::test(start_paused = true)]
async fn candidate_waits_as_long_as_the_holder_chose() {
    for (holder, candidate) in [(60, 15), (15, 60)] {
        let server = ApiServer::builder().build();
        let lease = |seconds: u64| {
            move |election: LeaderElection| election.lease_duration(Duration::from_secs(seconds))
        };
        let mut a = Replica::with(&server, "a", lease(holder));
        let mut b = Replica::with(&server, "b", lease(candidate));
        let term = a.lead().await;
        let (shutdown, start) = (b.shutdown.clone(), Instant::now());
        let standby = tokio::spawn(async move { b.elector.acquire(&shutdown).await });
        sleep(3 * SECOND).await; // The last renewal was at two seconds.
        a.network.send_replace(Network::Down);
        let next = standby.await.unwrap().unwrap();
        assert_eq!(start.elapsed(), Duration::from_secs(2 + holder));
        assert!(next.is_current() && !term.is_current());
        assert_eq!(spec(&server).await["leaseDurationSeconds"], candidate);
    }
}

/// Proves election/client-go-format.
#[tokio::test(start_paused = true)]
async fn fields_of_coordinated_leader_election_are_retained() {
    let server = ApiServer::builder().build();
    let coordinated = json!({
        "holderIdentity": "", "strategy": "OldestEmulationVersion", "preferredHolder": "c",
    });
    store(&server, coordinated).await;
    let retained = async || {
        let spec = spec(&server).await;
        assert_eq!(spec["strategy"], "OldestEmulationVersion");
        assert_eq!(spec["preferredHolder"], "c");
        spec["holderIdentity"].clone()
    };
    let term = Replica::new(&server, "a").lead().await;
    assert_eq!(retained().await, "a");
    sleep(5 * SECOND).await;
    assert_eq!(retained().await, "a");
    term.resign().await;
    assert_eq!(retained().await, "");
}

/// Proves election/release.
#[tokio::test(start_paused = true)]
async fn conflicting_release_is_retried() {
    let server = ApiServer::builder().build();
    let (inner, other) = (server.client(), leases(&server));
    let releases = Arc::new(Mutex::new(0));
    let count = Arc::clone(&releases);
    // Another writer labels the Lease between the read and the write of the first release.
    let service = tower::service_fn(move |request: Request<Body>| {
        let (inner, other, count) = (inner.clone(), other.clone(), Arc::clone(&count));
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let text = String::from_utf8_lossy(&body);
            let releases = text.contains("\"holderIdentity\":\"\"");
            if releases {
                *count.lock() += 1;
                if *count.lock() == 1 {
                    let label = json!({"metadata": {"labels": {"seen": "true"}}});
                    let label = kube::api::Patch::Merge(label);
                    let params = kube::api::PatchParams::default();
                    other.patch("operator", &params, &label).await?;
                }
            }
            inner
                .send(Request::from_parts(parts, Body::from(body)))
                .await
        }
    });
    let client = Client::new(service, "default");
    let election = LeaderElection::new(client, "operator").identity("a");
    let mut elector = election.build().unwrap();
    let term = elector.acquire(&CancellationToken::new()).await.unwrap();
    term.resign().await;
    assert_eq!(*releases.lock(), 2);
    let lease = leases(&server).get("operator").await.unwrap();
    assert_eq!(lease.spec.unwrap().holder_identity.as_deref(), Some(""));
    assert_eq!(lease.metadata.labels.unwrap()["seen"], "true");
}
