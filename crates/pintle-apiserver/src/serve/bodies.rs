//! Bodies on a socket: a request's must come in time, an answer's keeps its connection busy.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Sleep, sleep};

use super::connections::InFlight;
use crate::service::{BodyTimeout, BoxError};

/// The body of a request, for as long as its client is given to send it.
pub(super) struct Timed {
    body: Incoming,
    timeout: Duration,
    /// Runs from the first time the client is waited for.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl Timed {
    pub(super) fn new(body: Incoming, timeout: Duration) -> Self {
        Self {
            body,
            timeout,
            deadline: None,
        }
    }
}

impl Body for Timed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let timeout = self.timeout;
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let deadline = self
            .deadline
            .get_or_insert_with(|| Box::pin(sleep(timeout)));
        let over = deadline.as_mut().poll(context);
        over.map(|()| Some(Err(BodyTimeout(timeout).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of an answer. Its request is in flight until it is sent or given up.
pub(super) struct Tracked {
    body: crate::Body,
    _request: InFlight,
}

impl Tracked {
    pub(super) fn new(body: crate::Body, request: InFlight) -> Self {
        Self {
            body,
            _request: request,
        }
    }
}

impl Body for Tracked {
    type Data = <crate::Body as Body>::Data;
    type Error = <crate::Body as Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
