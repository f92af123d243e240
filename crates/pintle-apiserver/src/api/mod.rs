//! Turns requests into responses.
//!
//! ```text
//! request ─► request (route, query, options, body) ─► read  ─► response
//!                                                  ─► write ─► response
//!                                                       │
//!                                                     kinds (hooks of one kind)
//! ```
//!
//! - [`request`]: decodes a request: path, user, query, options, body.
//! - [`read`]: get, list, watch.
//! - [`write`]: create, update, patch, apply, delete and subresources, all on one path to the
//!   store.
//! - [`kinds`]: behaviour specific to single kinds.
//! - [`discovery`]: the kinds the server serves, and their OpenAPI documents.
//! - [`response`]: renders objects, lists, tables and errors.
//! - [`bootstrap`]: the objects every cluster has from the start.

mod bootstrap;
mod discovery;
pub(crate) mod kinds;
mod read;
mod request;
mod response;
pub(crate) mod write;

use std::{
    borrow::Cow,
    net::SocketAddr,
    sync::{Arc, OnceLock},
    task::Poll,
};

use bytes::Bytes;
use http::{HeaderMap, Method, Response, header, request::Parts};
use parking_lot::Mutex;
use pintle_clock::{Clock, Rng};
use tokio_util::sync::CancellationToken;

pub(crate) use self::{
    discovery::openapi::Version2,
    kinds::{
        api_services::Registered,
        component_statuses::Components,
        endpoints::Announced,
        events::Expiry,
        idle::Controllers,
        service_accounts::{Accounts, ISSUER},
        services::SharedLedger,
    },
    read::{history::History, logs::PodLogs, websocket::Upgrade},
    request::{
        path,
        query::{Query, decode as decode_percent},
        user::{
            ADMINISTRATORS, ANONYMOUS, AUTHENTICATED, CREDENTIAL, groups_of as ensure_groups,
            service_account,
        },
    },
    response::{error::ApiError, pretty::is_wanted as wants_pretty, refusal},
};
pub use self::{
    kinds::idle::ControllerRegistration,
    read::logs::{PodLogLine, PodLogRequest, PodLogsRegistration},
    request::user::User,
    response::body::Body,
};
pub(crate) use self::{
    request::{
        decode::{check_metadata_types, json_problem},
        fields::{Source, prune},
        options::{FieldValidation, Warnings, WriteOptions},
    },
    write::{scale::selector_text, validate::rules::webhook_entry_errors},
};
use self::{
    request::{
        negotiate::{self, Form},
        options,
        route::{self, Route, Target},
    },
    response::view,
    write::{apply, patch},
};
use crate::{
    admission::{Chain, Webhooks},
    audit::{Auditor, Record},
    authority::{Authority, AuthorityError},
    authz::{Authorizer, impersonation::LastModes, rbac::Rbac},
    points::Pointed,
    registry::{
        Registry,
        verbs::{CREATE, DELETE, DELETE_COLLECTION, GET, LIST, PATCH, UPDATE, Verbs, WATCH},
    },
    serve::Closing,
    server::PodDeletion,
    store::{CollectionId, Store},
};

/// The maximum size of a request body, in bytes.
pub(crate) const MAX_BODY: usize = 3 * 1024 * 1024;

/// The state of the server, and the verbs that work on it.
#[derive(Debug)]
pub(crate) struct Api {
    pub(crate) store: Store,
    pub(crate) registry: Registry,
    pub(crate) clock: Clock,
    pub(crate) rng: Rng,
    pub(crate) pod_deletion: PodDeletion,
    /// The admission chain, which may change or deny a request.
    pub(crate) admission: Chain,
    /// Decides what users may do, except administrators, who may do everything.
    pub(crate) authorizer: Arc<dyn Authorizer>,
    /// All roles and bindings.
    pub(crate) rbac: Arc<Rbac>,
    /// The impersonation mode that each user last used.
    pub(crate) impersonated: LastModes,
    /// Admission webhooks, converters, and how they are called.
    pub(crate) webhooks: Arc<Webhooks>,
    /// Admission policies and their bindings.
    pub(crate) policies: crate::admission::Policies,
    /// Issues and verifies service account tokens.
    pub(crate) accounts: Accounts,
    /// The certificate authority, created when it is first used.
    pub(crate) authority: OnceLock<Result<Authority, AuthorityError>>,
    /// The allocated addresses and node ports of Services.
    pub(crate) ledger: SharedLedger,
    /// The kinds that have a running controller.
    pub(crate) controllers: Controllers,
    /// Observes every request.
    pub(crate) auditor: Auditor,
    /// Test hooks around commits.
    pub(crate) points: Pointed,
    /// When events expire.
    pub(crate) expiry: Expiry,
    /// When past states expire.
    pub(crate) history: History,
    /// The addresses the server listens on.
    pub(crate) listeners: Mutex<Vec<SocketAddr>>,
    /// The groups of CRDs that have `APIServices`.
    pub(crate) registered: Registered,
    /// The health of the control plane's components.
    pub(crate) components: Components,
    /// Where the logs of Pods come from.
    pub(crate) pod_logs: PodLogs,
    /// The OpenAPI v2 document, built on first use.
    pub(crate) openapi: Version2,
    /// Cancelled when the server shuts down; ends every watch.
    pub(crate) closing: CancellationToken,
}

