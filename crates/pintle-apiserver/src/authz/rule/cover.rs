//! Compares many rules with one user's rules.

use std::{cell::Cell, collections::BTreeSet};

use super::{ALL, Rule};

/// How many comparisons are left.
#[derive(Debug)]
pub(crate) struct Effort(Cell<usize>);

impl Effort {
    pub(crate) fn new(limit: usize) -> Self {
        Self(Cell::new(limit))
    }

    /// Counts one comparison. Returns false if it exceeds the limit.
    fn spend(&self) -> bool {
        let left = self.0.get();
        self.0.set(left.saturating_sub(1));
        left > 0
    }

    /// Returns true if the limit was reached. Comparisons after that are meaningless.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.0.get() == 0
    }
}

/// A rule with its lists as sets, so that the cost of a comparison does not depend on their length.
#[derive(Debug)]
pub(crate) struct Cover<'a> {
    verbs: BTreeSet<&'a str>,
    groups: BTreeSet<&'a str>,
    resources: BTreeSet<&'a str>,
    /// Empty for all names.
    names: BTreeSet<&'a str>,
    urls: BTreeSet<&'a str>,
    /// The prefixes of paths that end in `*`.
    prefixes: Vec<&'a str>,
}

impl<'a> Cover<'a> {
    pub(crate) fn new(rule: &'a Rule) -> Self {
        let set = |list: &'a [String]| list.iter().map(String::as_str).collect();
        let prefixes = rule.urls.iter().filter(|url| url.ends_with('*'));
        Self {
            verbs: set(&rule.verbs),
            groups: set(&rule.groups),
            resources: set(&rule.resources),
            names: set(&rule.names),
            urls: set(&rule.urls),
            prefixes: prefixes.map(|url| url.trim_end_matches('*')).collect(),
        }
    }

    /// Returns true if the rule grants everything that `wanted` grants.
    pub(crate) fn covers(&self, wanted: &Rule, effort: &Effort) -> bool {
        let all = |own: &BTreeSet<&str>, wanted: &[String]| {
            let mut wanted = wanted.iter();
            wanted.all(|text| effort.spend() && has(own, text))
        };
        all(&self.verbs, &wanted.verbs)
            && all(&self.groups, &wanted.groups)
            && wanted
                .resources
                .iter()
                .all(|resource| effort.spend() && self.has_resource(resource))
            && wanted.urls.iter().all(|url| self.has_url(url, effort))
            && (self.names.is_empty()
                || (!wanted.names.is_empty()
                    && wanted
                        .names
                        .iter()
                        .all(|name| effort.spend() && self.names.contains(&**name))))
    }

    fn has_resource(&self, wanted: &str) -> bool {
        let sub = wanted.split_once('/').map(|(_, sub)| format!("*/{sub}"));
        has(&self.resources, wanted) || sub.is_some_and(|sub| self.resources.contains(&*sub))
    }

    fn has_url(&self, wanted: &str, effort: &Effort) -> bool {
        effort.spend()
            && (self.urls.contains(wanted)
                || self
                    .prefixes
                    .iter()
                    .any(|prefix| effort.spend() && wanted.starts_with(prefix)))
    }
}

fn has(own: &BTreeSet<&str>, wanted: &str) -> bool {
    own.contains(ALL) || own.contains(wanted)
}
