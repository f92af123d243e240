//! Recording events from a reconcile without setting up a broadcaster.

use std::{sync::OnceLock, time::Duration};

use kube::Client;

use super::{Context, context::Inner, status::Reported};
use crate::{
    clock::Clock,
    events::{EventBroadcaster, EventRecorder, EventType, Reference},
    metrics::Metrics,
};

/// How long a stopping controller waits until its events are written.
const FLUSH: Duration = Duration::from_secs(5);

/// The recorder of a controller: the user's, or one that starts with the first event.
pub(super) struct Events {
    component: String,
    client: Client,
    clock: Clock,
    metrics: Metrics,
    recorder: OnceLock<EventRecorder>,
    /// Set if the controller owns the recorder.
    broadcaster: OnceLock<EventBroadcaster>,
    /// The errors reported in conditions and events.
    pub(super) reported: Reported,
}

impl Events {
    pub(super) fn new(
        component: &str,
        client: &Client,
        clock: &Clock,
        metrics: &Metrics,
        given: Option<EventRecorder>,
    ) -> Self {
        Self {
            component: component.to_owned(),
            client: client.clone(),
            clock: clock.clone(),
            metrics: metrics.clone(),
            recorder: given.map_or_else(OnceLock::new, OnceLock::from),
            broadcaster: OnceLock::new(),
            reported: Reported::default(),
        }
    }

    fn recorder(&self) -> &EventRecorder {
        self.recorder.get_or_init(|| {
            let broadcaster = self.broadcaster.get_or_init(|| {
                let broadcaster = EventBroadcaster::builder()
                    .clock(self.clock.clone())
                    .metrics(self.metrics.clone())
                    .build();
                broadcaster.start_recording(self.client.clone());
                broadcaster
            });
            broadcaster.recorder(&self.component)
        })
    }

    /// Writes the events recorded so far. A recorder given by the user is flushed by its owner.
    pub(super) async fn flush(&self) {
        let Some(broadcaster) = self.broadcaster.get() else {
            return;
        };
        let flushed = broadcaster.shutdown(FLUSH).await;
        if flushed.left > 0 {
            tracing::warn!(
                controller = self.component,
                left = flushed.left,
                "some events could not be written before the controller stopped; dropping them"
            );
        }
    }
}

impl<S> Context<S> {
    /// Records an event about the reconciled object.
    ///
    /// `reason` is one CamelCase word for programs; `message` is for people. Recording never waits
    /// and never fails the caller; repeats are counted, not written again. Events are reported
    /// under the controller's name and written to the newest event API that the server has, unless
    /// [`Controller::recorder`](super::Controller::recorder) says otherwise.
    ///
    /// ```no_run
    /// # use pintle::{controller::Context, events::EventType};
    /// # fn example(cx: &Context) {
    /// cx.event(EventType::Normal, "Scaled", format!("scaled to {} replicas", 3));
    /// # }
    /// ```
    pub fn event(
        &self,
        event_type: EventType,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) {
        self.inner.event(event_type, reason, message);
    }

    /// Returns the recorder, for events about other objects or with more details.
    pub fn recorder(&self) -> &EventRecorder {
        self.inner.shared.events.recorder()
    }
}

impl Inner {
    /// Records an event about the reconciled object.
    pub(super) fn event(
        &self,
        event_type: EventType,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) {
        let primary = self.primary();
        let kind = &self.shared.primary;
        let regarding = kind.object_reference(&self.key, primary.as_deref());
        self.shared.events.recorder().event(
            &Reference::from(regarding),
            event_type,
            reason,
            message,
        );
    }
}
