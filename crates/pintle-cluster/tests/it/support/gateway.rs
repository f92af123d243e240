//! A service between the loops and their server that records requests and injects faults.

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

/// A fault at the write with the given number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process of the loops crashes before the write is applied.
    CrashBefore(usize),
    /// The process of the loops crashes after the write is applied.
    CrashAfter(usize),
    /// The write is applied but returns an error.
    LoseResponse(usize),
    /// The write is not applied and returns an error.
    Fail(usize),
}

impl Fault {
    pub fn is_crash(self) -> bool {
        matches!(self, Self::CrashBefore(_) | Self::CrashAfter(_))
    }

    /// Returns the number of the write.
    fn write(self) -> usize {
        match self {
            Self::CrashBefore(write)
            | Self::CrashAfter(write)
            | Self::LoseResponse(write)
            | Self::Fail(write) => write,
        }
    }
}

/// The recorded requests.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    /// Writes as "METHOD path", without events and leases.
    pub writes: Vec<String>,
    /// The number of event writes.
    pub events: usize,
    /// Lists and gets per path.
    pub lists: BTreeMap<String, usize>,
    /// Watches per path.
    pub watches: BTreeMap<String, usize>,
}

struct State {
    traffic: Traffic,
    fault: Option<Fault>,
    /// The delay of each write.
    delay: Duration,
    /// Reads of this path fail.
    failing: Option<String>,
    /// Reads of this path return 404.
    hidden: Option<String>,
    crashed: watch::Sender<bool>,
}

/// A recording, fault-injecting service in front of a server.
#[derive(Clone)]
pub struct Gateway {
    service: ApiService,
    state: Arc<Mutex<State>>,
}

impl Gateway {
    pub fn new(server: &ApiServer, fault: Option<Fault>) -> Self {
        let crashed = watch::Sender::new(false);
        let state = State {
            traffic: Traffic::default(),
            fault,
            delay: Duration::ZERO,
            failing: None,
            hidden: None,
            crashed,
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

    /// Clears the recorded requests, and with them the numbering of writes.
    pub fn reset(&self) {
        self.state.lock().traffic = Traffic::default();
    }

    pub fn fail_at(&self, fault: Fault) {
        self.state.lock().fault = Some(fault);
    }

    /// Returns whether a fault is still to be injected.
    pub fn is_armed(&self) -> bool {
        self.state.lock().fault.is_some()
    }

    /// Delays every write from now on.
    pub fn delay_writes(&self, delay: Duration) {
        self.state.lock().delay = delay;
    }

    /// Fails reads of this path from now on; `None` stops failing them.
    pub fn fail_reads(&self, path: Option<&str>) {
        self.state.lock().failing = path.map(str::to_owned);
    }

    /// Returns 404 for reads of this path from now on; `None` serves them again.
    pub fn hide(&self, path: Option<&str>) {
        self.state.lock().hidden = path.map(str::to_owned);
    }

    /// Waits for the injected crash.
    pub async fn crashed(&self) {
        let mut crashed = self.state.lock().crashed.subscribe();
        let _ = crashed.wait_for(|crashed| *crashed).await;
    }
}

/// How one request is handled.
enum Handling {
    Forward,
    /// Neither forwarded nor answered.
    Drop,
    /// Forwarded but not answered.
    ForwardUnanswered,
    /// Forwarded, but the response is an error.
    ForwardAndFail,
    Fail,
    NotFound,
}

impl State {
    fn handle<B>(&mut self, request: &Request<B>) -> Handling {
        if *self.crashed.borrow() {
            return Handling::Drop;
        }
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default();
        if request.method() == Method::GET {
            if self.failing.as_ref() == Some(&path) {
                return Handling::Fail;
            }
            if self.hidden.as_ref() == Some(&path) {
                *self.traffic.lists.entry(path).or_default() += 1;
                return Handling::NotFound;
            }
            if query.contains("watch=") {
                *self.traffic.watches.entry(path).or_default() += 1;
            } else {
                *self.traffic.lists.entry(path).or_default() += 1;
            }
            return Handling::Forward;
        }
        if path.contains("/events") {
            self.traffic.events += 1;
            return Handling::Forward;
        }
        if path.contains("/leases") {
            return Handling::Forward;
        }
        let number = self.traffic.writes.len();
        self.traffic
            .writes
            .push(format!("{} {path}", request.method()));
        match self.fault.take_if(|fault| fault.write() == number) {
            Some(Fault::CrashBefore(_)) => {
                self.crashed.send_replace(true);
                Handling::Drop
            }
            Some(Fault::CrashAfter(_)) => {
                self.crashed.send_replace(true);
                Handling::ForwardUnanswered
            }
            Some(Fault::LoseResponse(_)) => Handling::ForwardAndFail,
            Some(Fault::Fail(_)) => Handling::Fail,
            None => Handling::Forward,
        }
    }
}

/// Turns any response into an internal server error.
fn failed(response: Result<Response<Body>, Infallible>) -> Result<Response<Body>, Infallible> {
    let mut response = response?;
    *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
    Ok(response)
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
        let (handling, delay) = {
            let mut state = self.state.lock();
            (state.handle(&request), state.delay)
        };
        let delay = delay * u32::from(request.method() != Method::GET);
        let mut service = self.service.clone();
        Box::pin(async move {
            if !delay.is_zero() {
                sleep(delay).await;
            }
            match handling {
                Handling::Forward => service.call(request).await,
                Handling::Drop => pending().await,
                Handling::ForwardUnanswered => {
                    let _ = service.call(request).await;
                    pending().await
                }
                Handling::ForwardAndFail => failed(service.call(request).await),
                Handling::NotFound => {
                    // A version that is not served: the response is plain text, not a Status.
                    *request.uri_mut() = "/apis/nothing.example.com/v1".parse().unwrap();
                    service.call(request).await
                }
                Handling::Fail => {
                    *request.method_mut() = Method::GET;
                    *request.uri_mut() = "/version".parse().unwrap();
                    failed(service.call(request).await)
                }
            }
        })
    }
}
