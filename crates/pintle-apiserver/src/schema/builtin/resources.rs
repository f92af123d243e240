//! The resources that are served.

use std::sync::LazyLock;

static TABLE: &str = include_str!("../tables/resources.txt");

/// One version of one group.
#[derive(Debug)]
pub(crate) struct GroupVersion {
    /// The group; empty for the core group.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The resources, sorted by name.
    pub resources: Vec<Resource>,
}

/// A resource in one group version.
#[derive(Debug)]
pub(crate) struct Resource {
    /// The group; empty for the core group.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The name in URLs: `deployments`.
    pub plural: &'static str,
    /// The singular name: `deployment`.
    pub singular: &'static str,
    /// The kind of its objects.
    pub kind: &'static str,
    /// True if objects are namespaced.
    pub namespaced: bool,
    /// Supported verbs, sorted.
    pub verbs: Vec<&'static str>,
    /// Abbreviations for the command line.
    pub short_names: Vec<&'static str>,
    /// Categories such as `all`.
    pub categories: Vec<&'static str>,
    /// The storage version hash; `None` for resources that are not stored.
    pub storage_version_hash: Option<&'static str>,
    /// Subresources.
    pub subresources: Vec<Subresource>,
}

/// A subresource: `deployments/scale`.
#[derive(Debug)]
pub(crate) struct Subresource {
    /// The last path segment: `scale`.
    pub name: &'static str,
    /// The group of the exchanged kind, if it differs from the resource's.
    pub group: Option<&'static str>,
    /// The version of the exchanged kind, if it differs from the resource's.
    pub version: Option<&'static str>,
    /// The exchanged kind.
    pub kind: &'static str,
    /// Supported verbs, sorted.
    pub verbs: Vec<&'static str>,
}

impl Resource {
    /// Returns true if objects of this resource are stored.
    pub(crate) fn stored(&self) -> bool {
        self.storage_version_hash.is_some()
    }
}

static ALL: LazyLock<Vec<GroupVersion>> = LazyLock::new(|| parse(TABLE));

/// Returns every group version in discovery order, the core group first.
pub(crate) fn group_versions() -> &'static [GroupVersion] {
    &ALL
}

fn parse(table: &'static str) -> Vec<GroupVersion> {
    let mut all: Vec<GroupVersion> = Vec::new();
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split('\t');
        let mut word = || words.next().unwrap_or_default();
        let name = word();
        if name == "G" {
            let name = word();
            let (group, version) = name.split_once('/').unwrap_or(("", name));
            all.push(GroupVersion {
                group,
                version,
                resources: Vec::new(),
            });
            continue;
        }
        let Some(at) = all.last_mut() else { continue };
        let singular = word();
        let kind = word();
        let namespaced = word() == "N";
        let verbs = list(word());
        if let Some((parent, name)) = name.split_once('/') {
            let mut parts = kind.rsplitn(3, '/');
            let kind = parts.next().unwrap_or_default();
            let (version, group) = (parts.next(), parts.next());
            let parent = at
                .resources
                .iter_mut()
                .find(|resource| resource.plural == parent);
            if let Some(parent) = parent {
                let subresource = Subresource {
                    name,
                    group,
                    version,
                    kind,
                    verbs,
                };
                parent.subresources.push(subresource);
            }
            continue;
        }
        at.resources.push(Resource {
            group: at.group,
            version: at.version,
            plural: name,
            singular,
            kind,
            namespaced,
            verbs,
            short_names: list(word()),
            categories: list(word()),
            storage_version_hash: Some(word()).filter(|hash| *hash != "-"),
            subresources: Vec::new(),
        });
    }
    all
}

fn list(words: &'static str) -> Vec<&'static str> {
    if words == "-" {
        Vec::new()
    } else {
        words.split(',').collect()
    }
}

#[cfg(test)]
mod tests;
