use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    core::v1::{ConfigMap, Node},
};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};

use super::*;

fn lines(rules: &Rules) -> Vec<String> {
    rules.permissions().map(ToString::to_string).collect()
}

fn rendered(rules: &[PolicyRule]) -> Vec<String> {
    let join = |parts: &Option<Vec<String>>| parts.clone().unwrap_or_default().join(",");
    let line = |rule: &PolicyRule| {
        let (groups, resources) = (join(&rule.api_groups), join(&rule.resources));
        let names = join(&rule.resource_names);
        format!("{groups}|{resources}|{names}|{}", rule.verbs.join(","))
    };
    rules.iter().map(line).collect()
}

/// Proves permissions/rules.
#[test]
fn permissions_are_merged_in_conventional_order() {
    let rules = Rules::new()
        .applies::<Deployment>()
        .reads::<StatefulSet>()
        .reads::<Deployment>()
        .applies::<StatefulSet>()
        .reads::<Deployment>()
        .reports::<Deployment>()
        .owns_through::<Deployment>();
    assert_eq!(
        rendered(&rules.policy_rules(None)),
        [
            "apps|deployments,statefulsets||get,list,watch,create,patch",
            "apps|deployments/finalizers||update",
            "apps|deployments/status||patch",
        ]
    );
}

/// Proves permissions/rules.
#[test]
fn implied_permissions_do_not_appear() {
    let everywhere = Rules::new().writes::<ConfigMap>([Verb::Get]);
    let here = everywhere.clone().within(["shop"]);
    assert_eq!(lines(&here), ["get configmaps in shop"]);
    for both in [
        everywhere.clone().and(here.clone()),
        here.clone().and(everywhere.clone()),
    ] {
        assert_eq!(both, everywhere);
    }
    let leases = Rules::new()
        .elects("shop", "one")
        .writes::<Lease>([Verb::Get]);
    assert_eq!(
        lines(&leases),
        [
            "get leases.coordination.k8s.io",
            "create leases.coordination.k8s.io in shop",
            "watch leases.coordination.k8s.io one in shop",
            "update leases.coordination.k8s.io one in shop",
        ]
    );
}

/// Proves permissions/rules.
#[test]
fn cluster_scoped_kinds_stay_in_the_cluster_role() {
    let widgets = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    let rules = Rules::new()
        .reads::<Node>()
        .reads::<ConfigMap>()
        .allows::<DynamicObject>(&widgets, Some("status"), [Verb::Patch])
        .within(["shop", "bank"]);
    let account = Account::new("operator", "system").label("app", "operator");
    let manifests = rules.manifests(&account);
    let rules = manifests
        .cluster_role
        .as_ref()
        .and_then(|role| role.rules.clone());
    assert_eq!(rendered(&rules.unwrap_or_default()), ["|nodes||list,watch"]);
    let roles = manifests.roles.iter().map(|role| {
        let namespace = role.metadata.namespace.clone().unwrap_or_default();
        (
            namespace,
            rendered(role.rules.as_deref().unwrap_or_default()),
        )
    });
    let expected = [
        "|configmaps||list,watch",
        "example.com|widgets/status||patch",
    ];
    let expected = ["bank", "shop"].map(|of| (of.to_owned(), expected.map(str::to_owned).to_vec()));
    assert_eq!(roles.collect::<Vec<_>>(), expected);
    let objects = manifests.objects().expect("JSON");
    let kinds: Vec<_> = objects
        .iter()
        .filter_map(|one| one["kind"].as_str())
        .collect();
    assert_eq!(
        kinds,
        [
            "ServiceAccount",
            "ClusterRole",
            "ClusterRoleBinding",
            "Role",
            "Role",
            "RoleBinding",
            "RoleBinding"
        ]
    );
    for object in &objects {
        assert_eq!(object["metadata"]["labels"]["app"], "operator");
    }
    let names: Vec<_> = objects
        .iter()
        .filter_map(|one| one["metadata"]["name"].as_str())
        .collect();
    let elsewhere = ["operator:system"; 6];
    assert_eq!(names, [&["operator"], &elsewhere[..]].concat());
    assert_eq!(objects[5]["roleRef"]["name"], "operator:system");
    assert_eq!(objects[5]["subjects"][0]["namespace"], "system");
    assert_eq!(objects[5]["roleRef"]["kind"], "Role");
}

/// Proves permissions/rules.
#[test]
fn lease_is_limited_to_its_name() {
    let rules = Rules::new().elects("system", "operator");
    assert_eq!(
        rendered(&rules.policy_rules(Some("system"))),
        [
            "coordination.k8s.io|leases||create",
            "coordination.k8s.io|leases|operator|get,watch,update",
        ]
    );
    assert!(
        rules
            .manifests(&Account::new("a", "b"))
            .cluster_role
            .is_none()
    );
    assert!(Rules::new().is_empty());
}

/// Proves permissions/rules.
#[test]
fn two_installations_share_no_role() {
    let rules = Rules::new()
        .reads::<Node>()
        .and(Rules::new().reads::<ConfigMap>().within(["shop", "blue"]))
        .elects("blue", "operator");
    let names = |namespace: &str| -> Vec<String> {
        let manifests = rules.manifests(&Account::new("operator", namespace));
        let objects = manifests.objects().expect("JSON");
        let name = |one: &serde_json::Value| {
            let (kind, meta) = (one["kind"].as_str(), &one["metadata"]);
            let place = meta["namespace"].as_str().unwrap_or_default();
            let name = meta["name"].as_str().unwrap_or_default();
            format!("{} {place}/{name}", kind.unwrap_or_default())
        };
        objects.iter().map(name).collect()
    };
    let (blue, green) = (names("blue"), names("green"));
    let shared: Vec<_> = blue.iter().filter(|name| green.contains(name)).collect();
    assert!(shared.is_empty(), "{shared:?}");
    // In the account's own namespace, the role has the account's name.
    assert!(blue.contains(&"Role blue/operator".to_owned()), "{blue:?}");
    assert!(
        blue.contains(&"Role shop/operator:blue".to_owned()),
        "{blue:?}"
    );
}
