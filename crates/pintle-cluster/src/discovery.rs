//! Discovers the kinds that the server serves.

use std::collections::BTreeSet;

use kube::{Client, core::ApiResource};

/// A kind in one version.
#[derive(Clone, Debug)]
pub(crate) struct Discovered {
    pub(crate) resource: ApiResource,
    pub(crate) namespaced: bool,
    verbs: Vec<String>,
}

impl Discovered {
    pub(crate) fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|it| it == verb)
    }
}

/// Returns every kind once, in the preferred version of its group, or in the first version that
/// serves it with any verb. Subresources are left out.
///
/// Groups and versions are separate requests, so a version may disappear in between along with its
/// CRD. It then has no kinds.
pub(crate) async fn kinds(client: &Client) -> Result<Vec<Discovered>, kube::Error> {
    let mut kinds = Vec::new();
    let core = client.list_core_api_resources("v1").await?;
    let mut lists = vec![(String::new(), "v1".to_owned(), core)];
    for group in client.list_api_groups().await?.groups {
        let mut versions: Vec<_> = group.preferred_version.into_iter().collect();
        versions.extend(group.versions);
        let mut read = BTreeSet::new();
        for version in versions {
            if read.insert(version.group_version.clone()) {
                match client
                    .list_api_group_resources(&version.group_version)
                    .await
                {
                    Ok(list) => lists.push((group.name.clone(), version.version, list)),
                    // The response for an unknown version is plain text, without the reason that
                    // `Status::is_not_found` checks.
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
    let mut seen = BTreeSet::new();
    for (group, version, list) in lists {
        let resources = list.resources.into_iter();
        kinds.extend(
            resources
                .filter(|kind| !kind.name.contains('/'))
                .filter(|kind| !kind.verbs.is_empty())
                .filter(|kind| seen.insert((group.clone(), kind.kind.clone())))
                .map(|kind| Discovered {
                    resource: resource(&group, &version, &kind.kind, &kind.name),
                    namespaced: kind.namespaced,
                    verbs: kind.verbs,
                }),
        );
    }
    Ok(kinds)
}

pub(crate) fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: group.into(),
        version: version.into(),
        api_version: if group.is_empty() {
            version.into()
        } else {
            format!("{group}/{version}")
        },
        kind: kind.into(),
        plural: plural.into(),
    }
}
