use serde_json::json;

use super::*;
use crate::{
    ApiServer,
    api::{
        User,
        request::options::WriteOptions,
        write::{Managers, Part},
    },
};

/// Admission protects the namespaces that every cluster needs. The server's own writes skip it, but
/// still have to be valid.
#[tokio::test]
async fn own_writes_are_validated_but_not_admitted() {
    let server = ApiServer::builder().build();
    let service = server.service();
    let api = service.api();
    let catalog = api.registry.catalog();
    let namespaces = catalog.find("", "v1", "namespaces").unwrap();
    let (user, options) = (User::new("jane"), WriteOptions::default());
    let write = |operation, user| Attributes {
        operation,
        verb: "update",
        resource: namespaces,
        namespace: None,
        name: "default",
        sub: "",
        part: Part::Main,
        user,
        options: &options,
        managers: Managers::Keep,
        projection: None,
    };
    let delete = |user| {
        let write = write(Operation::Delete, user);
        async move {
            api.admit_delete(&write, write.name, &Tree::new())
                .await
                .is_ok()
        }
    };
    assert!(!delete(Some(&user)).await);
    assert!(delete(None).await);
    let invalid = json!({"metadata": {"name": "Not A Name"}});
    let create = write(Operation::Create, None);
    assert!(api.validate(&create, None, &invalid).await.is_err());
}
