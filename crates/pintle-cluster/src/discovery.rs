//! Which kinds the server has.

use kube::{Client, core::ApiResource};

/// One kind in its preferred version.
#[derive(Clone, Debug)]
pub(crate) struct Discovered {
    pub(crate) resource: ApiResource,
    pub(crate) namespaced: bool,
    verbs: Vec<String>,
}

impl Discovered {
    pub(crate) fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|have| have == verb)
    }
}

/// All kinds of the server, each once, in its group's preferred version; subresources left out.
pub(crate) async fn kinds(client: &Client) -> Result<Vec<Discovered>, kube::Error> {
    let mut kinds = Vec::new();
    let core = client.list_core_api_resources("v1").await?;
    let mut lists = vec![("".to_owned(), "v1".to_owned(), core)];
    for group in client.list_api_groups().await?.groups {
        let preferred = group
            .preferred_version
            .or_else(|| group.versions.into_iter().next());
        let Some(preferred) = preferred else { continue };
        let list = client
            .list_api_group_resources(&preferred.group_version)
            .await?;
        lists.push((group.name, preferred.version, list));
    }
    for (group, version, list) in lists {
        let resources = list.resources.into_iter();
        kinds.extend(
            resources
                .filter(|kind| !kind.name.contains('/'))
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
