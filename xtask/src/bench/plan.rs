//! Defines the benchmarks, their cases and sizes.

use std::time::Duration;

use clap::ValueEnum;

use super::program::Cores;
use super::samples::Figure;

/// The compared libraries, in the tables' order.
pub(super) const PEERS: [&str; 4] = ["pintle", "client-go", "controller-runtime", "kube-rs"];

/// A benchmark that `cargo xtask bench` can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum Work {
    /// List and watch all Pods into an indexed cache
    Sync,
    /// End the watch of a full cache, and relist
    Relist,
    /// Updates from the watch to the handlers
    Watch,
    /// Decoded updates through the cache to the handlers
    Pipeline,
    /// Read a full cache by index and by selector
    Reads,
    /// Keys through the queue
    Queue,
    /// No-op reconciles
    Reconcile,
    /// Foo controllers, end to end on a real control plane
    Foo,
    /// API servers: start, memory, writes, lists, watches
    Apiserver,
    /// Deployments to Pods: the controller manager's loops
    Cluster,
}

impl Work {
    pub(super) const ALL: [Self; 10] = [
        Self::Sync,
        Self::Relist,
        Self::Watch,
        Self::Pipeline,
        Self::Reads,
        Self::Queue,
        Self::Reconcile,
        Self::Foo,
        Self::Apiserver,
        Self::Cluster,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Relist => "relist",
            Self::Watch => "watch",
            Self::Pipeline => "pipeline",
            Self::Reads => "reads",
            Self::Queue => "queue",
            Self::Reconcile => "reconcile",
            Self::Foo => "foo",
            Self::Apiserver => "apiserver",
            Self::Cluster => "cluster",
        }
    }

    /// Returns the title in the report.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Sync => {
                "First sync: list and watch all Pods into a cache indexed by namespace and node"
            }
            Self::Relist => "Relist: the watch of a full cache fails with 410, forcing a full list",
            Self::Watch => "Watch: updates from the network to every handler",
            Self::Pipeline => {
                "Pipeline: decoded updates through delta FIFO and cache to every handler, no network"
            }
            Self::Reads => "Cache reads: small Pods, twenty per node",
            Self::Queue => "Queue: add, get, done",
            Self::Reconcile => "No-op reconciles",
            Self::Foo => "Foo controllers, end to end on a real control plane",
            Self::Apiserver => "API servers",
            Self::Cluster => "Workloads to Pods: the controller manager's loops",
        }
    }

    pub(super) fn rounds(self, quick: bool) -> u32 {
        match self {
            _ if quick => 1,
            // These take minutes each, so one or two rounds must suffice; the report states the
            // number.
            Self::Cluster => 1,
            Self::Foo | Self::Apiserver => 2,
            Self::Relist | Self::Watch | Self::Reads | Self::Reconcile => 3,
            Self::Sync | Self::Pipeline | Self::Queue => 5,
        }
    }

    /// Returns the rows of the table for each case.
    pub(super) fn figures(self) -> &'static [(&'static str, Figure)] {
        const SERVER: (&str, Figure) = ("server CPU, s", Figure::Raw("server_cpu_s", 1.0));
        const WALL: (&str, Figure) = ("wall, s", Figure::Raw("wall_s", 1.0));
        const PEAK: (&str, Figure) = ("peak memory, MiB", Figure::Raw("peak_kib", 1.0 / 1024.0));
        const STEADY: (&str, Figure) =
            ("memory after, MiB", Figure::Raw("steady_kib", 1.0 / 1024.0));
        match self {
            Self::Sync => &[
                ("CPU per Pod, µs", Figure::CpuPerCount),
                ("memory per Pod, KB", Figure::MemoryPerObject),
                (
                    "memory per Pod after a forced collection (Go) or malloc_trim (kube-rs), KB",
                    Figure::LeastPerObject,
                ),
                PEAK,
                STEADY,
                ("peak ÷ memory after", Figure::PeakOverSteady),
                ("bytes received per Pod", Figure::BytesPerCount),
                SERVER,
                WALL,
            ],
            Self::Relist => &[
                ("peak ÷ memory before", Figure::RelistPeak),
                (
                    "memory before, MiB",
                    Figure::Raw("steady_before_kib", 1.0 / 1024.0),
                ),
                PEAK,
                ("CPU per Pod, µs", Figure::CpuPerCount),
                SERVER,
                WALL,
            ],
            Self::Watch => &[
                ("CPU per event, µs", Figure::CpuPerCount),
                ("server CPU, s", Figure::Raw("server_cpu_s", 1.0)),
                WALL,
            ],
            Self::Pipeline => &[("CPU per event, µs", Figure::CpuPerCount), WALL],
            Self::Reads => &[
                ("by index, 20 objects, µs", Figure::Raw("by_index_ns", 1e-3)),
                (
                    "by index, 20 objects, without copies, µs",
                    Figure::Raw("by_index_uncopied_ns", 1e-3),
                ),
                (
                    "the same 20 by filtering all objects, µs",
                    Figure::Raw("by_filter_ns", 1e-3),
                ),
                ("by selector, ms", Figure::Raw("selector_ns", 1e-6)),
                (
                    "by selector, without copies, ms",
                    Figure::Raw("selector_uncopied_ns", 1e-6),
                ),
            ],
            Self::Queue => &[("CPU per key, ns", Figure::CpuNsPerCount), WALL],
            Self::Reconcile => &[("CPU per reconcile, µs", Figure::CpuPerCount), WALL],
            Self::Foo => &[
                ("Foos per second", Figure::PerSecond),
                ("CPU per Foo, ms", Figure::Raw("cpu_ms_per_foo", 1.0)),
                PEAK,
                ("Foo to Deployment, median, ms", Figure::Raw("p50_ms", 1.0)),
                (
                    "Foo to Deployment, 99th percentile, ms",
                    Figure::Raw("p99_ms", 1.0),
                ),
                ("writes per Foo", Figure::Raw("writes_per_foo", 1.0)),
                SERVER,
                WALL,
            ],
            Self::Apiserver => &[
                ("start to ready, ms", Figure::Raw("ready_ms", 1.0)),
                ("idle memory, MiB", Figure::Raw("idle_kib", 1.0 / 1024.0)),
                ("creates per second", Figure::Raw("creates_per_s", 1.0)),
                (
                    "server CPU per create, µs",
                    Figure::Raw("create_cpu_us", 1.0),
                ),
                ("list, MiB per second", Figure::Raw("list_mib_per_s", 1.0)),
                (
                    "server CPU per listed MiB, ms",
                    Figure::Raw("list_cpu_ms_per_mib", 1.0),
                ),
                (
                    "server CPU per delivered event, µs",
                    Figure::Raw("fanout_cpu_us", 1.0),
                ),
                (
                    "delivered events per second",
                    Figure::Raw("fanout_per_s", 1.0),
                ),
                (
                    "memory with 1,000 watchers, MiB",
                    Figure::Raw("fanout_kib", 1.0 / 1024.0),
                ),
            ],
            Self::Cluster => &[
                ("until every Pod exists, s", Figure::Raw("wall_s", 1.0)),
                ("Pods per second", Figure::PerSecond),
                ("CPU of the loops, s", Figure::Raw("cpu_s", 1.0)),
                PEAK,
                ("server CPU, s", Figure::Raw("server_cpu_s", 1.0)),
            ],
        }
    }
}

