//! Secrets for the tokens of service accounts.

use crate::support::{start, until_gone, virtual_cluster, wait_for};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec},
    core::v1::{Secret, ServiceAccount},
};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};

fn secret(account: &str) -> Value {
    let annotations = json!({ "kubernetes.io/service-account.name": account });
    json!({
        "metadata": { "name": "token", "annotations": annotations },
        "type": "kubernetes.io/service-account-token",
    })
}

/// Returns the user of a token, if it is valid.
async fn user_of(client: Client, token: &str) -> Option<String> {
    let review = TokenReview {
        spec: TokenReviewSpec {
            token: token.to_owned(),
            ..TokenReviewSpec::default()
        },
        ..TokenReview::default()
    };
    let reviews = Api::<TokenReview>::all(client);
    let params = PostParams::default();
    let status = reviews.create(&params, &review).await;
    status.unwrap().status?.user?.username
}

/// Proves service-accounts/tokens.
#[tokio::test(start_paused = true)]
async fn secret_holds_a_token_until_its_account_is_deleted() {
    let (cluster, kubectl) = start(virtual_cluster().root_ca("CA")).await;
    let account = json!({ "metadata": { "name": "robot" } });
    kubectl.create::<ServiceAccount>(account.clone()).await;
    kubectl.create::<Secret>(secret("robot")).await;
    let filled = wait_for("the token", async || {
        let secret = kubectl.get::<Secret>("token").await;
        secret.data.as_ref()?.get("token")?;
        Some(secret)
    })
    .await;
    let text =
        |name: &str| String::from_utf8(filled.data.as_ref().unwrap()[name].0.clone()).unwrap();
    assert_eq!(
        (text("namespace"), text("ca.crt")),
        ("default".into(), "CA".into())
    );
    let token = text("token");
    let user = user_of(cluster.client(), &token).await;
    assert_eq!(user.as_deref(), Some("system:serviceaccount:default:robot"));

    kubectl
        .delete::<ServiceAccount>("robot", &DeleteParams::default())
        .await;
    until_gone(&kubectl.api::<Secret>(), "token").await;
    kubectl.create::<ServiceAccount>(account).await;
    assert_eq!(user_of(cluster.client(), &token).await, None);
    cluster.stop().await;
}

/// Proves service-accounts/tokens.
#[tokio::test(start_paused = true)]
async fn secret_of_an_unknown_account_is_deleted() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    kubectl.create::<Secret>(secret("nobody")).await;
    until_gone(&kubectl.api::<Secret>(), "token").await;
    cluster.stop().await;
}
