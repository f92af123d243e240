//! Which loops a cluster runs.

use std::ops::BitOr;

use crate::{
    autoscaler, certificates, cron_job, daemon_set, deployment, disruption, endpoints,
    ephemeral_volumes, garbage_collector, job, loops::Loop, namespace, nodes, pods, policy_status,
    provisioner, quota, replica_set, role_aggregation, scheduler, service_account,
    service_account_tokens, service_cidrs, stateful_set, ttl_after_finished, volume_protection,
    volumes,
};

/// A set of control loops.
///
/// # Examples
///
/// ```
/// use pintle_cluster::Loops;
///
/// let some = Loops::REPLICA_SET | Loops::PODS | Loops::NODES;
/// assert!(some.contains(Loops::PODS));
/// assert!(!some.contains(Loops::DEPLOYMENT));
/// assert!(Loops::ALL.contains(some));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loops(u32);

impl Loops {
    /// No loops, only an API server.
    pub const NONE: Self = Self(0);
    /// Rolls out Deployments.
    pub const DEPLOYMENT: Self = Self(1);
    /// Creates and deletes the Pods of `ReplicaSet`s.
    pub const REPLICA_SET: Self = Self(1 << 1);
    /// Schedules, starts and stops Pods.
    pub const PODS: Self = Self(1 << 2);
    /// Deletes objects whose owners are gone.
    pub const GARBAGE_COLLECTOR: Self = Self(1 << 3);
    /// Deletes the contents of terminating namespaces.
    pub const NAMESPACE: Self = Self(1 << 4);
    /// Creates the default service account and `kube-root-ca.crt` of each namespace, and fills the
    /// Secrets for tokens of service accounts.
    pub const SERVICE_ACCOUNT: Self = Self(1 << 5);
    /// Registers simulated nodes, renews their leases, and handles failed nodes and the Pods on
    /// them.
    pub const NODES: Self = Self(1 << 6);
    /// Protects persistent volumes and claims in use from deletion.
    pub const VOLUME_PROTECTION: Self = Self(1 << 7);
    /// Updates the status of `PodDisruptionBudget`s, which evictions depend on.
    pub const DISRUPTION: Self = Self(1 << 8);
    /// Counts the usage of `ResourceQuota`s, which admission depends on: a new quota limits nothing
    /// until its `status.hard` is set.
    pub const QUOTA: Self = Self(1 << 9);
    /// Collects the rules of aggregated `ClusterRole`s, such as `view`.
    pub const ROLE_AGGREGATION: Self = Self(1 << 10);
    /// Type-checks `ValidatingAdmissionPolicy` objects.
    pub const POLICY_STATUS: Self = Self(1 << 11);
    /// Creates, updates and deletes the Pods and claims of `StatefulSet`s.
    pub const STATEFUL_SET: Self = Self(1 << 12);
    /// Runs Jobs.
    pub const JOB: Self = Self(1 << 13);
    /// Deletes finished Jobs whose `ttlSecondsAfterFinished` has passed.
    pub const TTL_AFTER_FINISHED: Self = Self(1 << 14);
    /// Starts the Jobs of `CronJob`s.
    pub const CRON_JOB: Self = Self(1 << 15);
    /// Runs a Pod of each `DaemonSet` on every node that its template allows.
    pub const DAEMON_SET: Self = Self(1 << 16);
    /// Writes the `EndpointSlice`s and Endpoints of Services, and mirrors Endpoints that users
    /// write.
    pub const ENDPOINTS: Self = Self(1 << 17);
    /// Binds `PersistentVolumeClaim`s to volumes, and creates those of ephemeral volumes. Pods wait
    /// for their claims.
    pub const VOLUMES: Self = Self(1 << 18);
    /// Creates volumes for claims of any storage class, deletes released ones, and adds the default
    /// class `standard`.
    pub const PROVISIONER: Self = Self(1 << 19);
    /// Creates and deletes the Pods of `ReplicationController`s.
    pub const REPLICATION_CONTROLLER: Self = Self(1 << 20);
    /// Scales the targets of `HorizontalPodAutoscaler`s; see
    /// [`Cluster::load`](crate::Cluster::load).
    pub const AUTOSCALER: Self = Self(1 << 21);
    /// Reports `ServiceCIDR`s as ready, and keeps an `IPAddress` for each address of a Service.
    pub const SERVICE_CIDR: Self = Self(1 << 22);
    /// Approves, signs and cleans up `CertificateSigningRequest`s.
    pub const CERTIFICATES: Self = Self(1 << 23);
    /// All loops.
    pub const ALL: Self = Self((1 << 24) - 1);

