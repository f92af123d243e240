//! How much of a quota an object of each kind uses.

use jiff::Timestamp;
use serde_json::Value;

use super::{Amounts, Scope, amounts, pod};
use crate::schema::typed::quantity::Amount;

/// Separates the class from the resource in limits of one storage class.
const STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";
/// The limits on volume claims, which also exist per storage class.
const CLAIM: [&str; 2] = ["persistentvolumeclaims", "requests.storage"];
const SERVICE: [&str; 3] = ["services", "services.loadbalancers", "services.nodeports"];
/// Core kinds that a quota may limit by their plural alone, without `count/`.
const PLAIN: [&str; 4] = [
    "configmaps",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
];

/// Follows the class in the name of a limit on the devices of one class.
const DEVICE_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
const COUNTED_DEVICE_CLAIMS: &str = "count/resourceclaims.resource.k8s.io";
/// The most devices that one request can be allocated.
const MAX_DEVICES: usize = 32;

/// Stored kinds that no quota counts.
const IGNORED: [(&str, &str); 2] = [("", "events"), ("events.k8s.io", "events")];

/// Returns true for kinds that no quota counts.
pub(crate) fn is_ignored(group: &str, plural: &str) -> bool {
    IGNORED.contains(&(group, plural))
}

/// Counts the objects of one kind.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Evaluator<'a> {
    Pods,
    Services,
    Claims,
    /// Claims of devices (`resource.k8s.io`).
    DeviceClaims,
    /// Every other kind, for which only the number of objects counts.
    Objects {
        group: &'a str,
        plural: &'a str,
    },
}

/// Returns the kind that a limit counts.
pub(super) fn kind_of(name: &str) -> Option<(String, String)> {
    let core = |plural: &str| Some((String::new(), plural.to_owned()));
    if let Some(counted) = name.strip_prefix("count/") {
        let (plural, group) = counted.split_once('.').unwrap_or((counted, ""));
        return Some((group.to_owned(), plural.to_owned()));
    }
    if PLAIN.contains(&name) {
        return core(name);
    }
    if Evaluator::Services.counts(name) {
        return core("services");
    }
    if Evaluator::Claims.counts(name) {
        return core("persistentvolumeclaims");
    }
    if Evaluator::DeviceClaims.counts(name) {
        return Some(("resource.k8s.io".to_owned(), "resourceclaims".to_owned()));
    }
    Evaluator::Pods.counts(name).then(|| core("pods"))?
}

impl<'a> Evaluator<'a> {
    pub(crate) fn of(group: &'a str, plural: &'a str) -> Self {
        match (group, plural) {
            ("", "pods") => Self::Pods,
            ("", "services") => Self::Services,
            ("", "persistentvolumeclaims") => Self::Claims,
            ("resource.k8s.io", "resourceclaims") => Self::DeviceClaims,
            _ => Self::Objects { group, plural },
        }
    }

    /// Returns true if objects of this kind count towards the limit.
    pub(crate) fn counts(self, name: &str) -> bool {
        match self {
            Self::Pods => pod::counts(name),
            Self::Services => name == "count/services" || SERVICE.contains(&name),
            Self::Claims => {
                let of_class = name.split_once(STORAGE_CLASS).map(|(_, resource)| resource);
                name == "count/persistentvolumeclaims"
                    || CLAIM.contains(&name)
                    || of_class.is_some_and(|resource| CLAIM.contains(&resource))
            }
            Self::DeviceClaims => name == COUNTED_DEVICE_CLAIMS || name.ends_with(DEVICE_CLASS),
            Self::Objects { group, plural } => {
                let counted = name.strip_prefix("count/");
                let counted = counted.map(|name| name.split_once('.').unwrap_or((name, "")));
                counted == Some((plural, group))
                    || (group.is_empty() && name == plural && PLAIN.contains(&plural))
            }
        }
    }

    /// Returns true if an object is in a scope of a quota.
    pub(crate) fn is_in(self, scope: &Scope, object: &Value) -> bool {
        match self {
            Self::Pods => pod::is_in(scope, object),
            Self::Claims if scope.name == "VolumeAttributesClass" => {
                let (spec, status) = (&object["spec"], &object["status"]);
                let classes = [
                    &spec["volumeAttributesClassName"],
                    &status["currentVolumeAttributesClassName"],
                    &status["modifyVolumeStatus"]["targetVolumeAttributesClassName"],
                ];
                let named = classes.into_iter().filter_map(Value::as_str);
                let mut named = named.filter(|class| !class.is_empty()).peekable();
                match named.peek() {
                    None => scope.selects(""),
                    Some(_) => named.any(|class| scope.selects(class)),
                }
            }
            _ => false,
        }
    }

