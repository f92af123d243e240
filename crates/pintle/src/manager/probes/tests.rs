use pintle_apiserver::ApiServer;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    leader_election::LeaderElection,
    manager::{Builder, Manager},
};

fn parts(builder: Builder) -> (Common, Arc<Control>) {
    let Ok((common, _)) = builder.build().into_groups() else {
        panic!("no valid manager");
    };
    let control = Arc::new(Control::new(&common, &CancellationToken::new()));
    (common, control)
}

/// Proves manager/probes.
#[tokio::test(start_paused = true)]
async fn standby_is_ready_once_started_and_names_the_leader() {
    let client = ApiServer::builder().build().client();
    let election = |identity: &str| {
        let election = LeaderElection::new(client.clone(), "operator").identity(identity);
        election.build().unwrap()
    };
    let mut leading = election("first");
    let shutdown = CancellationToken::new();
    let term = leading.acquire(&shutdown).await.unwrap();
    let mut standby = election("second");
    let leaderships = [leading.leadership().clone(), standby.leadership().clone()];
    let waiting = tokio::spawn(async move { standby.acquire(&CancellationToken::new()).await });
    tokio::time::sleep(Duration::from_secs(1)).await;

    let (common, control) = parts(Manager::builder("operator", client));
    let stop = CancellationToken::new();
    common.informers.start(&stop);
    let probes = probes(&common, &control, &leaderships);
    assert_eq!(probes.not_ready(), ["startup: starting"]);
    control.started.store(true, Ordering::Relaxed);
    assert!(probes.not_ready().is_empty());
    assert!(probes.not_alive().is_empty());
    assert_eq!(describe(&leaderships[0]), "leading, renewed 1.0 s ago");
    assert_eq!(describe(&leaderships[1]), "standby, first leads");
    waiting.abort();
    drop(term);
}

/// Proves manager/probes.
#[tokio::test(start_paused = true)]
async fn checks_of_the_program_are_included() {
    let client = ApiServer::builder().build().client();
    let builder = Manager::builder("operator", client)
        .ready_check("database", || Err("not connected".to_owned()))
        .alive_check("disk", || panic!("out of inodes"));
    let (common, control) = parts(builder);
    common.informers.start(&CancellationToken::new());
    control.started.store(true, Ordering::Relaxed);
    let probes = probes(&common, &control, &[]);
    assert_eq!(probes.not_ready(), ["database: not connected"]);
    assert_eq!(
        probes.not_alive(),
        ["disk: the check panicked: out of inodes"]
    );
}
