//! Starts and stops the controllers under test.

use std::time::Duration;

use futures::future::BoxFuture;
use kube::Client;
use pintle::{clock::Clock, events::EventBroadcaster, informer::InformerFactory, queue::WorkQueue};
use sample_controller::controller::{Controller, NAME};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// What a controller gets to run with.
pub struct Setup {
    /// The client, whose requests pass the gate.
    pub client: Client,
    /// Informers on that client, not started yet.
    pub informers: InformerFactory,
    /// The clock for conditions and events.
    pub clock: Clock,
    /// Cancelled when the controller should stop.
    pub shutdown: CancellationToken,
}

/// Runs a controller until its shutdown token is cancelled.
pub type Start = fn(Setup) -> BoxFuture<'static, ()>;

/// Runs `sample-controller` with two workers.
pub fn sample_controller(setup: Setup) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let Setup {
            client,
            informers,
            clock,
            shutdown,
        } = setup;
        let events = EventBroadcaster::builder().clock(clock.clone()).build();
        let _sink = events.start_recording(client.clone());
        let (queue, recorder) = (WorkQueue::new("Foos"), events.recorder(NAME));
        let controller = Controller::new(client, &informers, recorder, queue, clock).unwrap();
        informers.start(&shutdown);
        controller.run(2, &shutdown).await.unwrap();
        informers.shutdown().await;
        assert_eq!(events.shutdown(Duration::from_secs(5)).await.left, 0);
    })
}

/// A running controller.
#[derive(Debug)]
pub struct Running {
    /// Its informers.
    pub informers: InformerFactory,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    pub(crate) fn new(start: Start, setup: Setup) -> Self {
        Self {
            informers: setup.informers.clone(),
            shutdown: setup.shutdown.clone(),
            task: tokio::spawn(start(setup)),
        }
    }

    /// Stops the controller and waits until it has ended.
    pub async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap();
    }
}
