//! Printers of kinds that configure the cluster: access, admission, scheduling, devices, flow control.

use serde_json::Value;

use super::{
    age,
    builtin::Printer,
    look::{Look, selector},
};

const NAME_AND_AGE: Printer = Printer {
    columns: &["Name", "Age"],
    cells: |look| vec![look.name(), look.age()],
};

pub(super) fn printer(group: &str, plural: &str) -> Option<Printer> {
    Some(match (group, plural) {
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => Printer {
            columns: &[
                "Name",
                "Role",
                "Age",
                "+Users",
                "+Groups",
                "+ServiceAccounts",
            ],
            cells: binding,
        },
        ("certificates.k8s.io", "certificatesigningrequests") => Printer {
            columns: &[
                "Name",
                "Age",
                "SignerName",
                "Requestor",
                "RequestedDuration",
                "Condition",
            ],
            cells: signing_request,
        },
        ("coordination.k8s.io", "leases") => Printer {
            columns: &["Name", "Holder", "Age"],
            cells: |look| vec![look.name(), look.text("/spec/holderIdentity"), look.age()],
        },
        ("scheduling.k8s.io", "priorityclasses") => Printer {
            columns: &[
                "Name",
                "Value:integer",
                "Global-Default:boolean",
                "Age",
                "PreemptionPolicy",
            ],
            cells: |look| {
                vec![
                    look.name(),
                    look.number("/value").into(),
                    look.flag("/globalDefault", false),
                    look.age(),
                    look.text("/preemptionPolicy"),
                ]
            },
        },
        ("node.k8s.io", "runtimeclasses") => Printer {
            columns: &["Name", "Handler", "Age"],
            cells: |look| vec![look.name(), look.text("/handler"), look.age()],
        },
        ("apiregistration.k8s.io", "apiservices") => Printer {
            columns: &["Name", "Service", "Available", "Age"],
            cells: api_service,
        },
        ("admissionregistration.k8s.io", plural) => return admission(plural),
        ("flowcontrol.apiserver.k8s.io", plural) => return flow_control(plural),
        ("resource.k8s.io", plural) => return devices(plural),
        _ => return None,
    })
}

fn admission(plural: &str) -> Option<Printer> {
    Some(match plural {
        "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" => Printer {
            columns: &["Name", "Webhooks:integer", "Age"],
            cells: |look| vec![look.name(), look.count("/webhooks").into(), look.age()],
        },
        "validatingadmissionpolicies" => Printer {
            columns: &["Name", "Validations:integer", "ParamKind", "Age"],
            cells: |look| policy(look, "/spec/validations"),
        },
        "mutatingadmissionpolicies" => Printer {
            columns: &["Name", "Mutations:integer", "ParamKind", "Age"],
            cells: |look| policy(look, "/spec/mutations"),
        },
        "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings" => Printer {
            columns: &["Name", "PolicyName", "ParamRef", "Age"],
            cells: |look| {
                let policy = look.text("/spec/policyName");
                vec![look.name(), policy, parameters(look), look.age()]
            },
        },
        _ => return None,
    })
}

fn flow_control(plural: &str) -> Option<Printer> {
    Some(match plural {
        "flowschemas" => Printer {
            columns: &[
                "Name",
                "PriorityLevel",
                "MatchingPrecedence",
                "DistinguisherMethod",
                "Age",
                "MissingPL",
            ],
            cells: flow_schema,
        },
        "prioritylevelconfigurations" => Printer {
            columns: &[
                "Name",
                "Type",
                "NominalConcurrencyShares",
                "Queues",
                "HandSize",
                "QueueLengthLimit",
                "Age",
            ],
            cells: priority_level,
        },
        _ => return None,
    })
}

fn devices(plural: &str) -> Option<Printer> {
    Some(match plural {
        "resourceclaims" => Printer {
            columns: &["Name", "State", "Age"],
            cells: |look| vec![look.name(), claim_state(look).into(), look.age()],
        },
        "resourceslices" => Printer {
            columns: &["Name", "Node", "Driver", "Pool", "Age"],
            cells: |look| {
                vec![
                    look.name(),
                    look.text("/spec/nodeName"),
                    look.text("/spec/driver"),
                    look.text("/spec/pool/name"),
                    look.age(),
                ]
            },
        },
        "deviceclasses" | "resourceclaimtemplates" => NAME_AND_AGE,
        _ => return None,
    })
}

