//! The client, with a count of the bytes it receives.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use kube::{Client, Config, client::Body};
use pintle::client::Target;

use crate::Flags;

const USER_AGENT: &str = concat!("pintle-bench/", env!("CARGO_PKG_VERSION"));

/// Returns a client for the server that the flags name, and a counter of the body bytes it
/// receives.
pub(crate) async fn connect(flags: &Flags) -> Result<(Client, Arc<AtomicU64>)> {
    let client = match (&flags.url, &flags.kubeconfig) {
        (Some(url), None) => {
            let url = url.parse().with_context(|| format!("invalid URL {url}"))?;
            pintle::client::build(Config::new(url), USER_AGENT)?
        }
        (None, Some(file)) => {
            let target = Target::named(Some(file), None).await?;
            target.context("no server given")?.client(USER_AGENT)?
        }
        _ => bail!("either --url or --kubeconfig is required"),
    };
    let received = Arc::new(AtomicU64::new(0));
    Ok((count(client, &received), received))
}

fn count(client: Client, received: &Arc<AtomicU64>) -> Client {
    let received = Arc::clone(received);
    let service = tower::service_fn(move |request| {
        let (client, received) = (client.clone(), Arc::clone(&received));
        async move {
            let response = client.send(request).await?;
            Ok::<_, kube::Error>(response.map(|body| Counted { body, received }))
        }
    });
    Client::new(service, "default")
}

/// A body that counts its bytes.
struct Counted {
    body: Body,
    received: Arc<AtomicU64>,
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = kube::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            self.received
                .fetch_add(data.len() as u64, Ordering::Relaxed);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
