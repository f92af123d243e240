//! Worlds on the embedded cluster.

use std::{net::SocketAddr, time::Duration};

use http::{Request, Response};
use hyper::server::conn::http1;
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, Config, api::PostParams, client::Body};
use parking_lot::Mutex;
use pintle::clock::Clock;
use pintle_apiserver::ApiService;
use pintle_cluster::Cluster;
use sample_controller::crd;
use serde_json::json;
use tokio::{
    net::TcpListener,
    task::{JoinHandle, JoinSet},
};

use crate::{Pace, World};

/// Which CRD of Foo a cluster has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Crd {
    /// The CRD of this repository.
    Own,
    /// Upstream's `crd-status-subresource.yaml`, which prunes the status fields we add.
    Upstream,
}

impl Crd {
    /// Returns the CRD.
    pub fn definition(self) -> CustomResourceDefinition {
        let mut definition = crd::definition();
        if self == Self::Upstream {
            let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {
                    "deploymentName": {"type": "string"},
                    "replicas": {"type": "integer", "minimum": 1, "maximum": 10},
                }},
                "status": {"type": "object", "properties": {
                    "availableReplicas": {"type": "integer"},
                }},
            }}});
            let version = &mut definition.spec.versions[0];
            version.schema = serde_json::from_value(schema).unwrap();
            version.additional_printer_columns = None;
        }
        definition
    }
}

/// An in-process cluster under virtual time.
pub struct InProcess {
    cluster: Cluster,
    crd: Crd,
    controller_client: Option<Client>,
}

const START: &str = "2026-01-01T00:00:00Z";

impl InProcess {
    /// Starts a cluster with the given CRD.
    pub async fn new(crd: Crd) -> Self {
        let start = START.parse().unwrap();
        let cluster = Cluster::builder().starting_at(start).seed(1).start().await;
        let definitions = Api::<CustomResourceDefinition>::all(cluster.client());
        let definition = crd.definition();
        definitions
            .create(&PostParams::default(), &definition)
            .await
            .unwrap();
        Self {
            cluster,
            crd,
            controller_client: None,
        }
    }

    /// Makes controllers use `client`.
    pub fn with_controller_client(mut self, client: Client) -> Self {
        self.controller_client = Some(client);
        self
    }

    /// Passes each request of a controller to `intercept`, along with a client to forward it with.
    pub fn intercept<F, R>(self, intercept: F) -> Self
    where
        F: Fn(Client, Request<Body>) -> R + Send + 'static,
        R: Future<Output = kube::Result<Response<Body>>> + Send + 'static,
    {
        let inner = self.client();
        let service = tower::service_fn(move |request| intercept(inner.clone(), request));
        self.with_controller_client(Client::new(service, "default"))
    }

    /// Returns the service of the API server.
    pub fn service(&self) -> ApiService {
        self.cluster.server().service()
    }
}

impl World for InProcess {
    fn client(&self) -> Client {
        self.cluster.client()
    }

    fn controller_client(&self) -> Client {
        let client = self.controller_client.clone();
        client.unwrap_or_else(|| self.client())
    }

    fn namespace(&self) -> String {
        "default".to_owned()
    }

    fn pace(&self) -> Pace {
        Pace {
            tick: Duration::from_secs(1),
            timeout: Duration::from_hours(1),
            resync: Duration::from_secs(30),
            idle: Duration::from_mins(2),
        }
    }

    fn clock(&self) -> Clock {
        Clock::starting_at(START.parse().unwrap())
    }

    fn keeps_conditions(&self) -> bool {
        self.crd == Crd::Own
    }
}

/// A cluster in real time whose controllers connect over TCP.
///
/// Connections use plain HTTP, so that clients accept the server after a restart.
#[derive(Debug)]
pub struct OverTcp {
    cluster: Cluster,
    address: SocketAddr,
    listening: Mutex<Option<JoinHandle<()>>>,
}

impl OverTcp {
    /// Starts a cluster that listens on loopback.
    pub async fn new() -> Self {
        let ready = Duration::from_millis(20);
        let cluster = Cluster::builder().pod_ready_after(ready).start().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let listening = tokio::spawn(serve(listener, cluster.server().service()));
        Self {
            cluster,
            address,
            listening: Mutex::new(Some(listening)),
        }
    }

    /// Returns the URL of the API server.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// Accepts connections until aborted, which closes all of them.
async fn serve(listener: TcpListener, service: ApiService) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let service = TowerToHyperService::new(service.clone());
        connections.spawn(async move {
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            let _ = connection.await; // Clients disconnect at any time.
        });
    }
}

impl World for OverTcp {
    fn client(&self) -> Client {
        self.cluster.client()
    }

    fn controller_client(&self) -> Client {
        let config = Config::new(self.url().parse().unwrap());
        pintle::client::build(config, "scenarios/1").unwrap()
    }

    fn namespace(&self) -> String {
        "default".to_owned()
    }

    fn pace(&self) -> Pace {
        Pace {
            tick: Duration::from_millis(20),
            timeout: Duration::from_mins(1),
            resync: Duration::from_secs(1),
            idle: Duration::from_secs(3),
        }
    }

    fn clock(&self) -> Clock {
        Clock::system()
    }

    async fn restart_api_server(&self) {
        let listening = self.listening.lock().take();
        if let Some(listening) = listening {
            listening.abort();
            let _ = listening.await;
        }
        // Long enough for the controller to be refused a connection.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let listener = TcpListener::bind(self.address).await.unwrap();
        let listening = tokio::spawn(serve(listener, self.cluster.server().service()));
        *self.listening.lock() = Some(listening);
    }
}

impl Drop for OverTcp {
    fn drop(&mut self) {
        if let Some(listening) = self.listening.lock().take() {
            listening.abort();
        }
    }
}
