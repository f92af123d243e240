//! The server over TLS.

use std::{os::unix::fs::PermissionsExt, time::Duration};

use crate::support::tls::{admin_token, client_of, config_of};
use futures::StreamExt;
use k8s_openapi::api::{authentication::v1::SelfSubjectReview, core::v1::Namespace};
use kube::{
    Api, Client, Config,
    api::{ListParams, PostParams, WatchParams},
};
use pintle_apiserver::{ApiServer, Bound, KubeconfigError, ServeError, ServeOptions};
use tokio::net::TcpStream;

/// An upper bound for a shutdown that has nothing to wait for.
const SOON: Duration = Duration::from_secs(2);

async fn config(bound: &Bound) -> Config {
    config_of(&bound.kubeconfig()).await
}

/// Proves wire/formats, auth/listener.
#[tokio::test]
async fn client_with_the_kubeconfig_is_served_over_tls() {
    let server = ApiServer::builder().build();
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let client = Client::try_from(config(&bound).await).unwrap();
    let namespaces: Api<Namespace> = Api::all(client);
    let list = namespaces.list(&ListParams::default()).await.unwrap();
    assert_eq!(list.items.len(), 4);
    let mut events = namespaces
        .watch(&WatchParams::default(), "0")
        .await
        .unwrap()
        .boxed();
    assert!(events.next().await.unwrap().is_ok());
    // Shorter than the drain timeout, so watches ended by themselves.
    tokio::time::timeout(SOON, bound.shutdown())
        .await
        .expect("watches did not end at shutdown");
    while let Some(event) = events.next().await {
        event.expect("watch ended with an error");
    }
}

/// Proves auth/listener.
#[tokio::test]
async fn silent_client_does_not_delay_shutdown() {
    let server = ApiServer::builder().build();
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let silent = TcpStream::connect(bound.address()).await.unwrap();
    // Once a later client is served, the silent one has been accepted.
    let client = Client::try_from(config(&bound).await).unwrap();
    let namespaces: Api<Namespace> = Api::all(client);
    namespaces.list(&ListParams::default()).await.unwrap();
    tokio::time::timeout(SOON, bound.shutdown())
        .await
        .expect("shutdown waited for a handshake");
    drop(silent);
}

/// Proves errors/status-reasons, auth/listener.
#[tokio::test]
async fn request_without_a_valid_token_is_rejected() {
    let server = ApiServer::builder().build();
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let anonymous = "namespaces is forbidden: User \"system:anonymous\" cannot list resource \
                     \"namespaces\" in API group \"\" at the cluster scope";
    for (token, code, message) in [
        (None, 403, anonymous),
        (Some("wrong".to_owned()), 401, "Unauthorized"),
    ] {
        let mut config = config(&bound).await;
        config.auth_info.token = token.map(Into::into);
        let namespaces: Api<Namespace> = Api::all(Client::try_from(config).unwrap());
        let error = namespaces.list(&ListParams::default()).await.unwrap_err();
        let kube::Error::Api(status) = error else {
            panic!("expected a status, got {error}")
        };
        assert_eq!((status.code, status.message.as_str()), (code, message));
    }
}

/// Proves auth/listener.
#[tokio::test]
async fn only_bearer_tokens_are_credentials() {
    let server = ApiServer::builder().build();
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    for (credentials, code) in [
        ("Basic YTpi", 200),
        ("Bearer", 200),
        ("Bearer  x", 200),
        ("bearer wrong", 401),
        ("Bearer wrong x", 401),
    ] {
        let mut config = config(&bound).await;
        config.auth_info.token = None;
        let client = Client::try_from(config).unwrap();
        let request = http::Request::get("/version").header("authorization", credentials);
        let response = client.send(request.body(kube::client::Body::empty()).unwrap());
        assert_eq!(response.await.unwrap().status(), code, "{credentials}");
    }
}

/// Proves wire/json.
#[tokio::test]
async fn unauthorized_curl_gets_indented_json() {
    let server = ApiServer::builder().build();
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let mut config = config(&bound).await;
    config.auth_info.token = None;
    let client = Client::try_from(config).unwrap();
    let request = http::Request::get("/api/v1/pods").header("user-agent", "curl/8.0");
    let response = client.send(request.body(kube::client::Body::empty()).unwrap());
    let body = response.await.unwrap().into_body();
    let bytes = http_body_util::BodyExt::collect(body).await.unwrap();
    let text = String::from_utf8(bytes.to_bytes().to_vec()).unwrap();
    assert!(text.starts_with("{\n  \"kind\": \"Status\",\n"), "{text}");
}

