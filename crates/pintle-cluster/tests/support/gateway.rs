//! A door between the loops and their server that counts requests, and can be slammed.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    future::{Future, pending},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Method, Request, Response};
use parking_lot::Mutex;
use pintle_apiserver::{ApiServer, ApiService, Body};
use tokio::sync::watch;
use tower::Service;

/// When the loops' process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The write with this number is not applied, and nothing after it is.
    Before(usize),
    /// The write with this number is applied, but nobody lives to hear it.
    After(usize),
}

/// What passed the door.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    /// The writes, as "METHOD path", events and leases left out.
    pub writes: Vec<String>,
    /// How many events were written.
    pub events: usize,
    /// Reads that are no watch, per path: lists, and gets of single objects.
    pub lists: BTreeMap<String, usize>,
    /// Watches per path.
    pub watches: BTreeMap<String, usize>,
}

struct State {
    traffic: Traffic,
    crash: Option<Crash>,
    shut: watch::Sender<bool>,
}

/// A tower service in front of a server.
#[derive(Clone)]
pub struct Gateway {
    service: ApiService,
    state: Arc<Mutex<State>>,
}

impl Gateway {
    pub fn new(server: &ApiServer, crash: Option<Crash>) -> Self {
        let shut = watch::Sender::new(false);
        let state = State {
            traffic: Traffic::default(),
            crash,
            shut,
        };
        Self {
            service: server.service(),
            state: Arc::new(Mutex::new(state)),
        }
    }

    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), "default")
    }

    pub fn traffic(&self) -> Traffic {
        self.state.lock().traffic.clone()
    }

    pub fn forget(&self) {
        self.state.lock().traffic = Traffic::default();
    }

    pub fn crash_at(&self, crash: Crash) {
        self.state.lock().crash = Some(crash);
    }

    /// Resolves when the crash has come.
    pub async fn crashed(&self) {
        let mut shut = self.state.lock().shut.subscribe();
        let _ = shut.wait_for(|shut| *shut).await;
    }
}

/// What becomes of one request.
enum Fate {
    Pass,
    Drop,
    PassUnheard,
}

impl State {
    fn judge<B>(&mut self, request: &Request<B>) -> Fate {
        if *self.shut.borrow() {
            return Fate::Drop;
        }
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default();
        if request.method() == Method::GET {
            if query.contains("watch=") {
                *self.traffic.watches.entry(path).or_default() += 1;
            } else {
                *self.traffic.lists.entry(path).or_default() += 1;
            }
            return Fate::Pass;
        }
        if path.contains("/events") {
            self.traffic.events += 1;
            return Fate::Pass;
        }
        if path.contains("/leases") {
            return Fate::Pass;
        }
        let number = self.traffic.writes.len();
        self.traffic
            .writes
            .push(format!("{} {path}", request.method()));
        match self.crash {
            Some(Crash::Before(at)) if at == number => {
                self.shut.send_replace(true);
                Fate::Drop
            }
            Some(Crash::After(at)) if at == number => {
                self.shut.send_replace(true);
                Fate::PassUnheard
            }
            _ => Fate::Pass,
        }
    }
}

impl<B> Service<Request<B>> for Gateway
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let fate = self.state.lock().judge(&request);
        let mut service = self.service.clone();
        Box::pin(async move {
            match fate {
                Fate::Pass => service.call(request).await,
                Fate::Drop => pending().await,
                Fate::PassUnheard => {
                    let _ = service.call(request).await;
                    pending().await
                }
            }
        })
    }
}
