use super::*;

#[tokio::test]
async fn missing_kubeconfig_is_named_in_the_error() {
    let missing = Path::new("/nowhere/kubeconfig");
    let error = Target::named(Some(missing), None).await.unwrap_err();
    assert!(error.to_string().contains("/nowhere/kubeconfig"), "{error}");
}

#[tokio::test]
async fn master_overrides_the_kubeconfig_address() {
    let kubeconfig: Kubeconfig = serde_json::from_value(serde_json::json!({
        "current-context": "a",
        "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
        "clusters": [{ "name": "a", "cluster": { "server": "https://127.0.0.1:1" } }],
        "users": [{ "name": "a", "user": { "token": "t" } }],
    }))
    .unwrap();
    let target = Target::from_kubeconfig(kubeconfig, "file".into())
        .await
        .unwrap();
    assert_eq!(
        target.to_string(),
        "https://127.0.0.1:1/ (context \"a\" of file)"
    );

    let other: Uri = "https://127.0.0.1:2/".parse().unwrap();
    let moved = Target::at(&other, Some(target));
    assert_eq!(
        moved.to_string(),
        "https://127.0.0.1:2/ (context \"a\" of file)"
    );
    let bare = Target::at(&other, None);
    assert_eq!(bare.to_string(), "https://127.0.0.1:2/ (no credentials)");
}