    /// Returns what an object uses.
    pub(crate) fn usage(self, object: &Value, now: Timestamp) -> Amounts {
        let one = |names: &[&str]| -> Amounts {
            let names = names.iter();
            names
                .map(|name| ((*name).to_owned(), Amount::of(1)))
                .collect()
        };
        match self {
            Self::Pods => pod::usage(object, now),
            Self::Services => {
                let mut usage = one(&["count/services", "services"]);
                let (balancers, ports) = service_ports(&object["spec"]);
                usage.insert("services.loadbalancers".into(), Amount::of(balancers));
                usage.insert("services.nodeports".into(), Amount::of(ports));
                usage
            }
            Self::Claims => claim_usage(object),
            Self::DeviceClaims => device_usage(object),
            Self::Objects { group, plural } => {
                let counted = if group.is_empty() {
                    format!("count/{plural}")
                } else {
                    format!("count/{plural}.{group}")
                };
                let mut usage = one(&[&counted]);
                if group.is_empty() && PLAIN.contains(&plural) {
                    usage.insert(plural.to_owned(), Amount::of(1));
                }
                usage
            }
        }
    }
}

/// Returns how many load balancers and node ports a service uses. Node ports may not be allocated
/// yet, so those it requests count.
fn service_ports(spec: &Value) -> (usize, usize) {
    let ports = spec["ports"].as_array().map_or(&[][..], Vec::as_slice);
    match spec["type"].as_str() {
        Some("NodePort") => (0, ports.len()),
        Some("LoadBalancer") if spec["allocateLoadBalancerNodePorts"] == false => {
            let explicit = |port: &&Value| port["nodePort"].as_i64().unwrap_or(0) != 0;
            (1, ports.iter().filter(explicit).count())
        }
        Some("LoadBalancer") => (1, ports.len()),
        _ => (0, 0),
    }
}

/// Returns the storage class of a claim, or an empty string. The annotation that predates the field
/// takes precedence.
pub(crate) fn claim_class(claim: &Value) -> &str {
    let legacy = &claim["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"];
    let class = legacy
        .as_str()
        .or(claim["spec"]["storageClassName"].as_str());
    class.unwrap_or_default()
}

fn claim_usage(claim: &Value) -> Amounts {
    let mut usage = Amounts::new();
    let class = claim_class(claim);
    let mut charge = |resource: &str, amount: Amount| {
        usage.insert(resource.to_owned(), amount.clone());
        if !class.is_empty() {
            usage.insert(format!("{class}{STORAGE_CLASS}{resource}"), amount);
        }
    };
    charge("persistentvolumeclaims", Amount::of(1));
    let storage = |list: &Value| amounts(list).get("storage").cloned();
    if let Some(requested) = storage(&claim["spec"]["resources"]["requests"]) {
        let allocated = storage(&claim["status"]["allocatedResources"]);
        let most = allocated.into_iter().fold(requested, Amount::max);
        charge("requests.storage", most.rounded_up());
    }
    usage.insert("count/persistentvolumeclaims".into(), Amount::of(1));
    usage
}

/// Returns the devices that a claim may be allocated, by class. Among alternatives, the one that
/// needs the most devices of a class counts.
fn device_usage(claim: &Value) -> Amounts {
    let mut usage = Amounts::from([(COUNTED_DEVICE_CLAIMS.to_owned(), Amount::of(1))]);
    let items = |list: &'_ Value| list.as_array().cloned().unwrap_or_default();
    for request in items(&claim["spec"]["devices"]["requests"]) {
        let alternatives = match items(&request["firstAvailable"]) {
            none if none.is_empty() => vec![request["exactly"].clone()],
            alternatives => alternatives,
        };
        let mut most = Amounts::new();
        for wanted in alternatives.iter().filter(|wanted| wanted.is_object()) {
            let class = wanted["deviceClassName"].as_str().unwrap_or_default();
            let amount = Amount::of(devices(wanted));
            let most = most.entry(format!("{class}{DEVICE_CLASS}")).or_default();
            if amount > *most {
                *most = amount;
            }
        }
        for (name, amount) in most {
            let total = usage.entry(name).or_default();
            *total = total.plus(&amount);
        }
    }
    usage
}

/// Returns the most devices that a request can be allocated.
fn devices(request: &Value) -> usize {
    match request["allocationMode"].as_str() {
        Some("ExactCount") => {
            let count = request["count"].as_u64().unwrap_or_default();
            usize::try_from(count).unwrap_or(usize::MAX)
        }
        Some("All") => MAX_DEVICES,
        _ => 0,
    }
}
