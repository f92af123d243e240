//! Replicas that compete for one Lease on the embedded API server, in virtual time.

mod foreign_leases;
mod many_terms;
mod properties;
mod wall_clocks;

use std::time::Duration;

use http::{Request, Response};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::ConfigMap};
use kube::{
    Api, Client,
    api::{DeleteParams, ObjectMeta, PostParams},
    client::Body,
};
use pintle::{
    clock::{Clock, Rng},
    leader_election::{Elector, InvalidElection, LeaderElection, NotLeading, Term},
    metrics::Metrics,
};
use pintle_apiserver::ApiServer;
use serde_json::json;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

/// The state of one replica's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    Up,
    /// Requests do not arrive, and responses to earlier ones are lost.
    Down,
    /// Requests arrive, but their responses are lost.
    Deaf,
    /// The same, for writes only.
    DeafToWrites,
    /// Requests arrive when the network is up again, even if the sender has timed out.
    Stuck,
    /// Watches are forbidden.
    NoWatch,
}

/// One process of a replicated program.
struct Replica {
    network: watch::Sender<Network>,
    client: Client,
    elector: Elector,
    shutdown: CancellationToken,
}

impl Replica {
    fn new(server: &ApiServer, identity: &str) -> Self {
        Self::with(server, identity, |election| election)
    }

    fn with(
        server: &ApiServer,
        identity: &str,
        settings: impl FnOnce(LeaderElection) -> LeaderElection,
    ) -> Self {
        let network = watch::Sender::new(Network::Up);
        let client = through(&network, &server.client());
        let start: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let election = LeaderElection::new(client.clone(), "operator")
            .identity(identity)
            .clock(Clock::starting_at(start))
            .rng(Rng::with_seed(1));
        Self {
            network,
            client,
            elector: settings(election).build().unwrap(),
            shutdown: CancellationToken::new(),
        }
    }

    fn gated(&self) -> Api<ConfigMap> {
        Api::default_namespaced(self.elector.leadership().gate(&self.client))
    }

    async fn lead(&mut self) -> Term {
        let term = self.elector.acquire(&self.shutdown);
        let term = timeout(Duration::from_mins(5), term).await;
        term.expect("elected within five minutes").unwrap()
    }

    /// Returns the term if the replica is elected within `wait`.
    async fn leads_within(&mut self, wait: Duration) -> Option<Term> {
        timeout(wait, self.elector.acquire(&self.shutdown))
            .await
            .ok()?
    }
}

/// Returns a client whose requests pass `network`.
fn through(network: &watch::Sender<Network>, client: &Client) -> Client {
    let (states, inner) = (network.subscribe(), client.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (mut states, inner) = (states.clone(), inner.clone());
        async move {
            let state = *states.borrow_and_update();
            let is_watch = request
                .uri()
                .query()
                .is_some_and(|q| q.contains("watch=true"));
            let is_read = request.method() == http::Method::GET;
            match state {
                Network::Down => std::future::pending().await,
                Network::Stuck => {
                    let arrival = tokio::spawn(async move {
                        let up = states.wait_for(|state| *state == Network::Up).await;
                        drop(up);
                        inner.send(request).await
                    });
                    arrival.await.expect("no panic")
                }
                Network::NoWatch if is_watch => Ok(forbidden()),
                _ => {
                    let answer = inner.send(request).await;
                    let state = *states.borrow();
                    match state {
                        Network::Up | Network::NoWatch | Network::Stuck => {}
                        Network::DeafToWrites if is_read => {}
                        _ => std::future::pending().await,
                    }
                    answer
                }
            }
        }
    });
    Client::new(service, client.default_namespace())
}

fn forbidden() -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
        "reason": "Forbidden", "code": 403, "message": "leases is forbidden"});
    let body = Body::from(status.to_string().into_bytes());
    Response::builder().status(403).body(body).unwrap()
}

fn map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

async fn write(maps: &Api<ConfigMap>, name: &str) -> Result<(), Option<NotLeading>> {
    let written = maps.create(&PostParams::default(), &map(name)).await;
    written.map(drop).map_err(|error| NotLeading::find(&error))
}

