use super::*;

fn deployment(image: &str, annotations: &[(&str, &str)]) -> Deployment {
    serde_json::from_value(serde_json::json!({
        "metadata": {
            "name": "web", "namespace": "default", "uid": "d",
            "annotations": annotations.iter().copied().collect::<BTreeMap<_, _>>(),
        },
        "spec": {
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "web", "image": image }] },
            },
        },
    }))
    .unwrap()
}

/// Proves deployment/replicaset-name.
#[test]
fn hash_depends_on_template_and_collision_count() {
    let template = |image| deployment(image, &[]).spec.unwrap().template;
    let hash = template_hash(&template("nginx:1"), None);
    assert_eq!(hash.len(), 10);
    assert_eq!(hash, template_hash(&template("nginx:1"), Some(0)));
    assert_ne!(hash, template_hash(&template("nginx:1"), Some(1)));
    assert_ne!(hash, template_hash(&template("nginx:2"), None));
}

/// Proves deployment/replicaset-name.
#[test]
fn set_has_the_hash_in_name_labels_and_selector() {
    let deployment = deployment("nginx:1", &[]);
    let set = new_set(&deployment);
    let hash = &meta::labels(&set.metadata)[TEMPLATE_HASH];
    assert_eq!(set.metadata.name, Some(format!("web-{hash}")));
    let spec = set.spec.unwrap();
    assert_eq!(spec.selector.match_labels.unwrap()[TEMPLATE_HASH], *hash);
    let template = spec.template.unwrap();
    assert!(meta::labels(template.metadata.as_ref().unwrap()).contains_key(TEMPLATE_HASH));
    assert!(same_template(&template, &deployment.spec.unwrap().template));
}

#[test]
fn long_name_is_truncated() {
    let mut deployment = deployment("nginx:1", &[]);
    deployment.metadata.name = Some("x".repeat(253));
    assert_eq!(new_set(&deployment).metadata.name.unwrap().len(), 253);
}

/// Proves workloads/revisions.
#[test]
fn new_set_gets_the_next_revision_and_keeps_its_history() {
    let deployment = deployment(
        "nginx:1",
        &[("team", "red"), (REVISION, "9"), (NOT_COPIED[0], "{...}")],
    );
    let mut set = new_set(&deployment);
    annotate(&deployment, &mut set, 0);
    assert_eq!(revision(&set.metadata), 1);
    assert_eq!(meta::annotation(&set.metadata, "team"), Some("red"));
    assert_eq!(meta::annotation(&set.metadata, NOT_COPIED[0]), None);
    assert_eq!(meta::annotation(&set.metadata, REVISION_HISTORY), None);

    annotate(&deployment, &mut set, 4);
    annotate(&deployment, &mut set, 6);
    annotate(&deployment, &mut set, 2);
    assert_eq!(revision(&set.metadata), 7, "revisions never decrease");
    assert_eq!(
        meta::annotation(&set.metadata, REVISION_HISTORY),
        Some("1,5")
    );
}

#[test]
fn revision_history_is_bounded() {
    let deployment = deployment("nginx:1", &[]);
    let mut set = new_set(&deployment);
    for revision in 0..1000 {
        annotate(&deployment, &mut set, revision);
    }
    let history = meta::annotation(&set.metadata, REVISION_HISTORY).unwrap();
    assert!(history.len() <= HISTORY_CHARS);
    assert!(history.ends_with(",998,999"));
}
