//! Response bodies.

use std::{
    convert::Infallible,
    fmt, iter,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http_body::{Frame, SizeHint};

use super::pretty::Indenter;

/// How many bytes of JSON are indented at once.
const SLICE: usize = 4 * 1024;

/// The body of a response: all bytes at once, or a stream of chunks for lists and watches.
pub struct Body {
    inner: Inner,
}

enum Inner {
    Whole(Bytes),
    /// One document in chunks.
    Chunks(Chunks),
    /// A stream of watch events.
    Events(Chunks),
}

type Chunks = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

impl Body {
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self {
            inner: Inner::Whole(bytes.into()),
        }
    }

    pub(crate) fn chunks(stream: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self {
            inner: Inner::Chunks(Box::pin(stream)),
        }
    }

    pub(crate) fn events(stream: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self {
            inner: Inner::Events(Box::pin(stream)),
        }
    }

    /// Returns the bytes, unless the body is a stream.
    pub(crate) fn bytes(&self) -> Option<&Bytes> {
        match &self.inner {
            Inner::Whole(bytes) => Some(bytes),
            Inner::Chunks(_) | Inner::Events(_) => None,
        }
    }

    /// Indents the JSON, unless the body is a stream of events.
    ///
    /// Deeply nested JSON grows more than a hundredfold, so a large body is indented only as fast
    /// as it is read.
    pub(crate) fn indented(self) -> Self {
        let mut indenter = Indenter::default();
        match self.inner {
            Inner::Whole(bytes) if bytes.len() <= SLICE => Self::whole(indenter.indent(&bytes)),
            Inner::Whole(bytes) => {
                Self::chunks(slices(bytes).map(move |slice| indenter.indent(&slice)))
            }
            Inner::Chunks(chunks) => {
                let slices = chunks.flat_map(slices);
                Self::chunks(slices.map(move |slice| indenter.indent(&slice)))
            }
            Inner::Events(_) => self,
        }
    }
}

/// Cuts bytes into slices of at most [`SLICE`].
fn slices(mut bytes: Bytes) -> impl Stream<Item = Bytes> + Send {
    stream::iter(iter::from_fn(move || {
        let length = bytes.len().min(SLICE);
        (length > 0).then(|| bytes.split_to(length))
    }))
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.inner {
            Inner::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Inner::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Inner::Chunks(stream) | Inner::Events(stream) => stream
                .poll_next_unpin(context)
                .map(|chunk| chunk.map(|c| Ok(Frame::data(c)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.inner, Inner::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Inner::Chunks(_) | Inner::Events(_) => SizeHint::default(),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.inner {
            Inner::Whole(bytes) => write!(f, "Body({} bytes)", bytes.len()),
            Inner::Chunks(_) | Inner::Events(_) => f.write_str("Body(stream)"),
        }
    }
}
