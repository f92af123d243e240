//! Printers of kinds that configure the cluster: access, admission, scheduling, devices, flow
//! control.

use serde_json::Value;

use super::{
    age,
    builtin::Printer,
    fields::{Fields, selector},
};

const NAME_AND_AGE: Printer = Printer {
    columns: &["Name", "Age"],
    cells: |fields| vec![fields.name(), fields.age()],
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
            cells: |fields| {
                vec![
                    fields.name(),
                    fields.text("/spec/holderIdentity"),
                    fields.age(),
                ]
            },
        },
        ("scheduling.k8s.io", "priorityclasses") => Printer {
            columns: &[
                "Name",
                "Value:integer",
                "Global-Default:boolean",
                "Age",
                "PreemptionPolicy",
            ],
            cells: |fields| {
                vec![
                    fields.name(),
                    fields.number("/value").into(),
                    fields.flag("/globalDefault", false),
                    fields.age(),
                    fields.text("/preemptionPolicy"),
                ]
            },
        },
        ("node.k8s.io", "runtimeclasses") => Printer {
            columns: &["Name", "Handler", "Age"],
            cells: |fields| vec![fields.name(), fields.text("/handler"), fields.age()],
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
            cells: |fields| {
                vec![
                    fields.name(),
                    fields.count("/webhooks").into(),
                    fields.age(),
                ]
            },
        },
        "validatingadmissionpolicies" => Printer {
            columns: &["Name", "Validations:integer", "ParamKind", "Age"],
            cells: |fields| policy(fields, "/spec/validations"),
        },
        "mutatingadmissionpolicies" => Printer {
            columns: &["Name", "Mutations:integer", "ParamKind", "Age"],
            cells: |fields| policy(fields, "/spec/mutations"),
        },
        "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings" => Printer {
            columns: &["Name", "PolicyName", "ParamRef", "Age"],
            cells: |fields| {
                let policy = fields.text("/spec/policyName");
                vec![fields.name(), policy, parameters(fields), fields.age()]
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
            cells: |fields| vec![fields.name(), claim_state(fields).into(), fields.age()],
        },
        "resourceslices" => Printer {
            columns: &["Name", "Node", "Driver", "Pool", "Age"],
            cells: |fields| {
                vec![
                    fields.name(),
                    fields.text("/spec/nodeName"),
                    fields.text("/spec/driver"),
                    fields.text("/spec/pool/name"),
                    fields.age(),
                ]
            },
        },
        "deviceclasses" | "resourceclaimtemplates" => NAME_AND_AGE,
        _ => return None,
    })
}

fn binding(fields: &Fields<'_>) -> Vec<Value> {
    let role = fields.at("/roleRef");
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let subjects = fields.list("/subjects").iter();
    let of_kind = |kind: &str| -> Value {
        let subjects = subjects.clone().filter(|subject| subject["kind"] == kind);
        let names = subjects.map(|subject| match kind {
            "ServiceAccount" => format!("{}/{}", text(subject, "namespace"), text(subject, "name")),
            _ => text(subject, "name"),
        });
        names.collect::<Vec<_>>().join(", ").into()
    };
    vec![
        fields.name(),
        format!("{}/{}", text(role, "kind"), text(role, "name")).into(),
        fields.age(),
        of_kind("User"),
        of_kind("Group"),
        of_kind("ServiceAccount"),
    ]
}

fn signing_request(fields: &Fields<'_>) -> Vec<Value> {
    let duration = match fields.at("/spec/expirationSeconds").as_i64() {
        Some(seconds) => age::human(seconds),
        None => "<none>".to_owned(),
    };
    let conditions = fields.list("/status/conditions");
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
    if !fields.str("/status/certificate").is_empty() {
        state.push_str(",Issued");
    }
    vec![
        fields.name(),
        fields.age(),
        fields.or("/spec/signerName", "<none>"),
        fields.text("/spec/username"),
        duration.into(),
        state.into(),
    ]
}

fn api_service(fields: &Fields<'_>) -> Vec<Value> {
    let service = fields.at("/spec/service");
    let text = |field: &str| service[field].as_str().unwrap_or_default();
    let service = match service {
        Value::Null => "Local".to_owned(),
        _ => format!("{}/{}", text("namespace"), text("name")),
    };
    let conditions = fields.list("/status/conditions").iter();
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
    vec![
        fields.name(),
        service.into(),
        available.into(),
        fields.age(),
    ]
}

fn policy(fields: &Fields<'_>, expressions: &str) -> Vec<Value> {
    let kind = fields.at("/spec/paramKind");
    let text = |field: &str| kind[field].as_str().unwrap_or_default();
    let kind = match kind {
        Value::Null => "<unset>".to_owned(),
        _ => format!("{}/{}", text("apiVersion"), text("kind")),
    };
    vec![
        fields.name(),
        fields.count(expressions).into(),
        kind.into(),
        fields.age(),
    ]
}

fn parameters(fields: &Fields<'_>) -> Value {
    let reference = fields.at("/spec/paramRef");
    let text = |field: &str| reference[field].as_str().filter(|text| !text.is_empty());
    match (text("namespace"), text("name")) {
        (Some(namespace), Some(name)) => format!("{namespace}/{name}").into(),
        (None, Some(name)) => format!("*/{name}").into(),
        (_, None) if !reference["selector"].is_null() => selector(&reference["selector"]).into(),
        (_, None) => "<unset>".into(),
    }
}

fn flow_schema(fields: &Fields<'_>) -> Vec<Value> {
    let conditions = fields.list("/status/conditions").iter();
    let dangling = conditions.clone().find(|c| c["type"] == "Dangling");
    let dangling = dangling.and_then(|condition| condition["status"].as_str());
    vec![
        fields.name(),
        fields.text("/spec/priorityLevelConfiguration/name"),
        fields.number("/spec/matchingPrecedence").into(),
        fields.or("/spec/distinguisherMethod/type", "<none>"),
        fields.age(),
        dangling.unwrap_or("?").into(),
    ]
}

fn priority_level(fields: &Fields<'_>) -> Vec<Value> {
    let number = |path: &str| match fields.at(path).as_i64() {
        Some(number) => number.into(),
        None => Value::from("<none>"),
    };
    vec![
        fields.name(),
        fields.text("/spec/type"),
        number("/spec/limited/nominalConcurrencyShares"),
        number("/spec/limited/limitResponse/queuing/queues"),
        number("/spec/limited/limitResponse/queuing/handSize"),
        number("/spec/limited/limitResponse/queuing/queueLengthLimit"),
        fields.age(),
    ]
}

fn claim_state(fields: &Fields<'_>) -> String {
    let allocated = !fields.at("/status/allocation").is_null();
    let reserved = allocated && !fields.list("/status/reservedFor").is_empty();
    let states = [
        (fields.deleting(), "deleted"),
        (!allocated && !fields.deleting(), "pending"),
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
