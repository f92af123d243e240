//! The objects that every namespace has.

use k8s_openapi::{
    api::core::v1::{ConfigMap, Namespace, ServiceAccount},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::meta;

/// The service account of Pods that name none.
pub(crate) const DEFAULT_ACCOUNT: &str = "default";
/// The ConfigMap with the CA certificate of the API server.
pub(crate) const ROOT_CA: &str = "kube-root-ca.crt";

/// A write to a namespace.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    CreateAccount(ServiceAccount),
    CreateMap(ConfigMap),
    UpdateMap(ConfigMap),
}

/// Returns the writes a namespace needs. A terminating namespace needs none.
pub(crate) fn plan(
    namespace: &Namespace,
    has_account: bool,
    map: Option<&ConfigMap>,
    root_ca: &str,
) -> Vec<Step> {
    let terminating = meta::is_being_deleted(&namespace.metadata)
        || namespace
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref())
            == Some("Terminating");
    if terminating {
        return Vec::new();
    }
    let named = |name: &str| ObjectMeta {
        name: Some(name.into()),
        namespace: namespace.metadata.name.clone(),
        ..ObjectMeta::default()
    };
    let mut steps = Vec::new();
    if !has_account {
        let metadata = named(DEFAULT_ACCOUNT);
        steps.push(Step::CreateAccount(ServiceAccount {
            metadata,
            ..ServiceAccount::default()
        }));
    }
    let data = Some([("ca.crt".to_owned(), root_ca.to_owned())].into());
    match map {
        None => {
            let metadata = ObjectMeta {
                annotations: Some(
                    [(
                        "kubernetes.io/description".to_owned(),
                        "The certificate authority of this cluster's API server.".to_owned(),
                    )]
                    .into(),
                ),
                ..named(ROOT_CA)
            };
            steps.push(Step::CreateMap(ConfigMap {
                metadata,
                data,
                ..ConfigMap::default()
            }));
        }
        Some(map) if map.data != data => {
            steps.push(Step::UpdateMap(ConfigMap {
                data,
                ..map.clone()
            }));
        }
        Some(_) => {}
    }
    steps
}

#[cfg(test)]
mod tests;