    /// Returns whether all loops of `other` are in this set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns this set without the loops of `other`.
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for Loops {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Returns the selected loops in start order.
pub(crate) fn select(loops: Loops) -> Vec<Loop> {
    let all = [
        (Loops::NODES, Loop::new(nodes::LOOP, nodes::run)),
        (
            Loops::NODES,
            Loop::new("node-lifecycle", nodes::lifecycle::run),
        ),
        (
            Loops::NODES,
            Loop::new("pod-evictions", nodes::eviction::run),
        ),
        (
            Loops::SERVICE_ACCOUNT,
            Loop::new("service-accounts", service_account::run),
        ),
        (
            Loops::SERVICE_ACCOUNT,
            Loop::new("service-account-tokens", service_account_tokens::run),
        ),
        (Loops::NAMESPACE, Loop::new("namespaces", namespace::run)),
        (
            Loops::GARBAGE_COLLECTOR,
            Loop::new("garbage-collector", garbage_collector::run),
        ),
        (
            Loops::VOLUME_PROTECTION,
            Loop::new("volume-protection", volume_protection::run),
        ),
        (Loops::PODS, Loop::new("scheduler", scheduler::run)),
        (
            Loops::PODS,
            Loop::new("pods", pods::run).acts_on(&[("", "pods")]),
        ),
        (
            Loops::DISRUPTION,
            Loop::new("disruption", disruption::run).acts_on(&[("policy", "poddisruptionbudgets")]),
        ),
        (
            Loops::QUOTA,
            Loop::new("resource-quotas", quota::run).acts_on(&[("", "resourcequotas")]),
        ),
        (
            Loops::ROLE_AGGREGATION,
            Loop::new("role-aggregation", role_aggregation::run)
                .acts_on(&[("rbac.authorization.k8s.io", "clusterroles")]),
        ),
        (
            Loops::POLICY_STATUS,
            Loop::new("policy-status", policy_status::run),
        ),
        (
            Loops::REPLICA_SET,
            Loop::new("replica-sets", replica_set::run).acts_on(&[("apps", "replicasets")]),
        ),
        (
            Loops::REPLICATION_CONTROLLER,
            Loop::new("replication-controllers", replica_set::run_controllers)
                .acts_on(&[("", "replicationcontrollers")]),
        ),
        (
            Loops::DEPLOYMENT,
            Loop::new("deployments", deployment::run).acts_on(&[("apps", "deployments")]),
        ),
        (
            Loops::STATEFUL_SET,
            Loop::new("stateful-sets", stateful_set::run).acts_on(&[("apps", "statefulsets")]),
        ),
        (
            Loops::DAEMON_SET,
            Loop::new("daemon-sets", daemon_set::run).acts_on(&[("apps", "daemonsets")]),
        ),
        (
            Loops::JOB,
            Loop::new("jobs", job::run).acts_on(&[("batch", "jobs")]),
        ),
        (
            Loops::TTL_AFTER_FINISHED,
            Loop::new("ttl-after-finished", ttl_after_finished::run),
        ),
        (
            Loops::CRON_JOB,
            Loop::new("cron-jobs", cron_job::run).acts_on(&[("batch", "cronjobs")]),
        ),
        (
            Loops::ENDPOINTS,
            Loop::new("endpoints", endpoints::run).acts_on(&[("", "services")]),
        ),
        (
            Loops::SERVICE_CIDR,
            Loop::new("service-cidrs", service_cidrs::run),
        ),
        (
            Loops::CERTIFICATES,
            Loop::new("certificates", certificates::run)
                .acts_on(&[("certificates.k8s.io", "certificatesigningrequests")]),
        ),
        (
            Loops::AUTOSCALER,
            Loop::new("autoscaler", autoscaler::run)
                .acts_on(&[("autoscaling", "horizontalpodautoscalers")]),
        ),
        (
            Loops::VOLUMES,
            Loop::new("volumes", volumes::run)
                .acts_on(&[("", "persistentvolumes"), ("", "persistentvolumeclaims")]),
        ),
        (
            Loops::VOLUMES,
            Loop::new("ephemeral-volumes", ephemeral_volumes::run),
        ),
        (
            Loops::PROVISIONER,
            Loop::new("provisioner", provisioner::run),
        ),
    ];
    all.into_iter()
        .filter(|(which, _)| loops.contains(*which))
        .map(|(_, run)| run)
        .collect()
}
