//! A door between the loops and their server that counts requests, and can be slammed.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    future::{Future, pending},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Method, Request, Response};
use parking_lot::Mutex;
use pintle_apiserver::{ApiServer, ApiService, Body};
use tokio::{sync::watch, time::sleep};
use tower::Service;

/// What goes wrong at the write with this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The loops' process dies; the write is not applied, and nothing after it is.
    CrashBefore(usize),
    /// The loops' process dies; the write is applied, but nobody lives to hear it.
    CrashAfter(usize),
    /// The write is applied, but its answer is lost; the process lives on.
    LoseAnswer(usize),
    /// The write is refused with a server error; the process lives on.
    Refuse(usize),
}

impl Fault {
    pub fn is_crash(self) -> bool {
        matches!(self, Self::CrashBefore(_) | Self::CrashAfter(_))
    }
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
    fault: Option<Fault>,
    /// How long each write takes.
    delay: Duration,
    /// Reads of this path fail.
    barred: Option<String>,
    /// Reads of this path find nothing.
    hidden: Option<String>,
    shut: watch::Sender<bool>,
}

/// A tower service in front of a server.
#[derive(Clone)]
pub struct Gateway {
    service: ApiService,
    state: Arc<Mutex<State>>,
}

impl Gateway {
    pub fn new(server: &ApiServer, fault: Option<Fault>) -> Self {
        let shut = watch::Sender::new(false);
        let state = State {
            traffic: Traffic::default(),
            fault,
            delay: Duration::ZERO,
            barred: None,
            hidden: None,
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

    pub fn fail_at(&self, fault: Fault) {
        self.state.lock().fault = Some(fault);
    }

    /// From now on every write takes this long.
    pub fn delay_writes(&self, delay: Duration) {
        self.state.lock().delay = delay;
    }

    /// From now on reads of this path fail; of none, if none is given.
    pub fn bar(&self, path: Option<&str>) {
        self.state.lock().barred = path.map(str::to_owned);
    }

    /// From now on reads of this path are 404; of none, if none is given.
    pub fn hide(&self, path: Option<&str>) {
        self.state.lock().hidden = path.map(str::to_owned);
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
    PassAndFail,
    Fail,
    Miss,
}

impl State {
    fn judge<B>(&mut self, request: &Request<B>) -> Fate {
        if *self.shut.borrow() {
            return Fate::Drop;
        }
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default();
        if request.method() == Method::GET {
            if self.barred.as_ref() == Some(&path) {
                return Fate::Fail;
            }
            if self.hidden.as_ref() == Some(&path) {
                *self.traffic.lists.entry(path).or_default() += 1;
                return Fate::Miss;
            }
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
        match self.fault {
            Some(Fault::CrashBefore(at)) if at == number => {
                self.shut.send_replace(true);
                Fate::Drop
            }
            Some(Fault::CrashAfter(at)) if at == number => {
                self.shut.send_replace(true);
                Fate::PassUnheard
            }
            Some(Fault::LoseAnswer(at)) if at == number => Fate::PassAndFail,
            Some(Fault::Refuse(at)) if at == number => Fate::Fail,
            _ => Fate::Pass,
        }
    }
}

/// Makes any answer that of a server in a bad moment.
fn failed(answer: Result<Response<Body>, Infallible>) -> Result<Response<Body>, Infallible> {
    let mut answer = answer?;
    *answer.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
    Ok(answer)
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

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let (fate, delay) = {
            let mut state = self.state.lock();
            (state.judge(&request), state.delay)
        };
        let delay = delay * u32::from(request.method() != Method::GET);
        let mut service = self.service.clone();
        Box::pin(async move {
            if !delay.is_zero() {
                sleep(delay).await;
            }
            match fate {
                Fate::Pass => service.call(request).await,
                Fate::Drop => pending().await,
                Fate::PassUnheard => {
                    let _ = service.call(request).await;
                    pending().await
                }
                Fate::PassAndFail => failed(service.call(request).await),
                Fate::Miss => {
                    *request.uri_mut() = "/api/v1/nothing".parse().unwrap();
                    service.call(request).await
                }
                Fate::Fail => {
                    *request.method_mut() = Method::GET;
                    *request.uri_mut() = "/version".parse().unwrap();
                    failed(service.call(request).await)
                }
            }
        })
    }
}