/// The server that a case runs against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    Nothing,
    /// Recorded Pods.
    Replay(usize),
    /// A real API server that holds the Pods.
    Live(usize),
}

/// One configuration that every peer runs.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) flags: Vec<String>,
    pub(super) served: Served,
    pub(super) cores: Cores,
    /// The peers that run this case.
    pub(super) peers: &'static [&'static str],
    /// The maximum number of rounds.
    pub(super) at_most: u32,
    pub(super) patience: Duration,
}

impl Case {
    fn new(name: impl Into<String>, flags: &str) -> Self {
        Self {
            name: name.into(),
            flags: flags.split_whitespace().map(str::to_owned).collect(),
            served: Served::Nothing,
            cores: Cores::Client,
            peers: &PEERS,
            at_most: u32::MAX,
            patience: Duration::from_secs(90),
        }
    }
}

/// Returns the full size, or a tenth of it for a quick run.
pub(super) fn size(full: usize, quick: bool) -> usize {
    if quick { full / 10 } else { full }
}

/// Returns the cases of a benchmark that runs one program at a time. The live ones are in
/// [`super::live`].
pub(super) fn cases(work: Work, quick: bool) -> Vec<Case> {
    let pods = size(10_000, quick);
    let settle = if quick { 0.5 } else { 2.0 };
    match work {
        Work::Sync => {
            let mut cases = Vec::new();
            for fields in ["keep", "strip"] {
                let mut case = Case::new(
                    sync_case(fields),
                    &format!("--objects {pods} --managed-fields {fields} --settle {settle}"),
                );
                case.served = Served::Replay(pods);
                if fields == "strip" {
                    case.at_most = 3;
                }
                cases.push(case);
            }
            let mut eager = Case::new(
                eager_case(),
                &format!("--objects {pods} --eager on --settle {settle}"),
            );
            eager.served = Served::Replay(pods);
            eager.peers = &["pintle"];
            eager.at_most = 3;
            cases.push(eager);
            for (encoding, streaming) in [
                ("json", "off"),
                ("json", "on"),
                ("protobuf", "off"),
                ("protobuf", "on"),
            ] {
                let mut case = Case::new(
                    live_case(encoding, streaming == "on"),
                    &format!(
                        "--objects {pods} --encoding {encoding} --streaming {streaming} --settle {settle}"
                    ),
                );
                case.served = Served::Live(pods);
                case.at_most = if streaming == "on" { 2 } else { 3 };
                cases.push(case);
            }
            cases
        }
        Work::Relist => {
            let mut case = Case::new(
                format!("{} Pods, recorded, JSON, managedFields kept", count(pods)),
                &format!("--objects {pods} --settle {settle}"),
            );
            case.served = Served::Replay(pods);
            vec![case]
        }
        Work::Watch => {
            let (pods, events) = (size(1000, quick), size(20_000, quick));
            let handlers = [1, 4].map(|handlers| {
                let mut case = Case::new(
                    handlers_case(handlers),
                    &format!("--objects {pods} --count {events} --handlers {handlers}"),
                );
                case.served = Served::Replay(pods);
                case
            });
            handlers.into()
        }
        Work::Pipeline => {
            let (pods, events) = (size(10_000, quick), size(100_000, quick));
            let handlers = [1, 4].map(|handlers| {
                Case::new(
                    handlers_case(handlers),
                    &format!("--objects {pods} --count {events} --handlers {handlers}"),
                )
            });
            handlers.into()
        }
        Work::Reads => {
            let (pods, reads) = (size(100_000, quick), size(50_000, quick));
            vec![Case::new(
                format!("{} Pods", count(pods)),
                &format!("--objects {pods} --count {reads}"),
            )]
        }
        Work::Queue => {
            let keys = size(300_000, quick);
            let mut cases: Vec<Case> = [1, 4, 16, 64]
                .into_iter()
                .map(|workers| {
                    let mut case = Case::new(
                        queue_case(workers),
                        &format!("--count {keys} --workers {workers}"),
                    );
                    if matches!(workers, 4 | 16) {
                        case.at_most = 3;
                    }
                    case
                })
                .collect();
            let mut both = Case::new(
                "distinct keys, 16 workers, all cores",
                &format!("--count {keys} --workers 16"),
            );
            both.cores = Cores::All;
            both.at_most = 3;
            cases.push(both);
            cases.push(Case::new(
                DUPLICATE_CASE,
                &format!("--count {keys} --workers 1 --keys duplicate"),
            ));
            cases
        }
        Work::Reconcile => {
            let reconciles = size(200_000, quick);
            let mut cases = Vec::new();
            for keys in [5000, 100_000] {
                for reads in ["off", "on"] {
                    let keys = size(keys, quick);
                    cases.push(Case::new(
                        reconcile_case(keys, reads == "on"),
                        &format!(
                            "--objects {keys} --count {reconciles} --workers 4 --reads {reads}"
                        ),
                    ));
                }
            }
            cases
        }
        Work::Foo | Work::Apiserver | Work::Cluster => Vec::new(),
    }
}

