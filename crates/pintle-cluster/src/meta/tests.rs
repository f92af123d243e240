use super::*;

fn owner() -> ObjectMeta {
    ObjectMeta {
        uid: Some("owner".into()),
        namespace: Some("default".into()),
        ..ObjectMeta::default()
    }
}

fn controlled_by(uid: &str) -> ObjectMeta {
    ObjectMeta {
        namespace: Some("default".into()),
        owner_references: Some(vec![OwnerReference {
            uid: uid.into(),
            controller: Some(true),
            ..OwnerReference::default()
        }]),
        ..ObjectMeta::default()
    }
}

fn orphan() -> ObjectMeta {
    ObjectMeta {
        namespace: Some("default".into()),
        ..ObjectMeta::default()
    }
}

fn deleted(mut meta: ObjectMeta) -> ObjectMeta {
    meta.deletion_timestamp = Some(time(Timestamp::UNIX_EPOCH));
    meta
}

/// Proves workloads/adoption.
#[test]
fn owner_adopts_matching_orphans_and_releases_mismatches() {
    assert_eq!(claim(&owner(), &orphan(), true), Claim::Adopt);
    assert_eq!(claim(&owner(), &orphan(), false), Claim::Ignore);
    assert_eq!(
        claim(&owner(), &controlled_by("owner"), true),
        Claim::Controlled
    );
    assert_eq!(
        claim(&owner(), &controlled_by("owner"), false),
        Claim::Release
    );
}

/// Proves workloads/adoption.
#[test]
fn objects_of_another_controller_are_ignored() {
    assert_eq!(
        claim(&owner(), &controlled_by("other"), true),
        Claim::Ignore
    );
    assert_eq!(
        claim(&owner(), &controlled_by("other"), false),
        Claim::Ignore
    );
}

/// Proves workloads/adoption.
#[test]
fn deleted_owner_neither_adopts_nor_releases() {
    let owner = deleted(owner());
    assert_eq!(claim(&owner, &orphan(), true), Claim::Ignore);
    assert_eq!(claim(&owner, &controlled_by("owner"), false), Claim::Ignore);
    assert_eq!(
        claim(&owner, &controlled_by("owner"), true),
        Claim::Controlled
    );
}

#[test]
fn deleted_or_remote_orphan_is_not_adopted() {
    assert_eq!(claim(&owner(), &deleted(orphan()), true), Claim::Ignore);
    let elsewhere = ObjectMeta {
        namespace: Some("other".into()),
        ..orphan()
    };
    assert_eq!(claim(&owner(), &elsewhere, true), Claim::Ignore);
}

#[test]
fn empty_selector_selects_nothing() {
    assert!(selector(&LabelSelector::default()).is_nothing());
    assert!(!selects(&Selector::nothing(), &orphan()));
}
