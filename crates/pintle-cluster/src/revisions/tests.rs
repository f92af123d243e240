use super::*;

fn template(image: &str) -> PodTemplateSpec {
    serde_json::from_value(json!({
        "metadata": { "labels": { "app": "db" } },
        "spec": { "containers": [{ "name": "main", "image": image }] },
    }))
    .unwrap()
}

fn owner() -> ObjectMeta {
    ObjectMeta {
        name: Some("db".into()),
        namespace: Some("default".into()),
        ..ObjectMeta::default()
    }
}

fn revision(image: &str, number: i64) -> Arc<ControllerRevision> {
    let owner = Owner {
        metadata: &owner(),
        reference: None,
        label: DATA_HASH,
    };
    Arc::new(new(&owner, &template(image), number, 0))
}

#[test]
fn hash_matches_upstream() {
    // The 32-bit FNV-1 of "foo0" is 3031504857.
    assert_eq!(hash("foo", 0), "7475948d9c");
    assert_ne!(hash("foo", 0), hash("foo", 1));
}

#[test]
fn template_is_restored_from_its_revision() {
    let revision = revision("a", 1);
    assert_eq!(template_of(&revision), Some(template("a")));
    let hash = &meta::labels(&revision.metadata)["controller.kubernetes.io/hash"];
    assert_eq!(meta::name(&revision.metadata), format!("db-{hash}"));
}

#[test]
fn rollback_renumbers_an_old_revision() {
    let revisions = [revision("a", 1), revision("b", 2)];
    assert_eq!(plan(&template("a"), &[]), Step::Create(1));
    assert_eq!(
        plan(&template("b"), &revisions),
        Step::Current(revisions[1].clone())
    );
    assert_eq!(
        plan(&template("a"), &revisions),
        Step::Renumber(revisions[0].clone(), 3)
    );
    assert_eq!(plan(&template("c"), &revisions), Step::Create(3));
}

#[test]
fn history_limit_spares_live_revisions() {
    let revisions = [revision("a", 1), revision("b", 2), revision("c", 3)];
    let live = meta::name(&revisions[0].metadata);
    assert_eq!(
        surplus(&revisions, &[live], Some(1)),
        [revisions[1].clone()]
    );
    assert_eq!(surplus(&revisions, &[live], Some(2)), []);
    assert_eq!(surplus(&revisions, &[live], None), []);
}

#[test]
fn revision_number_does_not_overflow() {
    let revisions = [revision("a", 7), revision("b", i64::MAX)];
    let newest = Step::Current(revisions[1].clone());
    assert_eq!(plan(&template("b"), &revisions), newest);
    assert_eq!(plan(&template("c"), &revisions), Step::Create(i64::MAX));
}
