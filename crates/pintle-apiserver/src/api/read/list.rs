//! Lists: selectors, pages, and the state they show.
//!
//! A continue token names the revision of the first page and the key at which the next page starts,
//! so that all pages show the same state. When the log no longer covers that revision, the client
//! gets 410 and a token that continues from the same key in the current state.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use futures::stream;
use http::{HeaderValue, Response};
use serde_json::{Value, json};

use super::parse_version;
use crate::{
    api::{
        Answer, Api, ApiError, Body, Call,
        request::{negotiate::Form, selector::Selector},
        response::{self, view::View},
    },
    registry::Resource,
    schema::field::FieldError,
    store::{CollectionId, Lost, Object, Snapshot, key_range, namespace_bounds},
};

/// The size of one chunk of a list, in bytes.
const CHUNK: usize = 64 * 1024;

const EXPIRED_PAGE: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// The state a list shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Latest,
    NotOlderThan(u64),
    Exact(u64),
}

/// Where a list continues.
#[derive(Debug, PartialEq, Eq)]
struct Page {
    /// `None` for the current state.
    revision: Option<u64>,
    start: String,
}

/// The result of a list.
pub(crate) struct Found {
    pub(crate) revision: u64,
    pub(crate) items: Vec<Arc<Object>>,
    next: Option<String>,
    remaining: Option<usize>,
}

impl Api {
    /// Handles GET of a collection.
    pub(crate) async fn list(&self, call: &Call) -> Answer {
        if call.query.optional_flag("sendInitialEvents").is_some() {
            return Err(invalid_options(vec![FieldError::forbidden(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for list",
            )]));
        }
        let found = self.find(call).await?;
        let metadata = found.metadata(&call.target.resource);
        Ok(list_answer(call.view(&self.clock), &metadata, found.items))
    }

