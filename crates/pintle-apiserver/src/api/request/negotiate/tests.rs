use super::*;

fn of(accept: &str) -> Option<Form> {
    let headers = HeaderMap::from_iter([(header::ACCEPT, accept.parse().unwrap())]);
    form(&headers, &Query::default()).ok()
}

/// Proves wire/formats.
#[test]
fn first_supported_media_type_wins() {
    let table = Form::Table("v1", RowObject::Metadata);
    assert_eq!(
        of("application/json;as=Table;v=v1;g=meta.k8s.io,application/json"),
        Some(table)
    );
    assert_eq!(
        of("application/vnd.kubernetes.protobuf,application/json"),
        Some(Form::Json)
    );
    assert_eq!(
        of("application/json;as=Table;v=v9;g=meta.k8s.io, */*"),
        Some(Form::Json)
    );
    assert_eq!(
        of("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"),
        Some(Form::Metadata("v1"))
    );
    assert_eq!(of("application/yaml"), Some(Form::Yaml));
    assert_eq!(of("image/png"), None);
}