fn leases(server: &ApiServer) -> Api<Lease> {
    Api::default_namespaced(server.client())
}

async fn spec(server: &ApiServer) -> serde_json::Value {
    let lease = leases(server).get("operator").await.unwrap();
    serde_json::to_value(lease.spec).unwrap()
}

/// Proves election/client-go-format.
#[tokio::test(start_paused = true)]
async fn lease_is_written_as_client_go_writes_it() {
    let server = ApiServer::builder().build();
    let mut a = Replica::with(&server, "a", |election| election.label("team", "shop"));
    let term = a.lead().await;
    let expected = json!({
        "holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 0,
        "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z",
    });
    assert_eq!(spec(&server).await, expected);
    sleep(5 * SECOND).await;
    let renewed = spec(&server).await;
    assert_eq!(renewed["acquireTime"], expected["acquireTime"]);
    assert_eq!(renewed["renewTime"], "2026-01-01T00:00:04.000000Z");
    let lease = leases(&server).get("operator").await.unwrap();
    assert_eq!(lease.metadata.labels.unwrap()["team"], "shop");
    term.resign().await;
    let released = json!({
        "holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 0,
        "acquireTime": "2026-01-01T00:00:05.000000Z", "renewTime": "2026-01-01T00:00:05.000000Z",
    });
    assert_eq!(spec(&server).await, released);
}

/// Proves election/one-leader, election/release.
#[tokio::test(start_paused = true)]
async fn standby_takes_over_as_soon_as_the_leader_resigns() {
    let server = ApiServer::builder().build();
    let (mut a, mut b) = (Replica::new(&server, "a"), Replica::new(&server, "b"));
    let term = a.lead().await;
    let leadership = b.elector.leadership().clone();
    let leader = tokio::spawn(async move { leadership.new_leader().await });
    tokio::task::yield_now().await;
    assert!(b.leads_within(Duration::from_mins(10)).await.is_none());
    assert_eq!(leader.await.unwrap().as_deref(), Some("a"));
    assert!(a.elector.leadership().is_leader() && !b.elector.leadership().is_leader());
    assert_eq!(b.elector.leadership().leader().as_deref(), Some("a"));

    let (shutdown, start) = (b.shutdown.clone(), Instant::now());
    let standby = tokio::spawn(async move { b.elector.acquire(&shutdown).await });
    sleep(SECOND).await;
    term.resign().await;
    let next = standby.await.unwrap().unwrap();
    assert_eq!(start.elapsed(), SECOND, "hand-over is immediate");
    assert_eq!(next.transitions(), 1);
    assert!(next.is_current());
}

/// Proves election/takeover-after-expiry.
#[tokio::test(start_paused = true)]
async fn crashed_leader_is_replaced_after_one_lease_duration() {
    let server = ApiServer::builder().build();
    let (mut a, mut b) = (Replica::new(&server, "a"), Replica::new(&server, "b"));
    let term = a.lead().await;
    let (shutdown, start) = (b.shutdown.clone(), Instant::now());
    let standby = tokio::spawn(async move { b.elector.acquire(&shutdown).await });
    sleep(3 * SECOND).await; // The last renewal was at two seconds.
    a.network.send_replace(Network::Down);
    let next = standby.await.unwrap().unwrap();
    assert_eq!(start.elapsed(), 17 * SECOND);
    assert!(next.is_current() && !term.is_current());
}

