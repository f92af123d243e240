//! Replicas of Pintle and of client-go, each a separate process, compete for one Lease while they
//! are stopped, killed and paused, the API server restarts and their wall clocks differ by hours.
//!
//! Every replica writes continuously while it leads. Afterwards the server's audit log shows which
//! replica wrote when.

mod audit;
mod replicas;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::ListParams;
use pintle::clock::Clock;
use real_tests::{TestNamespace, audit_log, eventually};
use rustix::process::Signal;

use audit::History;
use replicas::{Kind, LEASE, LEASE_DURATION, Replica};

const EAST: Kind = Kind::Pintle { skew_hours: 5 };
const WEST: Kind = Kind::Pintle { skew_hours: -7 };
const GO: Kind = Kind::ClientGo { releases: true };
/// Does not release its Lease: after a pause, client-go can release its successor's.
const GO_WITHOUT_RELEASE: Kind = Kind::ClientGo { releases: false };

/// The replicas that compete for the Lease.
struct Program<'a> {
    namespace: &'a TestNamespace,
    replicas: Vec<Replica>,
    started: usize,
}

impl Program<'_> {
    /// Starts a replica under a name that no earlier process had.
    async fn start(&mut self, kind: Kind) {
        self.started += 1;
        let name = match kind {
            Kind::Pintle { .. } => "pintle",
            Kind::ClientGo { .. } => "client-go",
        };
        let identity = format!("{name}-{}", self.started);
        let replica = Replica::start(identity, kind, &self.namespace.name()).await;
        self.replicas.push(replica);
    }

    fn replica(&self, identity: &str) -> &Replica {
        let found = self.replicas.iter().find(|one| one.identity == identity);
        found.unwrap_or_else(|| panic!("{identity} leads but is not running"))
    }

    fn take(&mut self, identity: &str) -> Replica {
        let found = self
            .replicas
            .iter()
            .position(|one| one.identity == identity);
        self.replicas.remove(found.unwrap())
    }

    /// Waits until a replica other than `former` leads and writes; returns its identity.
    async fn leader_after(&self, former: &str) -> String {
        let leases = self.namespace.api::<Lease>();
        let leader = eventually("another replica to lead", async || {
            let spec = leases.get_opt(LEASE).await.unwrap()?.spec?;
            let holder = spec.holder_identity?;
            (!holder.is_empty() && holder != former).then_some(holder)
        })
        .await;
        self.writes(&leader, 5).await;
        leader
    }

    async fn leader(&self) -> String {
        self.leader_after("").await
    }

    /// Waits until a replica has made this many more writes.
    async fn writes(&self, identity: &str, times: usize) {
        let maps = self.namespace.api::<ConfigMap>();
        let prefix = format!("{identity}.");
        let count = async || {
            let maps = maps.list_metadata(&ListParams::default()).await.unwrap();
            let names = maps.items.iter().map(kube::ResourceExt::name_any);
            names.filter(|name| name.starts_with(&prefix)).count()
        };
        let before = count().await;
        eventually("the leader to write", async || {
            (count().await >= before + times).then_some(())
        })
        .await;
    }

    /// Terminates a replica; returns the time of the request.
    async fn terminate(&mut self, identity: &str) -> Timestamp {
        let replica = self.take(identity);
        let at = replica.signal(Signal::TERM);
        replica.exits().await;
        at
    }

    /// Returns the leader once it is one of Pintle's replicas. Replaces client-go replicas that
    /// lead first.
    async fn pintle_leader(&mut self) -> String {
        loop {
            let leader = self.leader().await;
            let kind = self.replica(&leader).kind;
            if self.replica(&leader).is_pintle() {
                return leader;
            }
            self.terminate(&leader).await;
            self.leader_after(&leader).await;
            self.start(kind).await;
        }
    }

    async fn history(&self) -> History {
        let maps = self.namespace.api::<ConfigMap>();
        let maps = maps.list_metadata(&ListParams::default()).await.unwrap();
        let revision = |version: String| version.parse::<u64>().unwrap();
        let revisions: BTreeMap<String, u64> = maps
            .iter()
            .map(|map| (map.name_any(), revision(map.resource_version().unwrap())))
            .collect();
        let log = std::fs::read_to_string(audit_log()).unwrap();
        History::read(&log, &self.namespace.name(), LEASE, |name| {
            revisions.get(name).copied()
        })
    }
}

