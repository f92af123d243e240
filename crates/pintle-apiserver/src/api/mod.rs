//! From a request to an answer: routes, verbs, discovery, errors.

mod bootstrap;
mod discovery;
mod kinds;
mod read;
mod request;
mod response;
mod write;

use std::{borrow::Cow, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Method, Response, header, request::Parts};
use parking_lot::Mutex;
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
        services::Ledgered,
    },
    read::{history::Past, websocket::Upgrade},
    request::{
        impersonate::impersonated,
        user::{ADMINISTRATORS, AUTHENTICATED, CREDENTIAL},
    },
    response::{error as refusal, error::ApiError},
};
pub use self::{kinds::idle::ControllerRegistration, request::user::User, response::body::Body};
use self::{
    request::{
        negotiate::{self, Form},
        options::{self, Warnings},
        query::Query,
        route::{self, Route, Target},
    },
    response::{pretty, view},
    write::patch,
};
use crate::{
    points::Pointed,
    registry::{
        Registry,
        verbs::{CREATE, DELETE, DELETE_COLLECTION, GET, LIST, PATCH, UPDATE, Verbs, WATCH},
    },
    serve::Closing,
    server::PodDeletion,
    store::Store,
};
use pintle_clock::{Clock, Rng};

/// The largest request body.
pub(crate) const MOST_BODY: usize = 3 * 1024 * 1024;

/// The server's state and everything it does with a request.
#[derive(Debug)]
pub(crate) struct Api {
    pub(crate) store: Store,
    pub(crate) registry: Registry,
    pub(crate) clock: Clock,
    pub(crate) rng: Rng,
    pub(crate) pod_deletion: PodDeletion,
    /// The credentials the server gave away.
    pub(crate) accounts: Accounts,
    /// Which addresses and ports services have.
    pub(crate) ledger: Ledgered,
    /// Which kinds controllers act on.
    pub(crate) controllers: Controllers,
    /// What is told on the way of a write.
    pub(crate) points: Pointed,
    /// When events are forgotten.
    pub(crate) expiry: Expiry,
    /// When past states are forgotten.
    pub(crate) past: Past,
    /// Where the server listens.
    pub(crate) listeners: Mutex<Vec<SocketAddr>>,
    /// Which groups of definitions have `APIService` objects.
    pub(crate) registered: Registered,
    /// The health of the control plane's parts.
    pub(crate) components: Components,
    /// The document of all kinds, once somebody asked for it.
    pub(crate) openapi: Version2,
    /// Ends every watch when the server goes.
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
    /// What the client is told besides the answer, also of a refusal.
    pub(crate) warnings: Warnings,
    /// The connection, if it can become a WebSocket.
    pub(crate) upgrade: Option<Upgrade>,
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
        let pretty = pretty::is_wanted(&parts);
        let response = match self.dispatch(parts, body, user).await {
            Ok(response) => response,
            Err(error) => response::error(&error),
        };
        if pretty {
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
        let call = Call {
            target,
            form: negotiate::form(&parts.headers, &query)?,
            closing: closing.map_or_else(|| self.closing.clone(), |closing| closing.0.clone()),
            query,
            method: parts.method,
            headers: parts.headers,
            body: body?,
            user,
            upgrade: parts.extensions.get::<Upgrade>().cloned(),
            warnings: Warnings::default(),
        };
        let deprecated = deprecation(&call.target.resource);
        let warnings = call.warnings.clone();
        let mut answer = self.call(call).await.unwrap_or_else(|error| {
            let mut refusal = response::error(&error);
            warnings.tell(&mut refusal);
            refusal
        });
        if let Some(warning) = deprecated.and_then(|text| options::warning(&text)) {
            answer.headers_mut().append(header::WARNING, warning);
        }
        Ok(answer)
    }

