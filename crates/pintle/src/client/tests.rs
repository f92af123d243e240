use super::*;

/// Proves source/requests.
#[tokio::test]
async fn clients_send_user_agent_and_do_not_retry() {
    let config = Config::new("https://127.0.0.1:1".parse().unwrap());
    let config = prepare(config, "shop/1").unwrap();
    assert!(!config.default_retry);
    assert_eq!(
        config.headers,
        [(USER_AGENT, HeaderValue::from_static("shop/1"))]
    );
    build(config, "shop/2").unwrap();
}

#[test]
fn invalid_user_agent_is_rejected() {
    let config = Config::new("https://127.0.0.1:1".parse().unwrap());
    assert!(matches!(
        prepare(config, "a\nb"),
        Err(ClientError::UserAgent(_))
    ));
}
