//! Field managers: decoding and encoding of `metadata.managedFields`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::set::FieldSet;

/// The maximum number of `Update` entries; the oldest are merged beyond that.
const MAX_UPDATERS: usize = 10;

/// The manager of merged entries.
const ANCIENT: &str = "ancient-changes";

/// The identity of a manager, ordered like the entries in conflict messages.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id {
    pub(super) manager: String,
    pub(super) applies: bool,
    /// Empty for operation `Apply`, whose entries are the same in every version.
    pub(super) api_version: String,
    pub(super) subresource: String,
}

/// The fields that one manager owns.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) api_version: String,
    pub(super) time: Option<String>,
    pub(super) fields: FieldSet,
}

/// All managers of an object.
#[derive(Debug, Clone, Default)]
pub(super) struct Managed {
    pub(super) entries: BTreeMap<Id, Entry>,
}

/// Returns the `managedFields` list of an object.
pub(super) fn list(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

/// Returns true if a list requests a reset of all managers: `[]` or `[{}]`.
pub(super) fn is_reset(list: Option<&Value>) -> bool {
    match list {
        Some(Value::Array(items)) => match items.as_slice() {
            [] => true,
            [one] => one.as_object().is_some_and(Map::is_empty),
            _ => false,
        },
        _ => false,
    }
}

impl Managed {
    /// Decodes a list. Returns `None` if any entry is invalid.
    pub(super) fn read(list: Option<&Value>) -> Option<Self> {
        let mut managed = Self::default();
        for entry in list.and_then(Value::as_array).into_iter().flatten() {
            let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
            let applies = match text("operation") {
                "Apply" => true,
                "Update" => false,
                _ => return None,
            };
            if text("apiVersion").is_empty() || text("fieldsType") != "FieldsV1" {
                return None;
            }
            let fields = match entry.get("fieldsV1") {
                None | Some(Value::Null) => FieldSet::default(),
                Some(fields) => FieldSet::from_json(fields)?,
            };
            let id = Id {
                manager: text("manager").to_owned(),
                applies,
                api_version: if applies {
                    String::new()
                } else {
                    text("apiVersion").to_owned()
                },
                subresource: text("subresource").to_owned(),
            };
            let time = entry.get("time").and_then(Value::as_str).map(str::to_owned);
            let api_version = text("apiVersion").to_owned();
            managed.entries.insert(
                id,
                Entry {
                    api_version,
                    time,
                    fields,
                },
            );
        }
        Some(managed)
    }

    /// Writes the list to an object: `Apply` entries first, then by time and name.
    pub(super) fn write(self, object: &mut Value) {
        let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
            return;
        };
        if self.entries.is_empty() {
            metadata.remove("managedFields");
            return;
        }
        let mut entries: Vec<(Id, Entry)> = self.entries.into_iter().collect();
        entries.sort_by(|(a, x), (b, y)| {
            let key = |id: &Id, entry: &Entry| {
                let time = entry.time.clone().unwrap_or_default();
                (
                    !id.applies,
                    time,
                    id.manager.clone(),
                    entry.api_version.clone(),
                    id.subresource.clone(),
                )
            };
            key(a, x).cmp(&key(b, y))
        });
        let list: Vec<Value> = entries
            .into_iter()
            .map(|(id, entry)| encode(&id, &entry))
            .collect();
        metadata.insert("managedFields".into(), list.into());
    }

    /// Limits the number of `Update` entries by merging the oldest, per version.
    pub(super) fn cap(&mut self) {
        if self.entries.len() <= MAX_UPDATERS {
            return;
        }
        let mut updaters: Vec<(String, Id)> = Vec::new();
        for (id, entry) in self.entries.iter().filter(|(id, _)| !id.applies) {
            updaters.push((entry.time.clone().unwrap_or_default(), id.clone()));
        }
        updaters.sort();
        let mut left = updaters.len();
        let mut first: BTreeMap<String, Id> = BTreeMap::new();
        for (_, id) in updaters {
            if left <= MAX_UPDATERS {
                break;
            }
            let Some(first) = first.get(&id.api_version) else {
                first.insert(id.api_version.clone(), id);
                continue;
            };
            let bucket = Id {
                manager: ANCIENT.into(),
                applies: false,
                api_version: id.api_version.clone(),
                subresource: String::new(),
            };
            if !self.entries.contains_key(&bucket)
                && let Some(entry) = self.entries.remove(first)
            {
                self.entries.insert(bucket.clone(), entry);
            }
            if id == bucket {
                continue;
            }
            if let Some(entry) = self.entries.remove(&id)
                && let Some(ancient) = self.entries.get_mut(&bucket)
            {
                ancient.fields = ancient.fields.union(&entry.fields);
                ancient.time = entry.time;
                left -= 1;
            }
        }
    }
}

fn encode(id: &Id, entry: &Entry) -> Value {
    let mut out = json!({
        "manager": id.manager,
        "operation": if id.applies { "Apply" } else { "Update" },
        "apiVersion": entry.api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": entry.fields.to_json(),
    });
    if let Some(time) = &entry.time {
        out["time"] = time.as_str().into();
    }
    if !id.subresource.is_empty() {
        out["subresource"] = id.subresource.as_str().into();
    }
    out
}

impl Id {
    /// Formats a manager as conflict messages do.
    pub(super) fn show(&self) -> String {
        let mut out = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            out = format!("{out} with subresource {:?}", self.subresource);
        }
        if !self.applies {
            out = format!("{out} using {}", self.api_version);
        }
        out
    }
}
