//! Responses: objects, Statuses, documents, plain text.

pub(crate) mod body;
pub(crate) mod error;
pub(crate) mod pretty;
pub(crate) mod printers;
pub(crate) mod status;
pub(crate) mod view;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header, request::Parts};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use self::{status::Status, view::View};
use crate::{
    api::{ApiError, Body, kinds::service_accounts, request::negotiate::Form},
    serve::LocalAddr,
    store::{Content, Object},
};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Returns a response with a body of the given type.
pub(crate) fn with(code: u16, content_type: HeaderValue, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::OK);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, content_type);
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, private"),
    );
    response
}

pub(crate) fn json_bytes(code: u16, bytes: impl Into<Bytes>) -> Response<Body> {
    with(code, JSON, Body::whole(bytes))
}

pub(crate) fn json(code: u16, value: &Value) -> Response<Body> {
    json_bytes(code, written(value))
}

/// Returns a document, encoded in the field order of its Rust type.
pub(crate) fn document(code: u16, document: &impl Serialize) -> Response<Body> {
    // Encoding plain fields into memory cannot fail.
    json_bytes(code, serde_json::to_vec(document).unwrap_or_default())
}

/// Encodes a document with `kind` and `apiVersion` first.
pub(crate) fn written(value: &Value) -> String {
    let mut out = Vec::new();
    append(&mut out, value);
    String::from_utf8(out).unwrap_or_default()
}

/// Appends a document with `kind` and `apiVersion` first.
pub(crate) fn append(out: &mut Vec<u8>, value: &Value) {
    // Writing JSON into memory cannot fail.
    let _ = serde_json::to_writer(out, &KindFirst(value));
}

/// Serializes objects with `kind` and `apiVersion` first, like Go's `TypeMeta`. Maps without
/// metadata, such as owner references, are not objects and keep their order.
struct KindFirst<'a>(&'a Value);

impl Serialize for KindFirst<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const FIRST: [&str; 2] = ["kind", "apiVersion"];
        match self.0 {
            Value::Array(items) => serializer.collect_seq(items.iter().map(KindFirst)),
            Value::Object(map) if map.contains_key("metadata") => {
                let first = FIRST
                    .iter()
                    .filter_map(|name| Some((*name, KindFirst(map.get(*name)?))));
                let rest = map
                    .iter()
                    .filter(|(name, _)| !FIRST.contains(&name.as_str()))
                    .map(|(name, value)| (name.as_str(), KindFirst(value)));
                serializer.collect_map(first.chain(rest))
            }
            Value::Object(map) => {
                serializer.collect_map(map.iter().map(|(name, value)| (name, KindFirst(value))))
            }
            plain => plain.serialize(serializer),
        }
    }
}

pub(crate) fn text(code: u16, text: &'static str) -> Response<Body> {
    with(code, TEXT, Body::whole(text))
}

pub(crate) fn plain_text(text: String) -> Response<Body> {
    with(
        200,
        HeaderValue::from_static("text/plain"),
        Body::whole(text),
    )
}

/// Returns the issuer document of service account tokens.
///
/// It may only be cached if its URL does not depend on how the client addressed the server.
pub(crate) fn token_provider(parts: &Parts) -> Response<Body> {
    if let Some(LocalAddr(address)) = parts.extensions.get::<LocalAddr>() {
        return cached(json(
            200,
            &service_accounts::provider(Some(&address.to_string())),
        ));
    }
    let host = parts.headers.get(header::HOST);
    let host = host.and_then(|host| host.to_str().ok());
    let host = host.or_else(|| parts.uri.authority().map(http::uri::Authority::as_str));
    json(200, &service_accounts::provider(host))
}

/// Returns the keys that verify service account tokens.
pub(crate) fn token_keys(keys: &Value) -> Response<Body> {
    let content_type = HeaderValue::from_static("application/jwk-set+json");
    cached(with(200, content_type, Body::whole(keys.to_string())))
}

/// Lets caches keep a response for an hour.
fn cached(mut response: Response<Body>) -> Response<Body> {
    let hour = HeaderValue::from_static("public, max-age=3600");
    response.headers_mut().insert(header::CACHE_CONTROL, hour);
    response
}

/// Returns the Status for a POST whose effect is not an object, such as a binding.
pub(crate) fn created() -> Response<Body> {
    document(201, &Status::success().code(201))
}

/// Returns the response for an unknown path.
pub(crate) fn not_found() -> Response<Body> {
    text(404, "404 page not found\n")
}

/// Returns the response for an error.
pub(crate) fn error(error: &ApiError) -> Response<Body> {
    let mut response = document(error.code, &error.status());
    if let Some(seconds) = error.retry_seconds() {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Returns the response for a request that exceeded the server's limit or its client's timeout. As
/// in kube-apiserver, it is plain text, so that no client parses it as an object.
pub(crate) fn timed_out() -> Response<Body> {
    let status = json!({"metadata": {}, "status": "Failure", "reason": "Timeout", "details": {},
        "message": "Timeout: request did not complete within the allotted timeout", "code": 504});
    with(504, TEXT, Body::whole(status.to_string()))
}

/// Returns the response for a request that fails before it is routed.
pub(crate) fn refusal(error: &ApiError, pretty: bool) -> Response<Body> {
    let response = self::error(error);
    if pretty { indented(response) } else { response }
}

/// Indents the JSON of a response. Watch events stay on one line each.
pub(crate) fn indented(response: Response<Body>) -> Response<Body> {
    let json = response.headers().get(header::CONTENT_TYPE);
    let json = json.is_some_and(|value| value.as_bytes().starts_with(b"application/json"));
    if json {
        response.map(Body::indented)
    } else {
        response
    }
}

/// Converts JSON to YAML, unless the response is a stream or in another form of JSON.
pub(crate) fn in_yaml(response: Response<Body>) -> Response<Body> {
    let json = response.headers().get(header::CONTENT_TYPE);
    if json.is_none_or(|json| json != "application/json") {
        return response;
    }
    let Some(yaml) = response.body().bytes().and_then(|json| yaml(json)) else {
        return response;
    };
    let (mut parts, _) = response.into_parts();
    let kind = HeaderValue::from_static("application/yaml");
    parts.headers.insert(header::CONTENT_TYPE, kind);
    Response::from_parts(parts, Body::whole(yaml))
}

/// Returns JSON as YAML.
fn yaml(json: &[u8]) -> Option<String> {
    let value = serde_json::from_slice::<Value>(json).ok()?;
    serde_saphyr::to_string(&value).ok()
}

/// Returns an object in the format the client accepts.
pub(crate) fn object(code: u16, view: &View, object: &Object) -> Response<Body> {
    content(code, view, &object.content, object.stored_revision())
}

/// Returns the content of an object, which need not be stored, at the given `resourceVersion`.
pub(crate) fn content(
    code: u16,
    view: &View,
    content: &Content,
    revision: Option<u64>,
) -> Response<Body> {
    let mut out = Vec::new();
    view.write_content(&mut out, content, revision, true);
    formed(code, view.form, out)
}

/// Returns encoded JSON, converted to YAML if the client prefers it.
pub(crate) fn formed(code: u16, form: Form, json: Vec<u8>) -> Response<Body> {
    if form != Form::Yaml {
        return json_bytes(code, json);
    }
    in_yaml(json_bytes(code, json))
}