/// Proves election/one-leader, election/gate, election/client-go-format.
#[tokio::test]
async fn only_the_lease_holder_writes_under_faults() {
    let (namespace, control_plane) = TestNamespace::alone().await;
    let mut program = Program {
        namespace: &namespace,
        replicas: Vec::new(),
        started: 0,
    };
    program.start(GO).await;
    program.start(EAST).await;
    program.start(WEST).await;

    // Takeovers from client-go, and from replicas of Pintle that are terminated, killed and paused.
    let first = program.leader().await;
    assert_eq!(first, "client-go-1");
    let from_go = program.terminate(&first).await;
    program.leader_after(&first).await;
    program.start(GO).await;

    let terminated = program.pintle_leader().await;
    let kind = program.replica(&terminated).kind;
    let at_sigterm = program.terminate(&terminated).await;
    program.leader_after(&terminated).await;
    program.start(kind).await;

    let killed = program.pintle_leader().await;
    let at_sigkill = program.replica(&killed).signal(Signal::KILL);
    program.leader_after(&killed).await;
    let kind = program.take(&killed).kind;
    program.start(kind).await;

    let paused = program.pintle_leader().await;
    let terms = program.replica(&paused).ended();
    let at_sigstop = program.replica(&paused).signal(Signal::STOP);
    let successor = program.leader_after(&paused).await;
    program.replica(&paused).signal(Signal::CONT);
    program.replica(&paused).says("ended", terms + 1).await;
    program.writes(&successor, 5).await;

    program.pintle_leader().await;
    let at_restart = Clock::system().now();
    control_plane.restart_api_server().await;
    let back = program.leader().await;
    program.writes(&back, 5).await;
    let at_recovery = Clock::system().now();

    // A replica of client-go leads, is paused past its lease, and wakes up.
    let others: Vec<_> = program
        .replicas
        .iter()
        .map(|one| one.identity.clone())
        .collect();
    program.start(GO_WITHOUT_RELEASE).await;
    for other in others {
        program.terminate(&other).await;
    }
    let paused_go = program.leader().await;
    assert!(!program.replica(&paused_go).is_pintle());
    program.start(EAST).await;
    program.start(WEST).await;
    let at_go_sigstop = program.replica(&paused_go).signal(Signal::STOP);
    let successor = program.leader_after(&paused_go).await;
    program.replica(&paused_go).signal(Signal::CONT);
    program.replica(&paused_go).says("ended", 1).await;
    program.writes(&successor, 5).await;
    while let Some(last) = program.replicas.pop() {
        last.signal(Signal::TERM);
        last.exits().await;
    }

    let history = program.history().await;
    let report = |what: &str, (led, wrote): (SignedDuration, SignedDuration)| {
        println!(
            "{what:<32} leads after {:>5} ms, writes after {:>5} ms",
            led.as_millis(),
            wrote.as_millis()
        );
        (led, wrote)
    };
    report(
        "SIGTERM, client-go to Pintle",
        history.takeover(&first, from_go),
    );
    let (_, wrote) = report("SIGTERM, Pintle", history.takeover(&terminated, at_sigterm));
    assert!(
        wrote < SignedDuration::from_secs(1),
        "hand-over took {wrote:?}"
    );
    // The candidate's own requests take time too.
    let within = SignedDuration::try_from(LEASE_DURATION + Duration::from_secs(1)).unwrap();
    for (what, former, at) in [
        ("SIGKILL, Pintle", &killed, at_sigkill),
        ("SIGSTOP, Pintle", &paused, at_sigstop),
        ("SIGSTOP, client-go", &paused_go, at_go_sigstop),
    ] {
        let (led, _) = report(what, history.takeover(former, at));
        assert!(led < within, "{what}: {led:?}");
    }
    let outage = history.longest_gap(at_restart, at_recovery);
    println!("API server restart: no write for {} ms", outage.as_millis());

    check_clocks(&history);
    check_writers(&history, &paused, &paused_go);
}

/// Asserts that the wall clocks of Pintle's replicas are hours off, some fast and some slow.
fn check_clocks(history: &History) {
    let hours = |change: &audit::Change| change.renewed.duration_since(change.at).as_hours();
    let of_pintle = |change: &&audit::Change| change.holder.starts_with("pintle");
    let skews: Vec<i64> = history
        .changes
        .iter()
        .filter(of_pintle)
        .map(hours)
        .collect();
    assert!(skews.iter().all(|hours| hours.abs() >= 4), "{skews:?}");
    assert!(skews.iter().any(|hours| *hours > 0), "{skews:?}");
    assert!(skews.iter().any(|hours| *hours < 0), "{skews:?}");
}

/// Asserts that the writer of every commit held the Lease, with the exceptions below.
#[allow(clippy::print_stdout, reason = "measurements of a test")]
fn check_writers(history: &History, paused: &str, paused_go: &str) {
    let mut counts = BTreeMap::<&str, (usize, usize)>::new();
    for write in &history.writes {
        counts.entry(&write.writer).or_default().0 += 1;
    }
    for write in history.outside_a_term() {
        counts.entry(&write.writer).or_default().1 += 1;
    }
    for (writer, (writes, outside)) in &counts {
        println!("{writer:<16} {writes:>4} writes, {outside} outside a term");
        // Without a gate, client-go writes after a pause until a renewal fails. With one, a request
        // that is between the check and the network during the pause can be late: at most one,
        // because this replica sends one at a time.
        let allowed = match *writer {
            writer if writer == paused_go => usize::MAX,
            writer if writer == paused => 1,
            _ => 0,
        };
        assert!(
            *outside <= allowed,
            "{writer} wrote {outside} times outside a term"
        );
    }
    assert!(
        counts.len() >= 5 && history.writes.len() >= 100,
        "{counts:?}"
    );
}
