//! Runs loops with a fault at one of their writes, and restarts them after a crash.

use std::time::Duration;

use pintle_apiserver::ApiServer;
use pintle_cluster::{Builder, Cluster};
use tokio::time::{Instant, sleep};

use super::{
    Kubectl,
    gateway::{Fault, Gateway},
    start_of_time, virtual_server,
};

/// Runs a future in virtual time, on its own runtime, so that no task outlives it.
pub fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(future)
}

/// Returns the faults to try at a write. Nothing changes between two writes, so a crash after one
/// equals a crash before the next.
pub fn faults_at(write: usize) -> [Fault; 3] {
    [
        Fault::CrashAfter(write),
        Fault::LoseResponse(write),
        Fault::Fail(write),
    ]
}

/// Loops that reach their server through a gateway, which can inject a fault.
pub struct FaultyLoops {
    cluster: Option<Cluster>,
    configure: fn(Builder) -> Builder,
    server: ApiServer,
    gateway: Gateway,
    fault: Option<Fault>,
    armed: bool,
    began: Instant,
}

impl FaultyLoops {
    /// Starts the loops that `configure` selects, and returns them with a client that acts like
    /// kubectl. The fault is injected only after [`arm`](Self::arm).
    pub async fn start(fault: Option<Fault>, configure: fn(Builder) -> Builder) -> (Self, Kubectl) {
        let server = virtual_server();
        let kubectl = Kubectl::new(server.client());
        let gateway = Gateway::new(&server, None);
        let began = Instant::now();
        let cluster = configure(builder(&server, &gateway, began)).start().await;
        let loops = Self {
            cluster: Some(cluster),
            configure,
            server,
            gateway,
            fault,
            armed: false,
            began,
        };
        (loops, kubectl)
    }

    pub fn cluster(&self) -> &Cluster {
        self.cluster.as_ref().unwrap()
    }

    /// Numbers writes from here on, and arms the fault.
    pub fn arm(&mut self) {
        self.gateway.reset();
        self.armed = true;
        if let Some(fault) = self.fault {
            self.gateway.fail_at(fault);
        }
    }

    /// If the fault is a crash, waits for it and restarts the loops, without further faults.
    /// Returns whether it did.
    pub async fn recover(&mut self) -> bool {
        if !self.fault.is_some_and(Fault::is_crash) {
            return false;
        }
        self.gateway.crashed().await;
        // Dropping the cluster aborts its loops, like a crash.
        self.cluster = None;
        sleep(Duration::from_secs(1)).await;
        let gateway = Gateway::new(&self.server, None);
        let restarted = builder(&self.server, &gateway, self.began);
        self.cluster = Some((self.configure)(restarted).start().await);
        true
    }

    /// Stops the loops. Returns the writes since [`arm`](Self::arm), up to the crash if there was
    /// one. Panics if the fault was not injected.
    pub async fn stop(self) -> Vec<String> {
        let injected = self.armed && !self.gateway.is_armed();
        assert!(injected, "{:?} was not injected", self.fault);
        let writes = self.gateway.traffic().writes;
        self.cluster.unwrap().stop().await;
        writes
    }
}

/// Returns a builder for loops on `server`, whose requests pass through `gateway`. Their clock
/// shows the start of time plus the time since `began`, so it continues after a restart.
pub fn builder(server: &ApiServer, gateway: &Gateway, began: Instant) -> Builder {
    Cluster::builder()
        .server(server.clone())
        .client(gateway.client())
        .starting_at(start_of_time() + began.elapsed())
        .seed(11)
}
