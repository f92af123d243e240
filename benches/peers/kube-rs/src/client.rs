//! The client.

use std::{
    pin::Pin,
    sync::atomic::{AtomicU64, Ordering},
    task::{Context, Poll, ready},
};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tower_http::map_response_body::MapResponseBodyLayer;

use crate::{CannotDo, Flags};

static RECEIVED: AtomicU64 = AtomicU64::new(0);

/// The number of body bytes received.
pub fn received() -> u64 {
    RECEIVED.load(Ordering::Relaxed)
}

/// A body that counts its bytes.
struct Counted<B>(B);

impl<B: Body<Data = Bytes> + Unpin> Body for Counted<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.0).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            RECEIVED.fetch_add(data.len() as u64, Ordering::Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// Returns a client with kube-rs's default stack that counts body bytes.
pub async fn connect(flags: &Flags) -> Result<Client> {
    let config = match (&flags.url, &flags.kubeconfig) {
        (Some(url), _) => Config::new(url.parse()?),
        (None, Some(file)) => {
            let file = Kubeconfig::read_from(file)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?
        }
        (None, None) => anyhow::bail!("either --url or --kubeconfig is required"),
    };
    let counted = MapResponseBodyLayer::new(Counted);
    Ok(ClientBuilder::try_from(config)?
        .with_layer(&counted)
        .build())
}

/// Posts to the replay server.
pub async fn post(flags: &Flags, path: &str) -> Result<()> {
    let url = flags
        .url
        .as_deref()
        .ok_or(CannotDo("this benchmark needs the replay server (--url)"))?;
    let host = url
        .trim_end_matches('/')
        .strip_prefix("http://")
        .context("the replay server needs a plain HTTP URL")?;
    let mut socket = TcpStream::connect(host).await?;
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await?;
    ensure!(
        answer.starts_with("HTTP/1.1 200"),
        "POST {path} failed: {answer}"
    );
    Ok(())
}
