//! Printers of volumes, claims, storage classes and CSI drivers.

use serde_json::Value;

use super::{builtin::Printer, fields::Fields};

pub(super) fn printer(group: &str, plural: &str) -> Option<Printer> {
    if group != "storage.k8s.io" {
        return None;
    }
    Some(match plural {
        "storageclasses" => Printer {
            columns: &[
                "Name",
                "Provisioner",
                "ReclaimPolicy",
                "VolumeBindingMode",
                "AllowVolumeExpansion",
                "Age",
            ],
            cells: |fields| {
                vec![
                    fields.name_or_default("storageclass.kubernetes.io/is-default-class"),
                    fields.text("/provisioner"),
                    fields.or("/reclaimPolicy", "Delete"),
                    fields.or("/volumeBindingMode", "Immediate"),
                    fields.flag("/allowVolumeExpansion", false),
                    fields.age(),
                ]
            },
        },
        "volumeattributesclasses" => Printer {
            columns: &["Name", "DriverName", "Age"],
            cells: |fields| vec![fields.name(), fields.text("/driverName"), fields.age()],
        },
        "volumeattachments" => Printer {
            columns: &["Name", "Attacher", "PV", "Node", "Attached:boolean", "Age"],
            cells: |fields| {
                vec![
                    fields.name(),
                    fields.text("/spec/attacher"),
                    fields.text("/spec/source/persistentVolumeName"),
                    fields.text("/spec/nodeName"),
                    fields.flag("/status/attached", false),
                    fields.age(),
                ]
            },
        },
        "csinodes" => Printer {
            columns: &["Name", "Drivers:integer", "Age"],
            cells: |fields| {
                vec![
                    fields.name(),
                    fields.count("/spec/drivers").into(),
                    fields.age(),
                ]
            },
        },
        "csidrivers" => Printer {
            columns: &[
                "Name",
                "AttachRequired:boolean",
                "PodInfoOnMount:boolean",
                "StorageCapacity:boolean",
                "TokenRequests",
                "RequiresRepublish:boolean",
                "Modes",
                "Age",
            ],
            cells: driver,
        },
        _ => return None,
    })
}

fn driver(fields: &Fields<'_>) -> Vec<Value> {
    let tokens = match fields.at("/spec/tokenRequests").as_array() {
        None => "<unset>".to_owned(),
        Some(requests) => {
            let audiences = requests.iter().filter_map(|r| r["audience"].as_str());
            audiences.collect::<Vec<_>>().join(",")
        }
    };
    let modes = match fields.joined("/spec/volumeLifecycleModes", ",") {
        modes if modes.is_empty() => "<none>".to_owned(),
        modes => modes,
    };
    vec![
        fields.name(),
        fields.flag("/spec/attachRequired", true),
        fields.flag("/spec/podInfoOnMount", false),
        fields.flag("/spec/storageCapacity", false),
        tokens.into(),
        fields.flag("/spec/requiresRepublish", false),
        modes.into(),
        fields.age(),
    ]
}

/// The cells of a `PersistentVolume`.
pub(super) fn volume(fields: &Fields<'_>) -> Vec<Value> {
    let claim = fields.at("/spec/claimRef");
    let text = |field: &str| claim[field].as_str().unwrap_or_default();
    let claim = match claim {
        Value::Null => String::new(),
        _ => format!("{}/{}", text("namespace"), text("name")),
    };
    vec![
        fields.name(),
        fields.or("/spec/capacity/storage", "0"),
        access_modes(fields.list("/spec/accessModes")),
        fields.text("/spec/persistentVolumeReclaimPolicy"),
        phase(fields),
        claim.into(),
        class(fields),
        fields.or("/spec/volumeAttributesClassName", "<unset>"),
        fields.text("/status/reason"),
        fields.age(),
        fields.or("/spec/volumeMode", "<unset>"),
    ]
}

/// The cells of a `PersistentVolumeClaim`; its capacity is shown once it is bound.
pub(super) fn claim(fields: &Fields<'_>) -> Vec<Value> {
    let bound = !fields.str("/spec/volumeName").is_empty();
    let (capacity, modes) = if bound {
        (
            fields.or("/status/capacity/storage", "0"),
            access_modes(fields.list("/status/accessModes")),
        )
    } else {
        ("".into(), "".into())
    };
    vec![
        fields.name(),
        phase(fields),
        fields.text("/spec/volumeName"),
        capacity,
        modes,
        class(fields),
        fields.or("/spec/volumeAttributesClassName", "<unset>"),
        fields.age(),
        fields.or("/spec/volumeMode", "<unset>"),
    ]
}

fn phase(fields: &Fields<'_>) -> Value {
    if fields.deleting() {
        return "Terminating".into();
    }
    fields.text("/status/phase")
}

fn class(fields: &Fields<'_>) -> Value {
    match fields.annotation("volume.beta.kubernetes.io/storage-class") {
        "" => fields.text("/spec/storageClassName"),
        class => class.into(),
    }
}

/// Abbreviates access modes, in a fixed order.
fn access_modes(modes: &[Value]) -> Value {
    let known = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let short: Vec<&str> = known
        .iter()
        .filter(|(mode, _)| modes.iter().any(|other| other == mode))
        .map(|(_, short)| *short)
        .collect();
    short.join(",").into()
}

#[cfg(test)]
mod tests;