/// Proves election/release.
#[tokio::test(start_paused = true)]
async fn candidate_that_lost_a_race_is_ready_for_the_next() {
    let server = ApiServer::builder().build();
    let mut a = Replica::new(&server, "a");
    let (mut b, mut c) = (Replica::new(&server, "b"), Replica::new(&server, "c"));
    let term = a.lead().await;
    let stop = b.shutdown.clone();
    let b = tokio::spawn(async move { b.elector.acquire(&stop).await });
    let stop = c.shutdown.clone();
    let c = tokio::spawn(async move { c.elector.acquire(&stop).await });
    sleep(SECOND).await;
    // Both see the release at the same time, and one of their claims is rejected.
    term.resign().await;
    sleep(MILLISECOND).await;
    let (winner, loser) = if b.is_finished() { (b, c) } else { (c, b) };
    let start = Instant::now();
    winner.await.unwrap().unwrap().resign().await;
    assert_eq!(loser.await.unwrap().unwrap().transitions(), 2);
    assert_eq!(start.elapsed(), Duration::ZERO);
}

/// Proves election/takeover-after-expiry.
#[tokio::test(start_paused = true)]
async fn deleted_lease_is_not_taken_before_it_would_expire() {
    // A polling candidate finds no Lease; a watching one sees the deletion.
    for network in [Network::Up, Network::NoWatch] {
        let server = ApiServer::builder().build();
        let (mut a, mut b) = (Replica::new(&server, "a"), Replica::new(&server, "b"));
        b.network.send_replace(network);
        let term = a.lead().await;
        let (shutdown, start) = (b.shutdown.clone(), Instant::now());
        let standby = tokio::spawn(async move { b.elector.acquire(&shutdown).await });
        sleep(9 * SECOND).await; // The last renewal was at eight seconds.
        a.network.send_replace(Network::Down);
        sleep(5 * SECOND).await; // Long enough for a poll to see that renewal.
        let params = DeleteParams::default();
        leases(&server).delete("operator", &params).await.unwrap();
        let next = standby.await.unwrap().unwrap();
        assert!(start.elapsed() >= 23 * SECOND, "{network:?}");
        assert!(next.is_current() && !term.is_current());
    }
}

/// Proves election/gate, election/one-leader.
#[tokio::test(start_paused = true)]
async fn leader_that_cannot_renew_stops_before_its_lease_ends() {
    let server = ApiServer::builder().build();
    let mut a = Replica::new(&server, "a");
    let maps = a.gated();
    assert_eq!(write(&maps, "early").await, Err(Some(NotLeading::NotSent)));
    let term = a.lead().await;
    write(&maps, "first").await.unwrap();

    let lease = through(&a.network, &server.client());
    let other = Api::<ConfigMap>::default_namespaced(a.elector.leadership().gate(&lease));
    a.network.send_replace(Network::Down);
    sleep(9 * SECOND).await;
    assert!(term.is_current() && !term.ended().is_cancelled());
    let start = Instant::now();
    // The request is stuck in the network when the term ends.
    assert_eq!(
        write(&other, "late").await,
        Err(Some(NotLeading::Cancelled))
    );
    assert_eq!(start.elapsed(), SECOND);
    assert!(!term.is_current());
    term.ended().cancelled().await;
    assert_eq!(write(&maps, "later").await, Err(Some(NotLeading::NotSent)));

    // Reads and dry runs pass.
    a.network.send_replace(Network::Up);
    maps.get("first").await.unwrap();
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    maps.create(&dry, &map("dry")).await.unwrap();
    // A GET can act like a write, and a dry run of a deletion is requested in its body.
    let exec = Request::get("/api/v1/namespaces/default/pods/web/exec?command=rm");
    let exec = exec.body(Vec::new()).unwrap();
    let exec = maps.clone().into_client().request_text(exec).await;
    assert_eq!(
        NotLeading::find(&exec.unwrap_err()),
        Some(NotLeading::NotSent)
    );
    let dry_delete = maps
        .delete("first", &DeleteParams::default().dry_run())
        .await;
    assert_eq!(
        NotLeading::find(&dry_delete.unwrap_err()),
        Some(NotLeading::NotSent)
    );
    let refused = maps
        .delete("first", &DeleteParams::default())
        .await
        .unwrap_err();
    assert_eq!(NotLeading::find(&refused), Some(NotLeading::NotSent));
    assert!(refused.to_string().contains("not the leader"), "{refused}");
}

