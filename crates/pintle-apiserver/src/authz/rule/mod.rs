//! One rule of a role: which verbs on which resources or paths.

mod cover;

use std::{borrow::Cow, fmt};

use serde_json::{Value, json};

pub(crate) use self::cover::{Cover, Effort};
use super::access::{Access, Resource, What};

const ALL: &str = "*";

/// One rule of a role.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) verbs: Vec<String>,
    pub(crate) groups: Vec<String>,
    pub(crate) resources: Vec<String>,
    /// Empty for all names.
    pub(crate) names: Vec<String>,
    pub(crate) urls: Vec<String>,
}

impl Rule {
    /// Reads the `rules` of a role.
    pub(crate) fn read_all(rules: &Value) -> Vec<Self> {
        let rules = rules.as_array().into_iter().flatten();
        rules.map(Self::read).collect()
    }

    fn read(rule: &Value) -> Self {
        let list = |name: &str| -> Vec<String> {
            let items = rule[name].as_array().into_iter().flatten();
            items.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            verbs: list("verbs"),
            groups: list("apiGroups"),
            resources: list("resources"),
            names: list("resourceNames"),
            urls: list("nonResourceURLs"),
        }
    }

    /// Returns the rules of `cluster-admin`.
    pub(crate) fn everything() -> [Self; 2] {
        let all = || vec![ALL.to_owned()];
        [
            Self {
                verbs: all(),
                groups: all(),
                resources: all(),
                ..Self::default()
            },
            Self {
                verbs: all(),
                urls: all(),
                ..Self::default()
            },
        ]
    }

    /// Returns true if the rule grants the access.
    pub(crate) fn allows(&self, access: &Access<'_>) -> bool {
        if !self.has_verb(&access.verb) {
            return false;
        }
        match &access.what {
            What::Path(path) => self.urls.iter().any(|url| url_covers(url, path)),
            What::Resource(resource) => {
                has(&self.groups, &resource.group)
                    && self.has_resource(resource)
                    && (self.names.is_empty() || self.names.iter().any(|n| *n == resource.name))
            }
        }
    }

    fn has_verb(&self, verb: &str) -> bool {
        has(&self.verbs, verb)
    }

    fn has_resource(&self, resource: &Resource<'_>) -> bool {
        let combined = resource.combined();
        self.resources.iter().any(|own| {
            own == ALL
                || *own == *combined
                || (!resource.sub.is_empty() && own.strip_prefix("*/") == Some(&*resource.sub))
        })
    }

    /// Returns how many rules [`split`](Self::split) returns.
    pub(crate) fn parts(&self) -> usize {
        let names = self.names.len().max(1);
        let resources = [self.resources.len(), names, self.verbs.len()];
        let resources = resources
            .into_iter()
            .fold(self.groups.len(), usize::saturating_mul);
        resources.saturating_add(self.urls.len().saturating_mul(self.verbs.len()))
    }

    /// Splits the rule into rules with one verb, group, resource, name or path each.
    pub(crate) fn split(&self) -> Vec<Self> {
        let one = |text: &str| vec![text.to_owned()];
        let mut parts = Vec::new();
        for group in &self.groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let part = Self {
                        verbs: one(verb),
                        groups: one(group),
                        resources: one(resource),
                        ..Self::default()
                    };
                    if self.names.is_empty() {
                        parts.push(part);
                        continue;
                    }
                    parts.extend(self.names.iter().map(|name| Self {
                        names: one(name),
                        ..part.clone()
                    }));
                }
            }
        }
        for url in &self.urls {
            parts.extend(self.verbs.iter().map(|verb| Self {
                verbs: one(verb),
                urls: one(url),
                ..Self::default()
            }));
        }
        parts
    }

    /// Returns the rule as an entry of `resourceRules` in a rules review.
    pub(crate) fn resource_info(&self) -> Value {
        let mut info = json!({"verbs": self.verbs});
        for (name, list) in [
            ("apiGroups", &self.groups),
            ("resources", &self.resources),
            ("resourceNames", &self.names),
        ] {
            if !list.is_empty() {
                info[name] = json!(list);
            }
        }
        info
    }
}

/// Formats the rule as escalation errors do.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.urls),
            ("ResourceNames", &self.names),
            ("Verbs", &self.verbs),
        ];
        let parts = parts.into_iter().filter(|(_, list)| !list.is_empty());
        let parts: Vec<String> = parts
            .map(|(name, list)| format!("{name}:{}", quoted(list)))
            .collect();
        write!(f, "{{{}}}", parts.join(", "))
    }
}

/// Formats strings like Go's `%q` of a slice.
pub(crate) fn quoted(list: &[String]) -> Cow<'static, str> {
    let items: Vec<String> = list.iter().map(|item| format!("{item:?}")).collect();
    format!("[{}]", items.join(" ")).into()
}

fn has(own: &[String], wanted: &str) -> bool {
    own.iter().any(|text| text == ALL || text == wanted)
}

/// Returns true if a path, which may end in `*`, covers another path.
fn url_covers(own: &str, wanted: &str) -> bool {
    own == wanted || (own.ends_with('*') && wanted.starts_with(own.trim_end_matches('*')))
}

#[cfg(test)]
mod tests;
