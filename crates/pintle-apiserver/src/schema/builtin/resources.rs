//! Which resources are served, and how.

use std::sync::LazyLock;

static TABLE: &str = include_str!("../tables/resources.txt");

/// One version of one group, with its resources in the order discovery lists them.
#[derive(Debug)]
pub(crate) struct GroupVersion {
    /// The group; empty for the core group.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The resources, sorted by name.
    pub resources: Vec<Resource>,
}

/// One resource of a group and version.
#[derive(Debug)]
pub(crate) struct Resource {
    /// The group; empty for the core group.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The name in URLs: `deployments`.
    pub plural: &'static str,
    /// The name people may say: `deployment`.
    pub singular: &'static str,
    /// The kind of its objects.
    pub kind: &'static str,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// What can be done with it, sorted.
    pub verbs: Vec<&'static str>,
    /// What people type instead.
    pub short_names: Vec<&'static str>,
    /// Which sets it belongs to: `all`.
    pub categories: Vec<&'static str>,
    /// The hash of its storage version, if it is stored.
    pub storage_version_hash: Option<&'static str>,
    /// What stands below an object.
    pub subresources: Vec<Subresource>,
}

/// Something below an object: `deployments/scale`.
#[derive(Debug)]
pub(crate) struct Subresource {
    /// The name after the object's: `scale`.
    pub name: &'static str,
    /// The group of what is exchanged, where it differs from the resource's.
    pub group: Option<&'static str>,
    /// The version of what is exchanged, where it differs from the resource's.
    pub version: Option<&'static str>,
    /// The kind of what is exchanged.
    pub kind: &'static str,
    /// What can be done with it, sorted.
    pub verbs: Vec<&'static str>,
}

impl Resource {
    /// The subresource of that name.
    pub(crate) fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources
            .iter()
            .find(|subresource| subresource.name == name)
    }

    /// True if objects of this resource are stored, rather than answered and forgotten.
    pub(crate) fn stored(&self) -> bool {
        self.storage_version_hash.is_some()
    }
}

static ALL: LazyLock<Vec<GroupVersion>> = LazyLock::new(|| parse(TABLE));

/// Every group and version, in the order of discovery: the core group first.
pub(crate) fn group_versions() -> &'static [GroupVersion] {
    &ALL
}

/// The resource of that name.
pub(crate) fn resource(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    let all = ALL
        .iter()
        .find(|gv| gv.group == group && gv.version == version)?;
    all.resources
        .iter()
        .find(|resource| resource.plural == plural)
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
mod tests {
    use super::*;

    /// Proves discovery/resources.
    #[test]
    fn resources_know_their_names_verbs_and_subresources() {
        let deployments = resource("apps", "v1", "deployments").unwrap();
        assert_eq!(deployments.short_names, ["deploy"]);
        assert_eq!(deployments.categories, ["all"]);
        assert!(deployments.stored());
        let scale = deployments.subresource("scale").unwrap();
        assert_eq!(
            (scale.group, scale.version, scale.kind),
            (Some("autoscaling"), Some("v1"), "Scale")
        );
        let reviews = resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews").unwrap();
        assert_eq!(reviews.verbs, ["create"]);
        assert!(!reviews.stored());
    }

    /// Proves discovery/resources.
    #[test]
    fn every_group_the_pinned_server_serves_is_there() {
        let groups: Vec<&str> = group_versions().iter().map(|gv| gv.group).collect();
        for group in [
            "",
            "apps",
            "batch",
            "coordination.k8s.io",
            "events.k8s.io",
            "policy",
            "rbac.authorization.k8s.io",
            "apiextensions.k8s.io",
            "storage.k8s.io",
        ] {
            assert!(groups.contains(&group), "{group:?} is missing");
        }
        assert_eq!(groups[0], "", "the core group comes first");
    }
}
