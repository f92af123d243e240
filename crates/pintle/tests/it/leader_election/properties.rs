//! Terms never overlap, whatever the network does.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use pintle_apiserver::ApiServer;
use proptest::prelude::*;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{MILLISECOND, Network, Replica, SECOND};

/// A new state of one replica's network, and the time until the next fault.
#[derive(Clone, Debug)]
struct Fault {
    replica: usize,
    network: Network,
    lasts: Duration,
}

fn faults() -> impl Strategy<Value = Vec<Fault>> {
    let network = prop_oneof![
        3 => Just(Network::Up),
        3 => Just(Network::Down),
        2 => Just(Network::Deaf),
        2 => Just(Network::DeafToWrites),
        2 => Just(Network::Stuck),
        1 => Just(Network::NoWatch),
    ];
    let fault = (0..3_usize, network, 1..20_000_u64).prop_map(|(replica, network, millis)| Fault {
        replica,
        network,
        lasts: Duration::from_millis(millis),
    });
    prop::collection::vec(fault, 1..40)
}

/// The terms of all replicas, as intervals in which a write can start.
type Terms = Arc<Mutex<Vec<(usize, Instant, Instant)>>>;

/// Leads whenever it can, and records the intervals in which a write could start.
async fn keep_leading(number: usize, mut replica: Replica, terms: Terms) {
    while let Some(term) = replica.elector.acquire(&replica.shutdown).await {
        let start = Instant::now();
        let mut end = start;
        while term.is_current() && !term.ended().is_cancelled() {
            end = Instant::now() + term.remaining();
            // Resign from some terms, so that hand-overs are exercised too.
            if start.elapsed() > 45 * SECOND {
                end = Instant::now();
                break;
            }
            sleep(100 * MILLISECOND).await;
        }
        terms.lock().push((number, start, end));
        term.resign().await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Proves election/one-leader.
    #[test]
    fn terms_never_overlap_under_network_faults(faults in faults()) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let server = ApiServer::builder().seed(1).build();
            let terms = Terms::default();
            let (mut networks, shutdown) = (Vec::new(), CancellationToken::new());
            let mut tasks = tokio::task::JoinSet::new();
            for number in 0..3 {
                let mut replica = Replica::new(&server, &format!("replica-{number}"));
                replica.shutdown = shutdown.clone();
                networks.push(replica.network.clone());
                tasks.spawn(keep_leading(number, replica, Arc::clone(&terms)));
            }
            for fault in faults {
                networks[fault.replica].send_replace(fault.network);
                sleep(fault.lasts).await;
            }
            for network in &networks {
                network.send_replace(Network::Up);
            }
            sleep(Duration::from_mins(2)).await;
            shutdown.cancel();
            while tasks.join_next().await.is_some() {}
            let mut terms = std::mem::take(&mut *terms.lock());
            terms.sort_by_key(|(_, start, _)| *start);
            assert!(!terms.is_empty(), "no replica ever led");
            for pair in terms.windows(2) {
                assert!(pair[0].2 <= pair[1].1, "{:?} and {:?} overlap", pair[0], pair[1]);
            }
        });
    }
}