/// A request for a resource.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) target: Target,
    pub(crate) method: Method,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) user: User,
    pub(crate) form: Form,
    /// Warnings for the response, even if the request fails.
    pub(crate) warnings: Warnings,
    /// The audit record of the request.
    pub(crate) audit: Record,
    /// The connection, if it can be upgraded to a WebSocket.
    pub(crate) upgrade: Option<Upgrade>,
    /// Ends a watch when its connection or the server shuts down.
    pub(crate) closing: CancellationToken,
}

/// The result of a verb.
pub(crate) type Answer = Result<Response<Body>, ApiError>;

impl Api {
    /// Handles one request.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: if the future is dropped, a write may or may not have been committed.
    pub(crate) async fn handle(
        self: &Arc<Self>,
        parts: Parts,
        body: Result<Bytes, ApiError>,
        user: User,
    ) -> Response<Body> {
        let pretty = wants_pretty(&parts.uri, &parts.headers);
        let yaml = matches!(negotiate::plain(&parts.headers), Ok(Form::Yaml));
        let response = match self.dispatch(parts, body, user).await {
            Ok(response) => response,
            Err(error) => response::error(&error),
        };
        if yaml {
            response::in_yaml(response)
        } else if pretty {
            response::indented(response)
        } else {
            response
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
            Route::TokenProvider if parts.method == Method::GET => {
                return Ok(response::token_provider(&parts));
            }
            Route::TokenKeys if parts.method == Method::GET => {
                let keys = self.accounts.keys().map_err(ApiError::internal)?;
                return Ok(response::token_keys(&keys));
            }
            Route::OpenApi2 if parts.method == Method::GET => {
                return Ok(self.openapi.answer(&catalog, &parts));
            }
            other => {
                return match (&other, &parts.method) {
                    (_, &Method::GET) | (Route::Unknown | Route::NotFound, _) => Ok(
                        discovery::answer(&other, &catalog, &parts, self.clock.now()),
                    ),
                    _ => Err(ApiError::wrong_method()),
                };
            }
        };
        let closing = parts.extensions.get::<Closing>();
        let query = Query::parse(parts.uri.query());
        // The headers and the body of a connect are for what it connects to.
        let connects = target.is_connect();
        let call = Call {
            target,
            form: if connects {
                Form::default()
            } else {
                negotiate::form(&parts.headers, &query)?
            },
            closing: closing.map_or_else(|| self.closing.clone(), |closing| closing.0.clone()),
            query,
            method: parts.method,
            headers: parts.headers,
            body: if connects { Bytes::new() } else { body? },
            user,
            upgrade: parts.extensions.get::<Upgrade>().cloned(),
            warnings: Warnings::default(),
            audit: parts.extensions.get().cloned().unwrap_or_default(),
        };
        let deprecated = deprecation(&call.target.resource);
        let warnings = call.warnings.clone();
        let mut answer = match self.call_in_time(call).await {
            Ok(response) => response,
            Err(error) => response::error(&error),
        };
        warnings.add_to(&mut answer);
        if let Some(warning) = deprecated.and_then(|text| options::warning(&text)) {
            answer.headers_mut().append(header::WARNING, warning);
        }
        Ok(answer)
    }

    /// Handles a request, or fails with 504 at its deadline, so that slow webhooks cannot hold a
    /// request forever.
    async fn call_in_time(self: &Arc<Self>, call: Call) -> Answer {
        let limit = call.time_limit()?;
        let mut answer = std::pin::pin!(self.call(call));
        // Few requests have to wait, so few need a timer.
        if let Poll::Ready(answer) = futures::poll!(answer.as_mut()) {
            return answer;
        }
        let Some(limit) = limit else {
            return answer.await;
        };
        match tokio::time::timeout(limit.after, answer).await {
            Ok(answer) => answer,
            Err(_) if limit.of_write => Err(ApiError::timed_out()),
            Err(_) => Ok(response::timed_out()),
        }
    }