    /// Returns the objects that a request for a collection selects.
    pub(crate) async fn find(&self, call: &Call) -> Result<Found, ApiError> {
        let collection = call.collection()?;
        call.target.resource.hooks.before_list(self);
        self.forget_states();
        let selector = Selector::read(&call.target, &call.query)?;
        let limit = usize::try_from(call.query.number("limit")?.unwrap_or(0)).unwrap_or(0);
        let token = call.query.get("continue");
        let version = call.query.get("resourceVersion");
        let matching = call.query.get("resourceVersionMatch");
        let (page, limit) = if token.is_empty() {
            (None, limit)
        } else {
            if !version.is_empty() && version != "0" {
                return Err(ApiError::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            if !matching.is_empty() {
                let forbidden =
                    |why: &str| FieldError::forbidden("resourceVersionMatch", why.to_owned());
                let mut errors = vec![forbidden(
                    "resourceVersionMatch is forbidden when continue is provided",
                )];
                if version.is_empty() {
                    let why =
                        "resourceVersionMatch is forbidden unless resourceVersion is provided";
                    errors.insert(0, forbidden(why));
                }
                return Err(invalid_options(errors));
            }
            (Some(parse_token(token, &prefix(call))?), limit)
        };
        let snapshot = match &page {
            Some(page) => self.page_snapshot(collection, page, &prefix(call))?,
            None => {
                self.snapshot(collection, wanted(version, matching, limit)?)
                    .await?
            }
        };
        // Upstream serves resourceVersion=0 from its cache, which ignores the limit.
        let limit = if page.is_none() && version == "0" && matching != "Exact" {
            0
        } else {
            limit
        };
        let resource = &call.target.resource;
        if !resource.is_converted() {
            return Ok(collect(call, &selector, &snapshot, page.as_ref(), limit));
        }
        // Selectors apply to what the client sees, so all objects are converted first, unless there
        // is nothing to select.
        if selector.is_everything() {
            let mut found = collect(call, &selector, &snapshot, page.as_ref(), limit);
            found.items = self.all_shown(resource, found.items).await?;
            return Ok(found);
        }
        let everything = Selector::default();
        let all = collect(call, &everything, &snapshot, page.as_ref(), 0);
        let all = self.all_shown(resource, all.items).await?;
        let snapshot = Snapshot {
            revision: snapshot.revision,
            objects: all
                .into_iter()
                .map(|object| (Arc::clone(&object.key), object))
                .collect(),
        };
        Ok(collect(call, &selector, &snapshot, page.as_ref(), limit))
    }

    async fn snapshot(
        &self,
        collection: CollectionId,
        wanted: Wanted,
    ) -> Result<Snapshot, ApiError> {
        if let Wanted::NotOlderThan(revision) | Wanted::Exact(revision) = wanted {
            self.wait_for(revision).await?;
        }
        let result = match wanted {
            Wanted::Exact(revision) => self.store.snapshot_at(collection, revision),
            Wanted::Latest | Wanted::NotOlderThan(_) => self.store.snapshot(collection),
        };
        result.map_err(|lost| match lost {
            Lost::Compacted { .. } => {
                ApiError::expired("The resourceVersion for the provided list is too old.")
            }
            Lost::Future { current } => ApiError::version_too_large(current + 1, current),
            Lost::NotServed => ApiError::unknown_resource(),
        })
    }

    fn page_snapshot(
        &self,
        collection: CollectionId,
        page: &Page,
        prefix: &str,
    ) -> Result<Snapshot, ApiError> {
        let result = match page.revision {
            Some(revision) => self.store.snapshot_at(collection, revision),
            None => self.store.snapshot(collection),
        };
        result.map_err(|lost| match lost {
            Lost::NotServed => ApiError::unknown_resource(),
            Lost::Future { .. } => {
                ApiError::bad_request("continue key is not valid: its version is in the future")
            }
            Lost::Compacted { .. } => {
                ApiError::expired(EXPIRED_PAGE).resume(token(-1, &page.start, prefix))
            }
        })
    }
}

fn invalid_options(errors: Vec<FieldError>) -> ApiError {
    ApiError::invalid("meta.k8s.io", "ListOptions", "", errors)
}

fn list_version(text: &str) -> Result<Option<u64>, ApiError> {
    parse_version(text)
        .map_err(|why| ApiError::bad_request(format!("invalid resource version: {why}")))
}

fn wanted(version: &str, matching: &str, limit: usize) -> Result<Wanted, ApiError> {
    let forbidden =
        |detail: &str| invalid_options(vec![FieldError::forbidden("resourceVersionMatch", detail)]);
    match (matching, list_version(version)?) {
        ("", None) => Ok(Wanted::Latest),
        // For compatibility, a limit with a resourceVersion means that exact version.
        ("", Some(revision)) if limit > 0 && revision > 0 => Ok(Wanted::Exact(revision)),
        ("" | "NotOlderThan", Some(revision)) => Ok(Wanted::NotOlderThan(revision)),
        ("Exact", Some(0)) => Err(forbidden(
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        )),
        ("Exact", Some(revision)) => Ok(Wanted::Exact(revision)),
        ("Exact" | "NotOlderThan", None) => Err(forbidden(
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        )),
        (other, _) => Err(invalid_options(vec![FieldError::not_supported(
            "resourceVersionMatch",
            other,
            &["Exact", "NotOlderThan", ""],
        )])),
    }
}

fn collect(
    call: &Call,
    selector: &Selector,
    snapshot: &Snapshot,
    page: Option<&Page>,
    limit: usize,
) -> Found {
    let resource = &call.target.resource;
    let bounds = call.target.namespace.as_deref().map(namespace_bounds);
    let range = key_range(bounds.as_ref(), page.map(|page| page.start.as_str()));
    let mut items = Vec::new();
    let mut next = None;
    let mut rest = snapshot
        .objects
        .range::<str, _>(range)
        .map(|(_, object)| object);
    for object in rest.by_ref() {
        if !selector.matches(resource, object) {
            continue;
        }
        if limit > 0 && items.len() == limit {
            next = items
                .last()
                .map(|last: &Arc<Object>| format!("{}\0", last.key));
            break;
        }
        items.push(Arc::clone(object));
    }
    let remaining = (next.is_some() && selector.is_everything()).then(|| rest.count() + 1);
    let revision = snapshot.revision;
    let version = i64::try_from(revision).unwrap_or(i64::MAX);
    let next = next.map(|start| token(version, &start, &prefix(call)));
    Found {
        revision,
        items,
        next,
        remaining,
    }
}

impl Found {
    /// Returns the metadata of the list. The last page of custom resources has an empty token.
    pub(crate) fn metadata(&self, resource: &Resource) -> Value {
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        if resource.custom.is_some() {
            metadata["continue"] = "".into();
        }
        if let Some(next) = &self.next {
            metadata["continue"] = next.clone().into();
        }
        if let Some(remaining) = self.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
        metadata
    }
}

/// Returns the prefix of the keys in a collection.
fn prefix(call: &Call) -> String {
    let namespace = call.target.namespace.as_deref();
    namespace.map_or_else(String::new, |namespace| namespace_bounds(namespace).0)
}

/// Returns a token that continues at `start` (inclusive) in the state of `revision`, or in the
/// current state if `revision` is negative. The key in it is relative to the collection.
fn token(revision: i64, start: &str, prefix: &str) -> String {
    let start = format!("/{}", start.strip_prefix(prefix).unwrap_or(start));
    URL_SAFE_NO_PAD
        .encode(json!({"v": "meta.k8s.io/v1", "rv": revision, "start": start}).to_string())
}

fn bad_token(why: &str) -> ApiError {
    ApiError::bad_request(format!(
        "invalid continue token: continue key is not valid{why}"
    ))
}

fn parse_token(token: &str, prefix: &str) -> Result<Page, ApiError> {
    let bad = || bad_token("");
    let bytes = URL_SAFE_NO_PAD
        .decode(token.trim_end_matches('='))
        .map_err(|_| bad())?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|_| bad())?;
    if value["v"] != "meta.k8s.io/v1" {
        let version = value["v"].as_str().unwrap_or_default();
        let why = format!(": server does not recognize this encoded version {version}");
        return Err(bad_token(&why));
    }
    let revision = value["rv"].as_i64().filter(|rv| *rv != 0).ok_or_else(bad)?;
    let start = value["start"]
        .as_str()
        .map(|start| start.strip_prefix('/').unwrap_or(start))
        .filter(|start| {
            start
                .split('/')
                .all(|part| !matches!(part, "" | "." | ".."))
        })
        .ok_or_else(bad)?;
    Ok(Page {
        revision: u64::try_from(revision).ok(),
        start: format!("{prefix}{start}"),
    })
}

/// Renders a list, as a stream of chunks if it is large. Objects are copied as they are stored,
/// unless the client wants another representation.
pub(crate) fn list_answer(view: View, metadata: &Value, items: Vec<Arc<Object>>) -> Response<Body> {
    let mut metadata = metadata.clone();
    if !matches!(view.form, Form::Json | Form::Yaml)
        && metadata["continue"] == ""
        && let Value::Object(map) = &mut metadata
    {
        map.remove("continue");
    }
    let head = view.list_head(&metadata).into_bytes();
    let form = view.form;
    let size: usize = items.iter().map(|item| item.content.len()).sum();
    let mut writer = ListWriter {
        view,
        items,
        at: 0,
        head: Some(head),
        done: false,
    };
    if form == Form::Yaml || size < CHUNK {
        let mut all = Vec::with_capacity(size + CHUNK);
        while let Some(chunk) = writer.next_chunk() {
            all.extend_from_slice(&chunk);
        }
        return response::formed(200, form, all);
    }
    let body = Body::chunks(stream::iter(std::iter::from_fn(move || {
        writer.next_chunk()
    })));
    response::with(200, HeaderValue::from_static("application/json"), body)
}

struct ListWriter {
    view: View,
    items: Vec<Arc<Object>>,
    at: usize,
    head: Option<Vec<u8>>,
    done: bool,
}

impl ListWriter {
    fn next_chunk(&mut self) -> Option<Bytes> {
        if self.done {
            return None;
        }
        let mut out = self.head.take().unwrap_or_default();
        out.reserve(CHUNK.min(self.items.len() * 512));
        while let Some(item) = self.items.get(self.at) {
            if self.at > 0 {
                out.push(b',');
            }
            self.view.write_item(&mut out, item);
            self.at += 1;
            if out.len() >= CHUNK {
                break;
            }
        }
        if self.at >= self.items.len() {
            out.extend_from_slice(b"]}");
            self.done = true;
        }
        Some(out.into())
    }
}

#[cfg(test)]
mod tests;
