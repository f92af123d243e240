//! The checks of the levels `baseline` and `restricted`, and the version in which each was
//! introduced.
//!
//! `restricted` consists of its own checks and the `baseline` checks that they do not replace.

use super::{
    checks::{
        Pod, Violation, app_armor_profile, capabilities_baseline, capabilities_restricted,
        host_namespaces, host_path_volumes, host_ports, hosts, not_on_windows,
        outside_user_namespace, privilege_escalation, privileged, proc_mount, restricted_volumes,
        run_as_non_root, run_as_user, se_linux_options, seccomp_annotations, seccomp_baseline,
        seccomp_restricted, sysctls, windows_host_process,
    },
    policy::{Level, Standard, Version},
};

/// The function that implements a check.
pub(super) type CheckPod = fn(&Pod<'_>) -> Option<Violation>;

/// A check, whose implementation may depend on the version of the standard.
pub(super) struct Check {
    pub(super) id: &'static str,
    /// The `baseline` check that this `restricted` check replaces; empty if none.
    replaces: &'static str,
    /// The implementations, each with the minor version that introduced it, in increasing order.
    versions: &'static [(u32, CheckPod)],
}

const fn check(id: &'static str, versions: &'static [(u32, CheckPod)]) -> Check {
    Check {
        id,
        replaces: "",
        versions,
    }
}

/// The checks of `baseline`, sorted by id, which is also the order of messages.
pub(super) const BASELINE: &[Check] = &[
    check("appArmorProfile", &[(0, app_armor_profile)]),
    check("capabilities_baseline", &[(0, capabilities_baseline)]),
    check("hostNamespaces", &[(0, host_namespaces)]),
    check("hostPathVolumes", &[(0, host_path_volumes)]),
    check("hostPorts", &[(0, host_ports)]),
    check("hostProbesAndHostLifecycle", &[(34, hosts)]),
    check("privileged", &[(0, privileged)]),
    check(
        "procMount",
        &[
            (0, proc_mount),
            (35, |pod| outside_user_namespace(pod, proc_mount)),
        ],
    ),
    check(
        "seLinuxOptions",
        &[
            (0, |pod| se_linux_options(pod, &SE_LINUX_TYPES[..3])),
            (31, |pod| se_linux_options(pod, SE_LINUX_TYPES)),
        ],
    ),
    check(
        "seccompProfile_baseline",
        &[(0, seccomp_annotations), (19, seccomp_baseline)],
    ),
    check(
        "sysctls",
        &[
            (0, |pod| sysctls(pod, &SYSCTLS[..5])),
            (27, |pod| sysctls(pod, &SYSCTLS[..6])),
            (29, |pod| sysctls(pod, &SYSCTLS[..10])),
            (32, |pod| sysctls(pod, SYSCTLS)),
        ],
    ),
    check("windowsHostProcess", &[(0, windows_host_process)]),
];

/// The checks of `restricted`, sorted by id.
pub(super) const RESTRICTED: &[Check] = &[
    check(
        "allowPrivilegeEscalation",
        &[
            (8, privilege_escalation),
            (25, |pod| not_on_windows(pod, privilege_escalation)),
        ],
    ),
    Check {
        id: "capabilities_restricted",
        replaces: "capabilities_baseline",
        versions: &[
            (22, capabilities_restricted),
            (25, |pod| not_on_windows(pod, capabilities_restricted)),
        ],
    },
    Check {
        id: "procMount_restricted",
        replaces: "procMount",
        versions: &[(35, proc_mount)],
    },
    Check {
        id: "restrictedVolumes",
        replaces: "hostPathVolumes",
        versions: &[(0, restricted_volumes)],
    },
    check(
        "runAsNonRoot",
        &[
            (0, run_as_non_root),
            (35, |pod| outside_user_namespace(pod, run_as_non_root)),
        ],
    ),
    check(
        "runAsUser",
        &[
            (23, run_as_user),
            (35, |pod| outside_user_namespace(pod, run_as_user)),
        ],
    ),
    Check {
        id: "seccompProfile_restricted",
        replaces: "seccompProfile_baseline",
        versions: &[
            (19, seccomp_restricted),
            (25, |pod| not_on_windows(pod, seccomp_restricted)),
        ],
    },
];

/// The allowed types; the last one since v1.31. An unset type is also allowed.
const SE_LINUX_TYPES: &[&str] = &[
    "container_t",
    "container_init_t",
    "container_kvm_t",
    "container_engine_t",
];

/// The allowed sysctls, in the order in which they were added: five, then one in v1.27, four in
/// v1.29 and two in v1.32.
const SYSCTLS: &[&str] = &[
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

impl Check {
    /// Returns the function for a version, if the check exists in it.
    fn at(&self, version: Version) -> Option<CheckPod> {
        let mut versions = self.versions.iter().rev();
        let found = versions.find(|(since, _)| Version::Minor(*since) <= version);
        found.map(|(_, check)| *check)
    }
}

/// Returns a Pod's violations of a standard.
pub(super) fn violations(standard: Standard, pod: &Pod<'_>) -> Vec<Violation> {
    let own = match standard.level {
        Level::Privileged => return Vec::new(),
        Level::Baseline => &[],
        Level::Restricted => RESTRICTED,
    };
    let at = |check: &'static Check| check.at(standard.version).map(|run| (check, run));
    let own: Vec<_> = own.iter().filter_map(at).collect();
    let is_replaced = |check: &Check| own.iter().any(|(own, _)| own.replaces == check.id);
    let base = BASELINE.iter().filter(|check| !is_replaced(check));
    let all = base.filter_map(at).chain(own.iter().copied());
    all.filter_map(|(_, run)| run(pod)).collect()
}
