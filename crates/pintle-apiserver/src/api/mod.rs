//! From a request to an answer: routes, verbs, discovery, errors.

mod body;
mod create;
mod decode;
mod definitions;
mod delete;
mod discovery;
mod error;
mod list;
mod namespaces;
mod options;
mod patch;
mod query;
mod read;
mod respond;
mod route;
mod selector;
mod strategy;
mod update;
mod watch;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode, request::Parts};
use tokio_util::sync::CancellationToken;

pub use self::body::Body;
pub(crate) use self::error::ApiError;
pub(crate) use self::respond::error as refusal;
use self::{
    query::Query,
    route::{Route, Target},
};
use crate::{
    chance::Chance,
    clock::Clock,
    registry::{
        Registry,
        kind::{CREATE, DELETE, DELETE_COLLECTION, GET, LIST, PATCH, UPDATE, Verbs, WATCH},
    },
    serve::Closing,
    server::PodDeletion,
    store::Store,
};

/// The largest request body.
pub(crate) const MOST_BODY: usize = 3 * 1024 * 1024;

/// Who is asking.
#[derive(Debug, Clone)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) groups: Vec<String>,
}

impl User {
    /// Who uses the server in process, and who holds its token.
    pub(crate) fn admin() -> Self {
        Self {
            name: "kubernetes-admin".to_owned(),
            groups: vec![
                "system:masters".to_owned(),
                "system:authenticated".to_owned(),
            ],
        }
    }
}

/// The server's state and everything it does with a request.
#[derive(Debug)]
pub(crate) struct Api {
    pub(crate) store: Store,
    pub(crate) registry: Registry,
    pub(crate) clock: Clock,
    pub(crate) chance: Chance,
    pub(crate) pod_deletion: PodDeletion,
    /// Ends every watch when the server goes.
    pub(crate) closing: CancellationToken,
}

/// A request for a resource.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) target: Target,
    pub(crate) method: Method,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) user: User,
    /// Ends a watch early.
    pub(crate) closing: CancellationToken,
}

/// What a verb answers, or why not.
pub(crate) type Answer = Result<Response<Body>, ApiError>;

impl Api {
    /// Answers one request. Not cancel safe: a write may or may not have happened.
    pub(crate) async fn handle(
        self: &Arc<Self>,
        parts: Parts,
        body: Result<Bytes, ApiError>,
        user: User,
    ) -> Response<Body> {
        match self.dispatch(parts, body, user).await {
            Ok(response) => response,
            Err(error) => respond::error(&error),
        }
    }

    async fn dispatch(
        self: &Arc<Self>,
        parts: Parts,
        body: Result<Bytes, ApiError>,
        user: User,
    ) -> Answer {
        let catalog = self.registry.catalog();
        let target = match route::route(parts.uri.path(), &catalog) {
            Route::Resource(target) => target,
            other => {
                return if parts.method == Method::GET {
                    discovery::answer(&other, &catalog, &parts)
                } else {
                    Ok(respond::not_found())
                };
            }
        };
        let closing = parts.extensions.get::<Closing>();
        let call = Call {
            target,
            closing: closing.map_or_else(|| self.closing.clone(), |closing| closing.0.clone()),
            query: Query::parse(parts.uri.query()),
            method: parts.method,
            headers: parts.headers,
            body: body?,
            user,
        };
        self.call(call).await
    }

    async fn call(self: &Arc<Self>, call: Call) -> Answer {
        let resource = &call.target.resource;
        if let Some(sub) = call.target.sub.clone() {
            let Some(sub) = resource.sub(&sub) else {
                return Ok(respond::not_found());
            };
            let (verb, bit) = call.named_verb()?;
            call.allow(sub.verbs, verb, bit)?;
            return self.subresource(&call, &sub.name.clone(), bit).await;
        }
        let (verb, bit) = if call.target.name.is_some() {
            call.named_verb()?
        } else {
            call.collection_verb()?
        };
        call.allow(resource.verbs, verb, bit)?;
        let everywhere = resource.namespaced && call.target.namespace.is_none();
        if everywhere && bit & (LIST | WATCH) == 0 {
            return Err(call.refuse_verb(verb));
        }
        match bit {
            GET => self.get(&call).await,
            LIST => self.list(&call).await,
            WATCH => self.watch(&call).await,
            CREATE => self.create(&call),
            UPDATE => self.update(&call, ""),
            PATCH => self.patch(&call, ""),
            DELETE => self.delete(&call),
            DELETE_COLLECTION => self.delete_collection(&call).await,
            _ => Err(call.refuse_verb(verb)),
        }
    }

    async fn subresource(self: &Arc<Self>, call: &Call, sub: &str, verb: Verbs) -> Answer {
        match (sub, verb) {
            ("status", GET) => self.get(call).await,
            ("status" | "finalize", UPDATE) => self.update(call, sub),
            ("status", PATCH) => self.patch(call, sub),
            _ => Err(ApiError::not_implemented(&format!(
                "the {sub} subresource of {}",
                call.target.resource.plural
            ))),
        }
    }
}

impl Call {
    fn wants_watch(&self) -> bool {
        self.target.watch || self.query.flag("watch")
    }

    fn named_verb(&self) -> Result<(&'static str, Verbs), ApiError> {
        Ok(match self.method {
            Method::GET if self.wants_watch() && self.target.sub.is_none() => ("watch", WATCH),
            Method::GET => ("get", GET),
            Method::PUT => ("update", UPDATE),
            Method::PATCH => ("patch", PATCH),
            Method::DELETE => ("delete", DELETE),
            Method::POST if self.target.sub.is_some() => ("create", CREATE),
            _ => return Err(self.refuse_verb(self.method.as_str())),
        })
    }

    fn collection_verb(&self) -> Result<(&'static str, Verbs), ApiError> {
        Ok(match self.method {
            Method::GET if self.wants_watch() => ("watch", WATCH),
            Method::GET => ("list", LIST),
            Method::POST => ("create", CREATE),
            Method::DELETE => ("deletecollection", DELETE_COLLECTION),
            _ => return Err(self.refuse_verb(self.method.as_str())),
        })
    }

    fn allow(&self, verbs: Verbs, verb: &str, bit: Verbs) -> Result<(), ApiError> {
        if verbs & bit == 0 {
            Err(self.refuse_verb(verb))
        } else {
            Ok(())
        }
    }

    fn refuse_verb(&self, _verb: &str) -> ApiError {
        ApiError::new(
            StatusCode::METHOD_NOT_ALLOWED.as_u16(),
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    }

    /// The key of the named object.
    pub(crate) fn key(&self) -> Arc<str> {
        crate::store::key_of(
            self.target.namespace.as_deref(),
            self.target.name.as_deref().unwrap_or_default(),
        )
    }

    /// The error for a named object that is not there.
    pub(crate) fn missing(&self) -> ApiError {
        let resource = &self.target.resource;
        ApiError::not_found(
            &resource.group,
            &resource.plural,
            self.target.name.as_deref().unwrap_or_default(),
        )
    }

    /// The table of the resource.
    pub(crate) fn table(&self) -> Result<crate::store::TableId, ApiError> {
        self.target.resource.table.ok_or_else(|| {
            ApiError::not_implemented(&format!("{} objects", self.target.resource.kind))
        })
    }
}