/// Proves election/gate.
#[tokio::test(start_paused = true)]
async fn write_of_a_former_term_is_cancelled_in_the_next() {
    let server = ApiServer::builder().build();
    let mut a = Replica::new(&server, "a");
    let slow = watch::Sender::new(Network::Down);
    let client = a
        .elector
        .leadership()
        .gate(&through(&slow, &server.client()));
    let term = a.lead().await;
    let maps = Api::<ConfigMap>::default_namespaced(client);
    let hanging = tokio::spawn(async move { write(&maps, "slow").await });
    sleep(SECOND).await;
    term.resign().await;
    let term = a.lead().await;
    assert!(term.is_current());
    assert_eq!(hanging.await.unwrap(), Err(Some(NotLeading::Cancelled)));
}

/// Proves manager/terms.
#[tokio::test(start_paused = true)]
async fn lost_leader_competes_again() {
    let server = ApiServer::builder().build();
    let metrics = Metrics::new();
    let mut a = Replica::with(&server, "a", |election| election.metrics(&metrics));
    for _ in 0..3 {
        let term = a.lead().await;
        assert_eq!(
            term.transitions(),
            0,
            "it was never held by another replica"
        );
        assert!(
            metrics
                .encode()
                .contains("leader_election_master_status{name=\"operator\"} 1")
        );
        a.network.send_replace(Network::Down);
        term.ended().cancelled().await;
        assert!(
            metrics
                .encode()
                .contains("leader_election_master_status{name=\"operator\"} 0")
        );
        a.network.send_replace(Network::Up);
    }
    assert!(
        metrics
            .encode()
            .contains("leader_election_lost_total{name=\"operator\"} 3")
    );
}

/// Proves metrics/names.
#[tokio::test(start_paused = true)]
async fn lease_age_is_scraped_from_the_leader() {
    let (server, metrics) = (
        ApiServer::builder().build(),
        [Metrics::new(), Metrics::new()],
    );
    let replica = |identity: &str, metrics: &Metrics| {
        Replica::with(&server, identity, |election| election.metrics(metrics))
    };
    let age = |metrics: &Metrics| -> Option<f64> {
        let text = metrics.encode();
        let name = "leader_election_lease_age_seconds{name=\"operator\"} ";
        let age = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(age.parse().unwrap())
    };
    let (mut a, mut b) = (replica("a", &metrics[0]), replica("b", &metrics[1]));
    assert_eq!(age(&metrics[0]), None);
    let term = a.lead().await;
    assert!(b.leads_within(SECOND * 3).await.is_none());
    assert_eq!(age(&metrics[0]), Some(1.0), "renewed a second ago");
    assert_eq!(age(&metrics[1]), None, "a standby renews nothing");
    a.network.send_replace(Network::Down);
    sleep(SECOND * 5).await;
    assert_eq!(age(&metrics[0]), Some(6.0));
    term.ended().cancelled().await;
    assert_eq!(age(&metrics[0]), None);
}

/// Proves election/takeover-after-expiry.
#[tokio::test(start_paused = true)]
async fn candidate_that_may_not_watch_polls() {
    let server = ApiServer::builder().build();
    let (mut a, mut b) = (Replica::new(&server, "a"), Replica::new(&server, "b"));
    b.network.send_replace(Network::NoWatch);
    let term = a.lead().await;
    let (shutdown, start) = (b.shutdown.clone(), Instant::now());
    let standby = tokio::spawn(async move { b.elector.acquire(&shutdown).await });
    sleep(60 * SECOND).await;
    term.resign().await;
    assert!(standby.await.unwrap().is_some());
    assert!(start.elapsed() < 65 * SECOND);
}