/// Proves auth/listener.
#[tokio::test]
async fn only_loopback_is_allowed_by_default() {
    let server = ApiServer::builder().build();
    let result = server.serve("0.0.0.0:0").await;
    assert!(matches!(result, Err(ServeError::NotLoopback(_))));
    let open = ApiServer::builder().listen_beyond_loopback().build();
    assert!(open.serve("0.0.0.0:0").await.is_ok());
}

/// Proves auth/certificate-names.
#[tokio::test]
async fn certificate_of_a_wildcard_listener_has_all_names() {
    let server = ApiServer::builder().listen_beyond_loopback().build();
    let options = ServeOptions::default().name("build.example.com");
    let bound = server.serve_with("0.0.0.0:0", options).await.unwrap();
    let port = bound.address().port();
    assert_eq!(bound.url(), format!("https://127.0.0.1:{port}"));
    let mut by_name = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
    by_name.push("build.example.com".to_owned());
    for name in by_name {
        let mut config = config(&bound).await;
        // Connect to loopback, but verify the certificate for this name.
        config.tls_server_name = Some(name.clone());
        let namespaces: Api<Namespace> = Api::all(Client::try_from(config).unwrap());
        let listed = namespaces.list(&ListParams::default()).await;
        assert!(listed.is_ok(), "{name}: {listed:?}");
    }
    let mut config = config(&bound).await;
    config.tls_server_name = Some("other.example.com".to_owned());
    let namespaces: Api<Namespace> = Api::all(Client::try_from(config).unwrap());
    assert!(namespaces.list(&ListParams::default()).await.is_err());

    let options = ServeOptions::default().name("not a name");
    let result = server.serve_with("127.0.0.1:0", options).await;
    assert!(matches!(result, Err(ServeError::InvalidName(name)) if name == "not a name"));
}

const FOREIGN: &str = "apiVersion: v1
kind: Config
preferences: {}
clusters:
- name: prod
  cluster:
    server: https://prod.example.com
users:
- name: me
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: login
      args: ['007', 'yes', '1e3']
contexts:
- name: prod
  context:
    cluster: prod
    user: me
    namespace: shop
current-context: prod
";

