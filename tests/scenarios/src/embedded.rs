//! The embedded cluster, as a world.

use std::{net::SocketAddr, time::Duration};

use hyper::server::conn::http1;
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, Config, api::PostParams};
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

/// Which definition of Foo a cluster has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Crd {
    /// Ours.
    Today,
    /// Ours without the status subresource.
    Classic,
    /// The original's, which knows nothing of our further status fields.
    Original,
    /// The original's with the status subresource.
    OriginalWithStatus,
}

impl Crd {
    /// The definition itself.
    pub fn definition(self) -> CustomResourceDefinition {
        let mut definition = crd::definition(matches!(self, Self::Classic | Self::Original));
        if matches!(self, Self::Original | Self::OriginalWithStatus) {
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

/// A cluster in process, under virtual time.
#[derive(Debug)]
pub struct InProcess {
    cluster: Cluster,
    crd: Crd,
}

const START: &str = "2026-01-01T00:00:00Z";

impl InProcess {
    /// A cluster with this definition of Foo.
    pub async fn new(crd: Crd) -> Self {
        let start = START.parse().unwrap();
        let cluster = Cluster::builder().starting_at(start).seed(1).start().await;
        let definitions = Api::<CustomResourceDefinition>::all(cluster.client());
        let definition = crd.definition();
        definitions
            .create(&PostParams::default(), &definition)
            .await
            .unwrap();
        Self { cluster, crd }
    }

    /// What answers requests.
    pub fn service(&self) -> ApiService {
        self.cluster.server().service()
    }
}

impl World for InProcess {
    fn client(&self) -> Client {
        self.cluster.client()
    }

    fn namespace(&self) -> String {
        "default".to_owned()
    }

    fn pace(&self) -> Pace {
        Pace {
            tick: Duration::from_secs(1),
            patience: Duration::from_hours(1),
            resync: Duration::from_secs(30),
            rest: Duration::from_mins(2),
        }
    }

    fn clock(&self) -> Clock {
        Clock::starting_at(START.parse().unwrap())
    }

    fn keeps_conditions(&self) -> bool {
        matches!(self.crd, Crd::Today | Crd::Classic)
    }
}

/// A cluster whose controllers come over TCP, in real time.
///
/// Connections are plain, so that a server that comes back is the same server to its clients.
#[derive(Debug)]
pub struct OverTcp {
    cluster: Cluster,
    address: SocketAddr,
    listening: Mutex<Option<JoinHandle<()>>>,
}

impl OverTcp {
    /// A cluster that listens on loopback.
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

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// Answers until it is aborted, and then closes all connections.
async fn serve(listener: TcpListener, service: ApiService) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let service = TowerToHyperService::new(service.clone());
        connections.spawn(async move {
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            // Clients come and go.
            let _ = connection.await;
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
            patience: Duration::from_mins(1),
            resync: Duration::from_secs(1),
            rest: Duration::from_secs(3),
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
        // Long enough for the controller to find nobody there.
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
