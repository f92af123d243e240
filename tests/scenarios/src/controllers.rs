//! Starts and stops the controllers under test.

use std::time::Duration;

use futures::future::BoxFuture;
use kube::Client;
use pintle::{clock::Clock, events::EventBroadcaster, informer::InformerFactory, queue::WorkQueue};
use sample_controller::controller::{Controller, NAME};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Runs a controller on the given client, informers and clock until the token is cancelled.
///
/// The informers are not started yet.
pub type Start = fn(Client, InformerFactory, Clock, CancellationToken) -> BoxFuture<'static, ()>;

/// Runs `sample-controller` with two workers.
pub fn sample_controller(
    client: Client,
    informers: InformerFactory,
    clock: Clock,
    shutdown: CancellationToken,
) -> BoxFuture<'static, ()> {
    Box::pin(async move {
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
    pub(crate) fn new(
        informers: InformerFactory,
        shutdown: CancellationToken,
        controller: BoxFuture<'static, ()>,
    ) -> Self {
        Self {
            informers,
            shutdown,
            task: tokio::spawn(controller),
        }
    }

    /// Stops the controller and waits until it has ended.
    pub async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap();
    }
}
