//! Identity of in-process requests.

use crate::support::server;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use pintle_apiserver::{ApiServer, ApiService, User};
use serde_json::{Value, json};
use tower::ServiceExt as _;

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// Creates a `SelfSubjectReview` and returns the code and the user info, or the error.
async fn review(service: ApiService, headers: &[(&str, &str)]) -> (u16, Value) {
    let mut request = Request::post(REVIEWS).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::from("{}"))).unwrap();
    let response = service.oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let response: Value = serde_json::from_slice(&body).unwrap();
    match response.pointer("/status/userInfo") {
        Some(user) => (code, user.clone()),
        None => (code, response),
    }
}

/// Proves auth/in-process, auth/identity.
#[tokio::test]
async fn service_acts_as_its_user() {
    let server = server();
    assert_eq!(
        review(server.service(), &[]).await.1,
        json!({"username": "kubernetes-admin",
            "groups": ["system:masters", "system:authenticated"]})
    );
    assert_eq!(
        review(server.service_as("system:serviceaccount:shop:robot"), &[])
            .await
            .1,
        json!({"username": "system:serviceaccount:shop:robot", "groups": [
            "system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"]})
    );
    let jane = User::new("jane").group("developers");
    assert_eq!(
        review(server.service_as(jane), &[]).await.1,
        json!({"username": "jane", "groups": ["developers", "system:authenticated"]})
    );
    let (code, status) = review(server.service_as("system:anonymous"), &[]).await;
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "selfsubjectreviews.authentication.k8s.io is forbidden: User \"system:anonymous\" cannot create resource \"selfsubjectreviews\" in API group \"authentication.k8s.io\" at the cluster scope"
    );
}

/// Proves auth/in-process, auth/identity.
#[tokio::test]
async fn impersonation_headers_work_in_process() {
    let server = server();
    let jane = [("impersonate-user", "jane"), ("impersonate-group", "red")];
    assert_eq!(
        review(server.service(), &jane).await,
        (
            201,
            json!({"username": "jane", "groups": ["red", "system:authenticated"]})
        )
    );
    let (code, status) = review(server.service_as("bob"), &jane).await;
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "selfsubjectreviews.authentication.k8s.io is forbidden: User \"bob\" cannot impersonate-on:user-info:create resource \"selfsubjectreviews\" in API group \"authentication.k8s.io\" at the cluster scope"
    );
}

/// Proves auth/in-process, errors/status-reasons.
#[tokio::test]
async fn request_without_a_user_gets_401() {
    let server = ApiServer::builder().build();
    let (code, status) = review(server.service_as(""), &[]).await;
    assert_eq!((code, &status["reason"]), (401, &json!("Unauthorized")));
    let request = Request::get("/api/v1/namespaces").body(Full::new(Bytes::new()));
    let response = server.service_as("").oneshot(request.unwrap()).await;
    assert_eq!(response.unwrap().status(), StatusCode::UNAUTHORIZED);
}
