//! Request bodies with a deadline, and response bodies that detect clients that stop reading.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Sleep, sleep};

use super::{connections::InFlight, stalls::Stall};
use crate::tower_service::{BodyTimeout, BoxError};

/// A request body that must arrive within a time limit.
pub(super) struct Timed {
    body: Incoming,
    timeout: Duration,
    /// Starts at the first read that has to wait for the client.
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

/// The largest frame passed to hyper at once, so that even a slow reader shows progress.
const PIECE: usize = 16 * 1024;

/// A response body. Its request, unless it was rejected, is in flight until the body is sent or
/// dropped.
pub(super) struct Tracked {
    body: crate::Body,
    /// The unsent part of the last frame.
    rest: Bytes,
    stall: Stall,
    _request: Option<InFlight>,
}

impl Tracked {
    pub(super) fn new(body: crate::Body, stall: Stall, request: Option<InFlight>) -> Self {
        Self {
            body,
            rest: Bytes::new(),
            stall,
            _request: request,
        }
    }
}

impl Body for Tracked {
    type Data = Bytes;
    type Error = <crate::Body as Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.stall.end();
        if self.rest.is_empty() {
            let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => self.rest = data,
                Some(Ok(Err(other))) => return Poll::Ready(Some(Ok(other))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        let length = self.rest.len().min(PIECE);
        let piece = self.rest.split_to(length);
        self.stall.begin();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(rest + body.lower());
        if let Some(upper) = body.upper() {
            hint.set_upper(rest + upper);
        }
        hint
    }
}
