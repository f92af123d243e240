//! Helpers shared by the tests: raw requests against the in-process service, and common objects.

#![allow(dead_code, unreachable_pub, reason = "each file uses some helpers")]

mod objects;
pub mod tls;
pub mod webhooks;

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full};
use pintle_apiserver::{ApiServer, ApiService, Body, Clock, User};
use serde_json::Value;
use tower::ServiceExt;

pub use self::objects::*;

/// Builds a server with a clock stopped at the start of 2026 and a seeded RNG.
pub fn server() -> ApiServer {
    let start: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    ApiServer::builder()
        .clock(Clock::from_fn(move || start))
        .seed(1)
        .build()
}

/// A client that returns the status code and body of every response.
pub struct Http {
    service: ApiService,
}

pub fn http(server: &ApiServer) -> Http {
    http_as(server, User::admin())
}

/// Acts as a user.
pub fn http_as(server: &ApiServer, user: impl Into<User>) -> Http {
    Http {
        service: server.service_as(user),
    }
}

impl Http {
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Response<Body> {
        self.service.clone().oneshot(request).await.unwrap()
    }

    pub async fn raw(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> (u16, Value) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, content_type)
            .body(Full::new(body.into()))
            .unwrap();
        let response = self.send(request).await;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let value = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&bytes).into_owned()));
        (code, value)
    }

    pub async fn get(&self, path: &str) -> (u16, Value) {
        self.raw("GET", path, "application/json", "").await
    }

    pub async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.raw("POST", path, "application/json", body.to_string())
            .await
    }

    pub async fn put(&self, path: &str, body: &Value) -> (u16, Value) {
        self.raw("PUT", path, "application/json", body.to_string())
            .await
    }

    pub async fn merge(&self, path: &str, body: &Value) -> (u16, Value) {
        self.raw(
            "PATCH",
            path,
            "application/merge-patch+json",
            body.to_string(),
        )
        .await
    }

    pub async fn delete(&self, path: &str) -> (u16, Value) {
        self.raw("DELETE", path, "application/json", "").await
    }

    pub async fn delete_with(&self, path: &str, options: &Value) -> (u16, Value) {
        self.raw("DELETE", path, "application/json", options.to_string())
            .await
    }

    /// Opens a watch.
    pub async fn watch(&self, path: &str) -> Watch {
        let request = Request::get(path).body(Full::new(Bytes::new())).unwrap();
        let response = self.send(request).await;
        let code = response.status().as_u16();
        Watch {
            code,
            body: response.into_body(),
            buffer: Vec::new(),
        }
    }
}

/// A running watch.
pub struct Watch {
    pub code: u16,
    body: Body,
    buffer: Vec<u8>,
}

impl Watch {
    /// Returns the next event, or `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = self.body.frame().await?.unwrap();
            self.buffer.extend_from_slice(&frame.into_data().unwrap());
        }
    }

    /// Returns the next events as `TYPE name`.
    pub async fn take(&mut self, count: usize) -> Vec<String> {
        let mut events = Vec::new();
        for _ in 0..count {
            let event = self.next().await.expect("another event");
            events.push(format!(
                "{} {}",
                event["type"].as_str().unwrap(),
                event["object"]["metadata"]["name"].as_str().unwrap_or("-")
            ));
        }
        events
    }
}

/// Returns the causes of an error as `field: message`.
pub fn causes(status: &Value) -> Vec<String> {
    let causes = status["details"]["causes"].as_array();
    let texts = causes.into_iter().flatten().map(|cause| {
        let text = |name: &str| cause[name].as_str().unwrap_or_default().to_owned();
        format!("{}: {}", text("field"), text("message"))
    });
    texts.collect()
}