fn yaml(path: &std::path::Path) -> serde_json::Value {
    serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Proves auth/kubeconfig.
#[tokio::test]
async fn context_is_merged_and_removed() {
    let server = ApiServer::builder().build();
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("real");
    let path = directory.path().join("config");
    std::fs::write(&file, FOREIGN).unwrap();
    std::os::unix::fs::symlink(&file, &path).unwrap();
    let before = yaml(&path);

    let context = bound.merge_kubeconfig(&path, "pintle").await.unwrap();
    assert_eq!(context.previous(), Some("prod"));
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the file now holds a secret");
    assert!(path.is_symlink(), "the link was replaced");
    let after = yaml(&path);
    for list in ["clusters", "users", "contexts"] {
        assert_eq!(after[list][0], before[list][0], "{list}");
        assert_eq!(after[list].as_array().unwrap().len(), 2, "{list}");
    }
    assert_eq!(after["current-context"], "pintle");
    let merged = std::fs::read_to_string(&path).unwrap();
    let (user, _) = whoami(client_of(&merged).await).await.unwrap();
    assert_eq!(user, "kubernetes-admin");

    context.remove().await.unwrap();
    assert_eq!(yaml(&path), before);
    bound.shutdown().await;
}

/// Proves auth/kubeconfig.
#[tokio::test]
async fn context_of_a_running_cluster_is_not_taken_over() {
    let server = ApiServer::builder().build();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    std::fs::write(&path, FOREIGN).unwrap();
    let before = yaml(&path);

    let first = server.serve("127.0.0.1:0").await.unwrap();
    let context = first.merge_kubeconfig(&path, "pintle").await.unwrap();
    let merged = yaml(&path);
    let second = server.serve("127.0.0.1:0").await.unwrap();
    let error = second.merge_kubeconfig(&path, "pintle").await.unwrap_err();
    assert!(matches!(error, KubeconfigError::InUse { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(&first.url()), "{text}");
    assert!(text.contains("choose another context name"), "{text}");
    assert_eq!(yaml(&path), merged);

    // A different name works, and so does merging the same listener again.
    let other = second.merge_kubeconfig(&path, "other").await.unwrap();
    drop(first.merge_kubeconfig(&path, "pintle").await.unwrap());
    other.remove().await.unwrap();
    // The context of a listener that exited without cleaning up is replaced.
    first.shutdown().await;
    let newer = second.merge_kubeconfig(&path, "pintle").await.unwrap();
    context.remove().await.unwrap();
    assert_eq!(
        yaml(&path)["current-context"],
        "pintle",
        "the context belongs to the newer listener"
    );
    newer.remove().await.unwrap();
    assert_eq!(yaml(&path), before);
    second.shutdown().await;
}

/// Proves auth/kubeconfig.
#[tokio::test]
async fn previous_context_survives_a_crashed_run() {
    let server = ApiServer::builder().build();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    std::fs::write(&path, FOREIGN).unwrap();
    let before = yaml(&path);

    let crashed = server.serve("127.0.0.1:0").await.unwrap();
    drop(crashed.merge_kubeconfig(&path, "pintle").await.unwrap());
    crashed.shutdown().await;
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let context = bound.merge_kubeconfig(&path, "pintle").await.unwrap();
    assert_eq!(context.previous(), Some("prod"));
    context.remove().await.unwrap();
    assert_eq!(yaml(&path), before);
    bound.shutdown().await;
}

/// Proves auth/kubeconfig.
#[tokio::test]
async fn empty_kubeconfig_is_not_deleted() {
    let server = ApiServer::builder().build();
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let context = bound.merge_kubeconfig(file.path(), "pintle").await.unwrap();
    context.remove().await.unwrap();
    assert!(file.path().exists());
    assert_eq!(yaml(file.path())["contexts"], serde_json::json!([]));
    bound.shutdown().await;
}

/// Proves auth/kubeconfig.
#[tokio::test]
async fn dangling_link_is_followed() {
    let server = ApiServer::builder().build();
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (link, file) = (
        directory.path().join("config"),
        directory.path().join("file"),
    );
    std::os::unix::fs::symlink("file", &link).unwrap();
    let context = bound.merge_kubeconfig(&link, "pintle").await.unwrap();
    assert!(link.is_symlink());
    assert!(file.exists());
    context.remove().await.unwrap();
    assert!(link.is_symlink());
    assert!(!file.exists(), "it was created for the context");
    bound.shutdown().await;
}

/// Proves auth/kubeconfig.
#[tokio::test]
async fn file_that_is_not_a_kubeconfig_is_not_changed() {
    let server = ApiServer::builder().build();
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    let taken = FOREIGN.replace("name: prod", "name: pintle");
    for text in ["kind: Pod\n", "{", "- a\n", "a: b\n---\nc: d\n", &taken] {
        std::fs::write(&path, text).unwrap();
        let error = bound.merge_kubeconfig(&path, "pintle").await.unwrap_err();
        assert!(error.to_string().contains("config"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
    std::fs::write(directory.path().join("config.lock"), "").unwrap();
    let error = bound.merge_kubeconfig(&path, "pintle").await.unwrap_err();
    assert!(matches!(error, KubeconfigError::Locked { .. }), "{error}");
    std::fs::remove_file(directory.path().join("config.lock")).unwrap();

    std::fs::remove_file(&path).unwrap();
    let context = bound.merge_kubeconfig(&path, "pintle").await.unwrap();
    assert_eq!(context.previous(), None);
    context.remove().await.unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    bound.shutdown().await;
}

/// Proves auth/kubeconfig.
#[tokio::test]
async fn kubeconfig_has_mode_0600() {
    let server = ApiServer::builder().build();
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kubeconfig");
    std::fs::write(&path, "old").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    bound.write_kubeconfig(&path).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), bound.kubeconfig());
    assert!(!format!("{bound:?}").contains("token"));
}

async fn whoami(client: Client) -> kube::Result<(String, Vec<String>)> {
    let reviews: Api<SelfSubjectReview> = Api::all(client);
    let review = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await?;
    let user = review.status.unwrap().user_info.unwrap();
    Ok((user.username.unwrap(), user.groups.unwrap()))
}

/// Proves auth/identity.
#[tokio::test]
async fn client_certificate_identifies_the_user() {
    let server = ApiServer::builder().build();
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let alice = bound.user_kubeconfig("alice", Some("red")).unwrap();
    let groups = |own: &[&str]| -> Vec<String> {
        let all = own.iter().chain(&["system:authenticated"]);
        all.map(|group| (*group).to_owned()).collect()
    };
    assert_eq!(
        whoami(client_of(&alice).await).await.unwrap(),
        ("alice".to_owned(), groups(&["red"]))
    );
    assert_eq!(
        whoami(client_of(&bound.kubeconfig()).await).await.unwrap(),
        ("kubernetes-admin".to_owned(), groups(&["system:masters"]))
    );
    // All listeners of a server share its authority; another server has its own.
    let second = server.serve("127.0.0.1:0").await.unwrap();
    let other = ApiServer::builder().build();
    let other = other.serve("127.0.0.1:0").await.unwrap();
    let ours: serde_json::Value = serde_json::from_str(&alice).unwrap();
    for (issuer, is_trusted) in [(&second, true), (&other, false)] {
        let issued = issuer.user_kubeconfig("alice", None).unwrap();
        let mut issued: serde_json::Value = serde_json::from_str(&issued).unwrap();
        issued["clusters"] = ours["clusters"].clone();
        let user = whoami(client_of(&issued.to_string()).await).await;
        assert_eq!(user.is_ok(), is_trusted);
    }
    for bound in [bound, second, other] {
        bound.shutdown().await;
    }
}

/// Creates a `SelfSubjectReview` with extra headers.
async fn review(kubeconfig: &str, headers: &[(&str, &str)]) -> (u16, serde_json::Value) {
    use http_body_util::BodyExt;
    let mut request = http::Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request
        .body(kube::client::Body::from(b"{}".to_vec()))
        .unwrap();
    let response = client_of(kubeconfig).await.send(request).await.unwrap();
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap())
}

/// Proves auth/identity.
#[tokio::test]
async fn impersonation_needs_permissions() {
    let server = ApiServer::builder().build();
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let bob = [("impersonate-user", "bob"), ("impersonate-group", "blue")];
    let (code, response) = review(&bound.kubeconfig(), &bob).await;
    assert_eq!(code, 201);
    let info = &response["status"]["userInfo"];
    assert_eq!(
        (&info["username"], &info["groups"]),
        (
            &serde_json::json!("bob"),
            &serde_json::json!(["blue", "system:authenticated"])
        )
    );
    let chief = bound
        .user_kubeconfig("chief", Some("system:masters"))
        .unwrap();
    assert_eq!(review(&chief, &bob).await.0, 201);

    let alice = bound.user_kubeconfig("alice", Some("red")).unwrap();
    let (code, status) = review(&alice, &bob).await;
    assert_eq!((code, &status["reason"]), (403, &"Forbidden".into()));
    assert_eq!(
        status["message"],
        "selfsubjectreviews.authentication.k8s.io is forbidden: User \"alice\" cannot \
         impersonate-on:user-info:create resource \"selfsubjectreviews\" in API group \
         \"authentication.k8s.io\" at the cluster scope"
    );
    let (code, status) = review(&bound.kubeconfig(), &bob[1..]).await;
    assert_eq!((code, &status["reason"]), (400, &"BadRequest".into()));
    bound.shutdown().await;
}

/// Proves auth/identity, auth/kubeconfig.
#[tokio::test]
async fn user_kubeconfig_needs_a_name_and_is_private() {
    let server = ApiServer::builder().build();
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    assert!(matches!(
        bound.user_kubeconfig("", None),
        Err(ServeError::NoUser)
    ));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("alice");
    bound
        .write_user_kubeconfig(&path, "alice", Some("red"))
        .unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(whoami(client_of(&text).await).await.unwrap().0, "alice");
    bound.shutdown().await;
}

/// Proves auth/identity.
#[tokio::test]
async fn certificate_takes_precedence_over_token() {
    let server = ApiServer::builder().build();
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let alice = bound.user_kubeconfig("alice", None).unwrap();
    for token in [admin_token(&bound), "wrong".to_owned()] {
        let header = format!("Bearer {token}");
        let (code, response) = review(&alice, &[("authorization", &header)]).await;
        assert_eq!(code, 201);
        assert_eq!(response["status"]["userInfo"]["username"], "alice");
    }
    bound.shutdown().await;
}