    async fn call(self: &Arc<Self>, call: Call) -> Answer {
        let resource = &call.target.resource;
        if let Some(custom) = &resource.custom
            && custom.needs_webhook
        {
            let what = format!("webhooks, and {} converts by one", custom.definition);
            return Err(ApiError::not_implemented(&what));
        }
        if let Some(sub) = call.target.sub.clone() {
            let sub = resource.sub(&sub).ok_or_else(|| match resource.custom {
                Some(_) => call.missing(),
                None => ApiError::unknown_resource(),
            })?;
            let verb = call.named_verb().filter(|verb| sub.verbs & verb != 0);
            let verb = verb.ok_or_else(ApiError::wrong_method)?;
            return self.subresource(&call, &sub.name.clone(), verb).await;
        }
        let verb = match call.target.name {
            Some(_) => call.named_verb(),
            None => call.collection_verb(),
        };
        let verb = verb.filter(|verb| resource.verbs & verb != 0);
        let verb = verb.ok_or_else(ApiError::wrong_method)?;
        let everywhere = resource.namespaced && call.target.namespace.is_none();
        if everywhere && verb & (LIST | WATCH) == 0 {
            return Err(ApiError::wrong_method());
        }
        match verb {
            GET | LIST if resource.is("", "componentstatuses") => self.component_statuses(&call),
            GET => self.get(&call).await,
            LIST => self.list(&call).await,
            WATCH => self.watch(&call).await,
            CREATE if resource.collection.is_none() => self.create_unstored(&call),
            CREATE => self.create(&call),
            UPDATE => self.update(&call, ""),
            PATCH => self.patch(&call, ""),
            DELETE => self.delete(&call),
            DELETE_COLLECTION => self.delete_collection(&call).await,
            _ => Err(ApiError::wrong_method()),
        }
    }

    /// Answers POST of a kind that is never kept.
    fn create_unstored(self: &Arc<Self>, call: &Call) -> Answer {
        if !call.target.resource.is("", "bindings") {
            return self.review(call);
        }
        let catalog = self.registry.catalog();
        let pods = catalog
            .find("", "v1", "pods")
            .ok_or_else(ApiError::unknown_resource)?;
        let binding = call.decoded(("", "v1", "Binding"))?;
        let mut call = call.clone();
        call.target.resource = Arc::clone(pods);
        call.target.name = binding["metadata"]["name"].as_str().map(str::to_owned);
        self.bind(&call)
    }

    async fn subresource(self: &Arc<Self>, call: &Call, sub: &str, verb: Verbs) -> Answer {
        match (sub, verb) {
            ("status" | "approval" | "ephemeralcontainers" | "resize", GET) => self.get(call).await,
            ("status" | "finalize" | "approval" | "ephemeralcontainers" | "resize", UPDATE) => {
                self.update(call, sub)
            }
            ("status" | "approval" | "ephemeralcontainers" | "resize", PATCH) => {
                self.patch(call, sub)
            }
            ("scale", GET) => self.get_scale(call),
            ("scale", UPDATE) => self.change_scale(call, None),
            ("scale", PATCH) if patch::applies(call) => self.apply_scale(call),
            ("scale", PATCH) => self.change_scale(call, Some(&patch::read(call)?.0)),
            ("binding", CREATE) => self.bind(call),
            ("eviction", CREATE) => self.evict(call),
            ("token", CREATE) => self.create_token(call),
            ("log" | "exec" | "attach" | "portforward" | "proxy", _)
                if self.store.get(call.collection()?, &call.key()).is_none() =>
            {
                Err(call.missing())
            }
            _ => Err(ApiError::not_implemented(&format!(
                "the {sub} subresource of {}",
                call.target.resource.plural
            ))),
        }
    }
}

/// What clients of a kind or version that is on its way out are told with every answer.
fn deprecation(resource: &crate::registry::Resource) -> Option<Cow<'static, str>> {
    if let Some(custom) = &resource.custom {
        return custom.deprecation.clone().map(Cow::Owned);
    }
    let text = if resource.is("", "endpoints") {
        "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
    } else if resource.is("", "componentstatuses") {
        "v1 ComponentStatus is deprecated in v1.19+"
    } else {
        return None;
    };
    Some(text.into())
}

impl Call {
    fn wants_watch(&self) -> bool {
        self.target.watch || self.query.flag("watch")
    }

    fn named_verb(&self) -> Option<Verbs> {
        Some(match self.method {
            Method::GET if self.target.watch && self.target.sub.is_none() => WATCH,
            Method::GET => GET,
            Method::PUT => UPDATE,
            Method::PATCH => PATCH,
            Method::DELETE => DELETE,
            Method::POST if self.target.sub.is_some() => CREATE,
            _ => return None,
        })
    }

    fn collection_verb(&self) -> Option<Verbs> {
        Some(match self.method {
            Method::GET if self.wants_watch() => WATCH,
            Method::GET => LIST,
            Method::POST => CREATE,
            Method::DELETE => DELETE_COLLECTION,
            _ => return None,
        })
    }

    /// How the client wants to see the objects.
    pub(crate) fn view(&self, clock: &Clock) -> view::View {
        view::View {
            resource: Arc::clone(&self.target.resource),
            form: self.form,
            clock: clock.clone(),
        }
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

    /// The collection of the resource.
    pub(crate) fn collection(&self) -> Result<crate::store::CollectionId, ApiError> {
        self.target.resource.collection.ok_or_else(|| {
            ApiError::not_implemented(&format!("{} objects", self.target.resource.kind))
        })
    }
}
