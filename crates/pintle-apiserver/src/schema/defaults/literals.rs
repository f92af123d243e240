//! Constant defaults by type.

/// Types and the JSON defaults of their fields.
pub(super) const ALL: &[(&str, &[(&str, &str)])] = &[
    (
        "io.k8s.api.core.v1.PodSpec",
        &[
            ("dnsPolicy", "\"ClusterFirst\""),
            ("restartPolicy", "\"Always\""),
            ("securityContext", "{}"),
            ("terminationGracePeriodSeconds", "30"),
            ("schedulerName", "\"default-scheduler\""),
        ],
    ),
    ("io.k8s.api.core.v1.Container", CONTAINER),
    ("io.k8s.api.core.v1.EphemeralContainer", CONTAINER),
    (
        "io.k8s.api.core.v1.Probe",
        &[
            ("timeoutSeconds", "1"),
            ("periodSeconds", "10"),
            ("successThreshold", "1"),
            ("failureThreshold", "3"),
        ],
    ),
    (
        "io.k8s.api.core.v1.HTTPGetAction",
        &[("path", "\"/\""), ("scheme", "\"HTTP\"")],
    ),
    ("io.k8s.api.core.v1.SecretVolumeSource", MODE),
    ("io.k8s.api.core.v1.ConfigMapVolumeSource", MODE),
    ("io.k8s.api.core.v1.DownwardAPIVolumeSource", MODE),
    ("io.k8s.api.core.v1.ProjectedVolumeSource", MODE),
    (
        "io.k8s.api.core.v1.ServiceAccountTokenProjection",
        &[("expirationSeconds", "3600")],
    ),
    (
        "io.k8s.api.core.v1.HostPathVolumeSource",
        &[("type", "\"\"")],
    ),
    (
        "io.k8s.api.core.v1.ObjectFieldSelector",
        &[("apiVersion", "\"v1\"")],
    ),
    ("io.k8s.api.core.v1.Secret", &[("type", "\"Opaque\"")]),
    (
        "io.k8s.api.core.v1.PersistentVolumeSpec",
        &[
            ("persistentVolumeReclaimPolicy", "\"Retain\""),
            ("volumeMode", "\"Filesystem\""),
        ],
    ),
    (
        "io.k8s.api.core.v1.PersistentVolumeStatus",
        &[("phase", "\"Pending\"")],
    ),
    (
        "io.k8s.api.core.v1.PersistentVolumeClaimSpec",
        &[("volumeMode", "\"Filesystem\"")],
    ),
    (
        "io.k8s.api.core.v1.PersistentVolumeClaimStatus",
        &[("phase", "\"Pending\"")],
    ),
    (
        "io.k8s.api.core.v1.EndpointPort",
        &[("protocol", "\"TCP\"")],
    ),
    (
        "io.k8s.api.core.v1.NamespaceStatus",
        &[("phase", "\"Active\"")],
    ),
    (
        "io.k8s.api.apps.v1.DeploymentSpec",
        &[
            ("replicas", "1"),
            ("revisionHistoryLimit", "10"),
            ("progressDeadlineSeconds", "600"),
        ],
    ),
    (
        "io.k8s.api.apps.v1.DaemonSetSpec",
        &[("revisionHistoryLimit", "10")],
    ),
    (
        "io.k8s.api.apps.v1.StatefulSetSpec",
        &[
            ("podManagementPolicy", "\"OrderedReady\""),
            ("replicas", "1"),
            ("revisionHistoryLimit", "10"),
            ("persistentVolumeClaimRetentionPolicy", "{}"),
        ],
    ),
    (
        "io.k8s.api.apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicy",
        &[("whenDeleted", "\"Retain\""), ("whenScaled", "\"Retain\"")],
    ),
    ("io.k8s.api.apps.v1.ReplicaSetSpec", &[("replicas", "1")]),
    (
        "io.k8s.api.batch.v1.CronJobSpec",
        &[
            ("concurrencyPolicy", "\"Allow\""),
            ("suspend", "false"),
            ("successfulJobsHistoryLimit", "3"),
            ("failedJobsHistoryLimit", "1"),
        ],
    ),
    (
        "io.k8s.api.batch.v1.PodFailurePolicyOnPodConditionsPattern",
        &[("status", "\"True\"")],
    ),
    (
        "io.k8s.api.autoscaling.v1.HorizontalPodAutoscalerSpec",
        &[("minReplicas", "1")],
    ),
    (
        "io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerSpec",
        &[
            ("minReplicas", "1"),
            (
                "metrics",
                r#"[{"type":"Resource","resource":{"name":"cpu",
                "target":{"type":"Utilization","averageUtilization":80}}}]"#,
            ),
        ],
    ),
    (
        "io.k8s.api.admissionregistration.v1.ValidatingWebhook",
        WEBHOOK,
    ),
    (
        "io.k8s.api.admissionregistration.v1.MutatingWebhook",
        &[
            ("failurePolicy", "\"Fail\""),
            ("matchPolicy", "\"Equivalent\""),
            ("namespaceSelector", "{}"),
            ("objectSelector", "{}"),
            ("timeoutSeconds", "10"),
            ("reinvocationPolicy", "\"Never\""),
        ],
    ),
    (
        "io.k8s.api.admissionregistration.v1.RuleWithOperations",
        &[("scope", "\"*\"")],
    ),
    (
        "io.k8s.api.admissionregistration.v1.NamedRuleWithOperations",
        &[("scope", "\"*\"")],
    ),
    (
        "io.k8s.api.admissionregistration.v1.ServiceReference",
        &[("port", "443")],
    ),
    (
        "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicySpec",
        FAIL,
    ),
    (
        "io.k8s.api.admissionregistration.v1.MutatingAdmissionPolicySpec",
        FAIL,
    ),
    (
        "io.k8s.api.admissionregistration.v1.MatchResources",
        &[
            ("matchPolicy", "\"Equivalent\""),
            ("namespaceSelector", "{}"),
            ("objectSelector", "{}"),
        ],
    ),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.ServiceReference",
        &[("port", "443")],
    ),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionSpec",
        &[("conversion", r#"{"strategy":"None"}"#)],
    ),
    (
        "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.ServiceReference",
        &[("port", "443")],
    ),
    (
        "io.k8s.api.discovery.v1.EndpointPort",
        &[("name", "\"\""), ("protocol", "\"TCP\"")],
    ),
    (
        "io.k8s.api.flowcontrol.v1.FlowSchemaSpec",
        &[("matchingPrecedence", "1000")],
    ),
    (
        "io.k8s.api.flowcontrol.v1.ExemptPriorityLevelConfiguration",
        &[("nominalConcurrencyShares", "0"), ("lendablePercent", "0")],
    ),
    (
        "io.k8s.api.flowcontrol.v1.LimitedPriorityLevelConfiguration",
        &[("nominalConcurrencyShares", "30"), ("lendablePercent", "0")],
    ),
    (
        "io.k8s.api.flowcontrol.v1.QueuingConfiguration",
        &[
            ("handSize", "8"),
            ("queues", "64"),
            ("queueLengthLimit", "50"),
        ],
    ),
    (
        "io.k8s.api.networking.v1.NetworkPolicyPort",
        &[("protocol", "\"TCP\"")],
    ),
    (
        "io.k8s.api.networking.v1.IngressClassParametersReference",
        &[("scope", "\"Cluster\"")],
    ),
    (
        "io.k8s.api.rbac.v1.RoleRef",
        &[("apiGroup", "\"rbac.authorization.k8s.io\"")],
    ),
    (
        "io.k8s.api.scheduling.v1.PriorityClass",
        &[("preemptionPolicy", "\"PreemptLowerPriority\"")],
    ),
    (
        "io.k8s.api.storage.v1.StorageClass",
        &[
            ("reclaimPolicy", "\"Delete\""),
            ("volumeBindingMode", "\"Immediate\""),
        ],
    ),
    (
        "io.k8s.api.storage.v1.CSIDriverSpec",
        &[
            ("attachRequired", "true"),
            ("podInfoOnMount", "false"),
            ("storageCapacity", "false"),
            ("fsGroupPolicy", "\"ReadWriteOnceWithFSType\""),
            ("volumeLifecycleModes", "[\"Persistent\"]"),
            ("requiresRepublish", "false"),
            ("seLinuxMount", "false"),
        ],
    ),
    (
        "io.k8s.api.authentication.v1.TokenRequestSpec",
        &[("expirationSeconds", "3600")],
    ),
    (
        "io.k8s.api.resource.v1.ExactDeviceRequest",
        &[("allocationMode", "\"ExactCount\"")],
    ),
    (
        "io.k8s.api.resource.v1.DeviceSubRequest",
        &[("allocationMode", "\"ExactCount\"")],
    ),
];

const CONTAINER: &[(&str, &str)] = &[
    ("terminationMessagePath", "\"/dev/termination-log\""),
    ("terminationMessagePolicy", "\"File\""),
];

/// `rw-r--r--`
const MODE: &[(&str, &str)] = &[("defaultMode", "420")];

const FAIL: &[(&str, &str)] = &[("failurePolicy", "\"Fail\"")];

const WEBHOOK: &[(&str, &str)] = &[
    ("failurePolicy", "\"Fail\""),
    ("matchPolicy", "\"Equivalent\""),
    ("namespaceSelector", "{}"),
    ("objectSelector", "{}"),
    ("timeoutSeconds", "10"),
];
