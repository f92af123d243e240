//! The feed delivers watch events to the controller. Faults delay events or end watches here.
//!
//! The server's stream is split into events. Each event gets a name, and a fault may delay it or
//! end the stream before it. A client only ever sees what a real API server could have sent: events
//! of one resource stay in order, and none is lost unless the watch ends.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use pintle_apiserver::Body;
use serde::Deserialize;
use tokio::{
    sync::watch,
    time::{sleep, sleep_until},
};

use super::{BoxError, Gateway, request::ResourceName};
use crate::{hub::Signal, plan::Fault, trace::Delivery};

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type", borrow)]
    kind: std::borrow::Cow<'a, str>,
    object: Object<'a>,
}

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(default, borrow)]
    metadata: Meta<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta<'a> {
    #[serde(default, borrow)]
    namespace: std::borrow::Cow<'a, str>,
    #[serde(default, borrow)]
    name: std::borrow::Cow<'a, str>,
    #[serde(default, borrow)]
    resource_version: std::borrow::Cow<'a, str>,
}

/// Returns the event that ends an expired watch.
pub(crate) fn gone_line() -> Bytes {
    Bytes::from_static(
        b"{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\
        \"status\":\"Failure\",\"message\":\"too old resource version\",\"reason\":\"Expired\",\"code\":410}}\n",
    )
}

/// Puts the feed between the server's stream and the client.
pub(crate) fn wrap(
    gateway: &Gateway,
    resource: ResourceName,
    body: Body,
) -> UnsyncBoxBody<Bytes, BoxError> {
    let feed = Feed {
        gateway: gateway.clone(),
        resource,
        body,
        cuts: gateway.hub.cuts.subscribe(),
        partial: Vec::new(),
        lines: VecDeque::new(),
        over: false,
    };
    let frames = stream::unfold(feed, |mut feed| async move {
        let line = feed.next().await?;
        Some((Ok(Frame::data(line)), feed))
    });
    StreamBody::new(frames).boxed_unsync()
}

struct Feed {
    gateway: Gateway,
    resource: ResourceName,
    body: Body,
    cuts: watch::Receiver<u64>,
    partial: Vec<u8>,
    lines: VecDeque<Bytes>,
    over: bool,
}

/// An event of a watch.
struct Event {
    fingerprint: String,
    revision: u64,
}

impl Feed {
    async fn next(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        let (hub, session) = (self.gateway.hub.clone(), self.gateway.session.clone());
        session.alive(&hub).await;
        let line = loop {
            if let Some(line) = self.lines.pop_front() {
                break line;
            }
            self.read().await?;
            sleep(hub.latency()).await;
        };
        session.alive(&hub).await;
        let Some(event) = self.event(&line) else {
            self.wait().await;
            return Some(line);
        };
        let Some(fault) = self.fault_of(&event) else {
            self.wait().await;
            self.deliver(event, None);
            return Some(line);
        };
        match fault {
            Fault::Delay(by) => {
                hub.hold(&self.resource, by);
                self.wait().await;
                self.deliver(event, Some(fault));
                Some(line)
            }
            Fault::Cut => None,
            Fault::Gone => {
                self.over = true;
                Some(gone_line())
            }
            Fault::Unobserved => {
                hub.disconnect(&self.resource);
                None
            }
            Fault::ServerRestart => {
                hub.restart_server();
                None
            }
            Fault::TimeTravel => {
                // A server may lag behind by any number of changes, so it may not have seen this
                // step yet.
                let step = hub.record.lock().before_step;
                let revision = event.revision.saturating_sub(1).min(step);
                hub.travel(revision);
                session.sever();
                hub.record.lock().mark(format!(
                    "process {} crashes; the next one reads stale state (fault)",
                    session.id
                ));
                let _ = hub.signals.send(Signal::Crash(session.id));
                std::future::pending().await
            }
            _ => {
                self.deliver(event, Some(fault));
                Some(line)
            }
        }
    }

    /// Reads more events from the server. Returns `None` when the stream ends or is cut.
    async fn read(&mut self) -> Option<()> {
        let frame = tokio::select! {
            biased;
            _ = self.cuts.changed() => return None,
            frame = self.body.frame() => frame?,
        };
        let Ok(frame) = frame;
        let data = frame.into_data().ok()?;
        self.partial.extend_from_slice(&data);
        while let Some(end) = self.partial.iter().position(|byte| *byte == b'\n') {
            let rest = self.partial.split_off(end + 1);
            let line = std::mem::replace(&mut self.partial, rest);
            self.lines.push_back(line.into());
        }
        Some(())
    }

    /// Waits while the events of this resource are held back.
    async fn wait(&mut self) {
        let hub = Arc::clone(&self.gateway.hub);
        while let Some(until) = hub.held_until(&self.resource) {
            sleep_until(until).await;
        }
        if let Some((revision, until)) = hub.past()
            && revision > 0
        {
            // The lagging API server does not send newer events yet.
            sleep_until(until + Duration::from_millis(1)).await;
        }
        self.gateway.session.alive(&hub).await;
    }

    /// Returns the fault that is armed for an event.
    fn fault_of(&self, event: &Event) -> Option<Fault> {
        let mut record = self.gateway.hub.record.lock();
        record.fault(true, &event.fingerprint)
    }

    /// Parses and names an event. Returns `None` for a bookmark or an error.
    fn event(&self, line: &[u8]) -> Option<Event> {
        let line: Line<'_> = serde_json::from_slice(line).ok()?;
        if matches!(&*line.kind, "BOOKMARK" | "ERROR") {
            return None;
        }
        let meta = line.object.metadata;
        let name = self.gateway.hub.record.lock().stable_name(&meta.name);
        Some(Event {
            fingerprint: format!("{}/{}/{}/{name}", line.kind, self.resource, meta.namespace),
            revision: meta.resource_version.parse().unwrap_or_default(),
        })
    }

    fn deliver(&self, event: Event, fault: Option<Fault>) {
        let hub = &self.gateway.hub;
        let Event {
            fingerprint,
            revision,
        } = event;
        let newest = hub.newest();
        let mut record = hub.record.lock();
        let nth = record.number(&fingerprint);
        let delivery = Delivery {
            nth,
            resource: self.resource.clone(),
            process: self.gateway.session.id,
            step: record.step,
            at: record.now(),
            revision,
            lag: newest.saturating_sub(revision),
            fault: fault.map(Fault::name),
            fingerprint,
        };
        record.trace.deliveries.push(delivery);
    }
}
