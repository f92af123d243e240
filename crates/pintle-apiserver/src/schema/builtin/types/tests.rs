use super::*;

#[test]
fn every_table_line_parses() {
    for ty in types() {
        let lines = table().entries[ty.0].body.lines().count();
        let parsed = ty.get();
        assert!(
            parsed.fields.len() >= lines.saturating_sub(1),
            "{ty:?} lost fields"
        );
        assert!(parsed.fields.is_sorted_by_key(|field| field.name));
        assert!(!parsed.package.is_empty(), "{ty:?} has no package");
    }
}

/// Proves patch/formats.
#[test]
fn merge_key_and_list_map_keys_may_differ() {
    let container = named("io.k8s.api.core.v1.Container").unwrap();
    let ports = container.field("ports").unwrap();
    assert_eq!(ports.patch_merge_key, Some("containerPort"));
    assert_eq!(ports.list_map_keys, ["containerPort", "protocol"]);
    assert!(ports.patch_strategy.merge);
    assert_eq!(ports.list_type, Some(ListType::Map));
}

#[test]
fn inlined_fields_belong_to_the_outer_type() {
    let volume = named("io.k8s.api.core.v1.Volume").unwrap();
    assert!(volume.field("name").is_some());
    assert!(volume.field("emptyDir").is_some());
    let inline = volume
        .get()
        .numbers
        .iter()
        .find(|(number, _)| *number == 2)
        .unwrap();
    assert!(matches!(inline.1, ProtoTarget::Inline(ty) if ty.get().name == "VolumeSource"));
}

#[test]
fn kinds_are_found_by_group_version_kind() {
    let pod = kind("", "v1", "Pod").unwrap();
    assert_eq!(pod.schema_name(), "io.k8s.api.core.v1.Pod");
    assert_eq!(pod.get().kind, Some(("", "v1", "Pod")));
    assert!(kind("", "v2", "Pod").is_none());
}
