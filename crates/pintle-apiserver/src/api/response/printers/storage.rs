//! Printers of volumes, claims, storage classes and CSI drivers.

use serde_json::Value;

use super::{builtin::Printer, look::Look};

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
            cells: |look| {
                vec![
                    look.name_or_default("storageclass.kubernetes.io/is-default-class"),
                    look.text("/provisioner"),
                    look.or("/reclaimPolicy", "Delete"),
                    look.or("/volumeBindingMode", "Immediate"),
                    look.flag("/allowVolumeExpansion", false),
                    look.age(),
                ]
            },
        },
        "volumeattributesclasses" => Printer {
            columns: &["Name", "DriverName", "Age"],
            cells: |look| vec![look.name(), look.text("/driverName"), look.age()],
        },
        "volumeattachments" => Printer {
            columns: &["Name", "Attacher", "PV", "Node", "Attached:boolean", "Age"],
            cells: |look| {
                vec![
                    look.name(),
                    look.text("/spec/attacher"),
                    look.text("/spec/source/persistentVolumeName"),
                    look.text("/spec/nodeName"),
                    look.flag("/status/attached", false),
                    look.age(),
                ]
            },
        },
        "csinodes" => Printer {
            columns: &["Name", "Drivers:integer", "Age"],
            cells: |look| vec![look.name(), look.count("/spec/drivers").into(), look.age()],
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

fn driver(look: &Look<'_>) -> Vec<Value> {
    let tokens = match look.at("/spec/tokenRequests").as_array() {
        None => "<unset>".to_owned(),
        Some(requests) => {
            let audiences = requests.iter().filter_map(|r| r["audience"].as_str());
            audiences.collect::<Vec<_>>().join(",")
        }
    };
    let modes = match look.joined("/spec/volumeLifecycleModes", ",") {
        modes if modes.is_empty() => "<none>".to_owned(),
        modes => modes,
    };
    vec![
        look.name(),
        look.flag("/spec/attachRequired", true),
        look.flag("/spec/podInfoOnMount", false),
        look.flag("/spec/storageCapacity", false),
        tokens.into(),
        look.flag("/spec/requiresRepublish", false),
        modes.into(),
        look.age(),
    ]
}

/// The cells of a `PersistentVolume`.
pub(super) fn volume(look: &Look<'_>) -> Vec<Value> {
    let claim = look.at("/spec/claimRef");
    let text = |field: &str| claim[field].as_str().unwrap_or_default();
    let claim = match claim {
        Value::Null => String::new(),
        _ => format!("{}/{}", text("namespace"), text("name")),
    };
    vec![
        look.name(),
        look.or("/spec/capacity/storage", "0"),
        access_modes(look.list("/spec/accessModes")),
        look.text("/spec/persistentVolumeReclaimPolicy"),
        phase(look),
        claim.into(),
        class(look),
        look.or("/spec/volumeAttributesClassName", "<unset>"),
        look.text("/status/reason"),
        look.age(),
        look.or("/spec/volumeMode", "<unset>"),
    ]
}

/// The cells of a `PersistentVolumeClaim`; its capacity is shown once it is bound.
pub(super) fn claim(look: &Look<'_>) -> Vec<Value> {
    let bound = !look.str("/spec/volumeName").is_empty();
    let (capacity, modes) = if bound {
        (
            look.or("/status/capacity/storage", "0"),
            access_modes(look.list("/status/accessModes")),
        )
    } else {
        ("".into(), "".into())
    };
    vec![
        look.name(),
        phase(look),
        look.text("/spec/volumeName"),
        capacity,
        modes,
        class(look),
        look.or("/spec/volumeAttributesClassName", "<unset>"),
        look.age(),
        look.or("/spec/volumeMode", "<unset>"),
    ]
}

fn phase(look: &Look<'_>) -> Value {
    if look.deleting() {
        return "Terminating".into();
    }
    look.text("/status/phase")
}

fn class(look: &Look<'_>) -> Value {
    match look.annotation("volume.beta.kubernetes.io/storage-class") {
        "" => look.text("/spec/storageClassName"),
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