// The report looks cases up by these names.

pub(super) fn sync_case(fields: &str) -> String {
    let fields = if fields == "keep" { "kept" } else { "stripped" };
    format!("recorded, JSON, managedFields {fields}")
}

/// Pintle only, decoding every object as the others do.
pub(super) fn eager_case() -> String {
    format!("{}, Pintle decoding eagerly", sync_case("keep"))
}

pub(super) const DUPLICATE_CASE: &str = "duplicate keys (add of a waiting key)";

pub(super) fn live_case(encoding: &str, streaming: bool) -> String {
    let streaming = if streaming { "streaming list" } else { "list" };
    let encoding = if encoding == "json" { "JSON" } else { encoding };
    format!("live, {encoding}, {streaming}")
}

pub(super) fn handlers_case(handlers: usize) -> String {
    let plural = if handlers == 1 { "" } else { "s" };
    format!("{handlers} handler{plural}")
}

pub(super) fn queue_case(workers: usize) -> String {
    let plural = if workers == 1 { "" } else { "s" };
    format!("distinct keys, {workers} worker{plural}")
}

pub(super) fn reconcile_case(keys: usize, reads: bool) -> String {
    let reads = if reads {
        ", reading the object, decoded"
    } else {
        ""
    };
    format!("{} keys{reads}", count(keys))
}

/// Formats a whole number with thousands separators.
#[allow(clippy::cast_precision_loss, reason = "sizes are small")]
pub(super) fn count(number: usize) -> String {
    super::stats::number(number as f64)
}