    async fn call(self: &Arc<Self>, call: Call) -> Answer {
        let resource = &call.target.resource;
        if let Some(sub) = call.target.sub.clone() {
            let sub = resource.sub(&sub).ok_or_else(|| match resource.custom {
                Some(_) => call.missing(),
                None => ApiError::unknown_resource(),
            })?;
            if call.target.is_connect() {
                return Box::pin(self.connect(&call, sub)).await;
            }
            let verb = call.verb().filter(|verb| sub.verbs & verb != 0);
            let verb = verb.ok_or_else(ApiError::wrong_method)?;
            let sub = sub.name.clone();
            return Box::pin(self.subresource(&call, &sub, verb)).await;
        }
        let verb = call.verb().filter(|verb| resource.verbs & verb != 0);
        let verb = verb.ok_or_else(ApiError::wrong_method)?;
        let everywhere = resource.namespaced && call.target.namespace.is_none();
        if everywhere && verb & (LIST | WATCH) == 0 {
            return Err(match resource.custom {
                Some(_) => call.missing(),
                None => ApiError::wrong_method(),
            });
        }
        if verb & (GET | LIST) != 0
            && let Some(answer) = resource.hooks.read(self, &call)
        {
            return answer;
        }
        // One box per verb: a match over unboxed futures would make every request allocate and copy
        // as much as the largest of them needs.
        match verb {
            GET => Box::pin(self.get(&call)).await,
            LIST => Box::pin(self.list(&call)).await,
            WATCH => Box::pin(self.watch(&call)).await,
            CREATE if resource.collection.is_none() => {
                resource.hooks.create_unstored(self, &call).await
            }
            CREATE => Box::pin(self.create(&call)).await,
            UPDATE => Box::pin(self.update(&call, "")).await,
            PATCH => Box::pin(self.patch(&call, "")).await,
            DELETE => Box::pin(self.delete(&call)).await,
            DELETE_COLLECTION => Box::pin(self.delete_collection(&call)).await,
            _ => Err(ApiError::wrong_method()),
        }
    }

    async fn subresource(self: &Arc<Self>, call: &Call, sub: &str, verb: Verbs) -> Answer {
        match (sub, verb) {
            ("status" | "approval" | "ephemeralcontainers" | "resize", GET) => self.get(call).await,
            ("status" | "finalize" | "approval" | "ephemeralcontainers" | "resize", UPDATE) => {
                self.update(call, sub).await
            }
            ("status" | "approval" | "ephemeralcontainers" | "resize", PATCH) => {
                self.patch(call, sub).await
            }
            ("scale", GET) => self.get_scale(call).await,
            ("scale", UPDATE) => self.change_scale(call, None).await,
            ("scale", PATCH) if apply::applies(call) => self.apply_scale(call).await,
            ("scale", PATCH) => self.change_scale(call, Some(&patch::read(call)?.0)).await,
            ("binding", CREATE) => self.bind(call).await,
            ("eviction", CREATE) => self.evict(call).await,
            ("token", CREATE) => self.create_token(call).await,
            ("log", _) => self.pod_log(call),
            _ => Err(ApiError::not_implemented(&format!(
                "the {sub} subresource of {}",
                call.target.resource.plural
            ))),
        }
    }
}

/// Returns the warning that every response about a deprecated kind or version carries.
fn deprecation(resource: &crate::registry::Resource) -> Option<Cow<'static, str>> {
    if let Some(custom) = &resource.custom {
        return custom.deprecation.clone().map(Cow::Owned);
    }
    resource.hooks.deprecation().map(Cow::Borrowed)
}

impl Call {
    fn verb(&self) -> Option<Verbs> {
        self.target.verb(&self.method, &self.query)
    }

    /// Returns how objects are rendered for the client.
    pub(crate) fn view(&self, clock: &Clock) -> view::View {
        view::View {
            resource: Arc::clone(&self.target.resource),
            form: self.form,
            clock: clock.clone(),
        }
    }

    /// Returns the key of the named object.
    pub(crate) fn key(&self) -> Arc<str> {
        crate::store::key_of(
            self.target.namespace.as_deref(),
            self.target.name.as_deref().unwrap_or_default(),
        )
    }

    /// Returns the error for a named object that does not exist.
    pub(crate) fn missing(&self) -> ApiError {
        let resource = &self.target.resource;
        ApiError::not_found(
            &resource.group,
            &resource.plural,
            self.target.name.as_deref().unwrap_or_default(),
        )
    }

    /// Returns the collection of the resource.
    ///
    /// # Errors
    ///
    /// Fails for kinds that are never stored.
    pub(crate) fn collection(&self) -> Result<CollectionId, ApiError> {
        let collection = self.target.resource.collection;
        collection.ok_or_else(|| self.not_stored())
    }

    /// Returns the error for a kind that is never stored.
    fn not_stored(&self) -> ApiError {
        ApiError::not_implemented(&format!("{} objects", self.target.resource.kind))
    }
}