/// Proves election/release.
#[tokio::test(start_paused = true)]
async fn shutdown_does_not_release_a_successors_lease() {
    let server = ApiServer::builder().build();
    let (mut a, mut b) = (Replica::new(&server, "a"), Replica::new(&server, "b"));
    // The claim succeeds, but its response is lost; then the replica is cut off.
    a.network.send_replace(Network::DeafToWrites);
    let (network, shutdown) = (a.network.clone(), a.shutdown.clone());
    let acquiring = tokio::spawn(async move { a.elector.acquire(&a.shutdown).await.is_none() });
    sleep(SECOND).await;
    assert_eq!(spec(&server).await["holderIdentity"], "a");
    network.send_replace(Network::Down);
    let successor = b.lead().await;
    network.send_replace(Network::Up);
    shutdown.cancel();
    assert!(acquiring.await.unwrap());
    assert!(successor.is_current());
    assert_eq!(spec(&server).await["holderIdentity"], "b");
}

/// Proves election/release.
#[tokio::test(start_paused = true)]
async fn renewal_in_flight_does_not_undo_a_release() {
    for network in [Network::Stuck, Network::DeafToWrites] {
        let server = ApiServer::builder().build();
        let mut a = Replica::new(&server, "a");
        let term = a.lead().await;
        a.network.send_replace(network);
        sleep(3 * SECOND).await; // The second renewal is in flight.
        a.network.send_replace(Network::Up);
        let start = Instant::now();
        term.resign().await;
        sleep(SECOND).await;
        assert_eq!(spec(&server).await["holderIdentity"], "", "{network:?}");
        assert_eq!(start.elapsed(), SECOND, "{network:?}");
    }
}

/// Proves election/release.
#[tokio::test(start_paused = true)]
async fn term_lasts_through_shutdown_until_it_is_resigned() {
    let server = ApiServer::builder().build();
    let mut a = Replica::new(&server, "a");
    let (term, maps) = (a.lead().await, a.gated());
    a.shutdown.cancel();
    term.ended().cancelled().await;
    sleep(Duration::from_mins(1)).await;
    write(&maps, "last").await.unwrap();
    term.resign().await;
    assert_eq!(
        write(&maps, "too-late").await,
        Err(Some(NotLeading::NotSent))
    );
    assert!(a.elector.acquire(&a.shutdown).await.is_none());
}

/// Proves election/release.
#[tokio::test(start_paused = true)]
async fn shutdown_releases_a_lease_whose_claim_got_no_response() {
    let server = ApiServer::builder().build();
    let mut a = Replica::new(&server, "a");
    a.network.send_replace(Network::DeafToWrites);
    let (network, shutdown) = (a.network.clone(), a.shutdown.clone());
    let acquiring = tokio::spawn(async move { a.elector.acquire(&a.shutdown).await.is_none() });
    // The request has timed out, and the next one has not been sent yet.
    sleep(6 * SECOND).await;
    assert_eq!(spec(&server).await["holderIdentity"], "a");
    network.send_replace(Network::Up);
    shutdown.cancel();
    assert!(acquiring.await.unwrap());
    assert_eq!(spec(&server).await["holderIdentity"], "");
}

/// Proves election/checked-settings.
#[tokio::test]
async fn settings_that_cannot_work_are_rejected() {
    let client = ApiServer::builder().build().client();
    let build = |change: fn(LeaderElection) -> LeaderElection| {
        change(LeaderElection::new(client.clone(), "x"))
            .build()
            .unwrap_err()
    };
    assert_eq!(build(|e| e.identity("")), InvalidElection::Identity);
    assert_eq!(
        build(|e| e.retry_period(Duration::ZERO)),
        InvalidElection::RetryPeriod
    );
    assert!(matches!(
        build(|e| e.lease_duration(10 * SECOND)),
        InvalidElection::LeaseDuration { .. }
    ));
    assert!(matches!(
        build(|e| e.renew_deadline(2 * SECOND)),
        InvalidElection::RenewDeadline { .. }
    ));
    let uneven = Duration::from_millis(15_500);
    let refused = LeaderElection::new(client.clone(), "x")
        .lease_duration(uneven)
        .build();
    assert_eq!(refused.unwrap_err(), InvalidElection::WholeSeconds(uneven));
    assert_eq!(
        LeaderElection::new(client, "").build().unwrap_err(),
        InvalidElection::Name
    );
}