fn binding(look: &Look<'_>) -> Vec<Value> {
    let role = look.at("/roleRef");
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let subjects = look.list("/subjects").iter();
    let of_kind = |kind: &str| -> Value {
        let subjects = subjects.clone().filter(|subject| subject["kind"] == kind);
        let names = subjects.map(|subject| match kind {
            "ServiceAccount" => format!("{}/{}", text(subject, "namespace"), text(subject, "name")),
            _ => text(subject, "name"),
        });
        names.collect::<Vec<_>>().join(", ").into()
    };
    vec![
        look.name(),
        format!("{}/{}", text(role, "kind"), text(role, "name")).into(),
        look.age(),
        of_kind("User"),
        of_kind("Group"),
        of_kind("ServiceAccount"),
    ]
}

fn signing_request(look: &Look<'_>) -> Vec<Value> {
    let duration = match look.at("/spec/expirationSeconds").as_i64() {
        Some(seconds) => age::human(seconds),
        None => "<none>".to_owned(),
    };
    let conditions = look.list("/status/conditions");
    let has = |kind: &str| conditions.iter().any(|condition| condition["type"] == kind);
    let mut state = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if has("Failed") {
        state.push_str(",Failed");
    }
    if !look.str("/status/certificate").is_empty() {
        state.push_str(",Issued");
    }
    vec![
        look.name(),
        look.age(),
        look.or("/spec/signerName", "<none>"),
        look.text("/spec/username"),
        duration.into(),
        state.into(),
    ]
}

fn api_service(look: &Look<'_>) -> Vec<Value> {
    let service = look.at("/spec/service");
    let text = |field: &str| service[field].as_str().unwrap_or_default();
    let service = match service {
        Value::Null => "Local".to_owned(),
        _ => format!("{}/{}", text("namespace"), text("name")),
    };
    let conditions = look.list("/status/conditions").iter();
    let available = conditions.clone().find(|c| c["type"] == "Available");
    let available = match available {
        None => "Unknown".to_owned(),
        Some(condition) => {
            let status = condition["status"].as_str().unwrap_or_default();
            match condition["reason"].as_str().unwrap_or_default() {
                reason if status != "True" && !reason.is_empty() => format!("{status} ({reason})"),
                _ => status.to_owned(),
            }
        }
    };
    vec![look.name(), service.into(), available.into(), look.age()]
}

fn policy(look: &Look<'_>, expressions: &str) -> Vec<Value> {
    let kind = look.at("/spec/paramKind");
    let text = |field: &str| kind[field].as_str().unwrap_or_default();
    let kind = match kind {
        Value::Null => "<unset>".to_owned(),
        _ => format!("{}/{}", text("apiVersion"), text("kind")),
    };
    vec![
        look.name(),
        look.count(expressions).into(),
        kind.into(),
        look.age(),
    ]
}

fn parameters(look: &Look<'_>) -> Value {
    let reference = look.at("/spec/paramRef");
    let text = |field: &str| reference[field].as_str().filter(|text| !text.is_empty());
    match (text("namespace"), text("name")) {
        (Some(namespace), Some(name)) => format!("{namespace}/{name}").into(),
        (None, Some(name)) => format!("*/{name}").into(),
        (_, None) if !reference["selector"].is_null() => selector(&reference["selector"]).into(),
        (_, None) => "<unset>".into(),
    }
}

fn flow_schema(look: &Look<'_>) -> Vec<Value> {
    let conditions = look.list("/status/conditions").iter();
    let dangling = conditions.clone().find(|c| c["type"] == "Dangling");
    let dangling = dangling.and_then(|condition| condition["status"].as_str());
    vec![
        look.name(),
        look.text("/spec/priorityLevelConfiguration/name"),
        look.number("/spec/matchingPrecedence").into(),
        look.or("/spec/distinguisherMethod/type", "<none>"),
        look.age(),
        dangling.unwrap_or("?").into(),
    ]
}

fn priority_level(look: &Look<'_>) -> Vec<Value> {
    let number = |path: &str| match look.at(path).as_i64() {
        Some(number) => number.into(),
        None => Value::from("<none>"),
    };
    vec![
        look.name(),
        look.text("/spec/type"),
        number("/spec/limited/nominalConcurrencyShares"),
        number("/spec/limited/limitResponse/queuing/queues"),
        number("/spec/limited/limitResponse/queuing/handSize"),
        number("/spec/limited/limitResponse/queuing/queueLengthLimit"),
        look.age(),
    ]
}

fn claim_state(look: &Look<'_>) -> String {
    let allocated = !look.at("/status/allocation").is_null();
    let reserved = allocated && !look.list("/status/reservedFor").is_empty();
    let states = [
        (look.deleting(), "deleted"),
        (!allocated && !look.deleting(), "pending"),
        (allocated, "allocated"),
        (reserved, "reserved"),
    ];
    let states: Vec<&str> = states
        .iter()
        .filter(|(holds, _)| *holds)
        .map(|(_, state)| *state)
        .collect();
    states.join(",")
}

#[cfg(test)]
mod tests;
