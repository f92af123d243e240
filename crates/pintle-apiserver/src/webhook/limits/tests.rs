use std::sync::atomic::{AtomicUsize, Ordering};

use futures::{FutureExt, StreamExt, stream};
use http_body::Frame;
use http_body_util::StreamBody;

use super::*;

/// Returns a response whose chunks are counted as they are read.
fn counted(sizes: &[usize], read: &Arc<AtomicUsize>) -> impl Body<Data = Bytes, Error = BoxError> {
    let (sizes, read) = (sizes.to_vec(), Arc::clone(read));
    StreamBody::new(stream::iter(sizes).map(move |size| {
        read.fetch_add(1, Ordering::SeqCst);
        Ok(Frame::data(Bytes::from(vec![b' '; size])))
    }))
}

/// Proves admission/bounds.
#[tokio::test(start_paused = true)]
async fn concurrent_large_responses_are_limited() {
    let limits = Limits::default();
    let read = Arc::new(AtomicUsize::new(0));
    let large = [LARGE, 1, 1];
    let mut received = Vec::new();
    for _ in 0..MAX_LARGE {
        received.push(limits.receive(counted(&large, &read)).await.unwrap());
    }
    read.store(0, Ordering::SeqCst);
    let mut waiting = Box::pin(limits.receive(counted(&large, &read)));
    assert!(waiting.as_mut().now_or_never().is_none());
    assert_eq!(read.load(Ordering::SeqCst), 2, "the rest is not read yet");
    let small = limits.receive(counted(&[LARGE], &read)).now_or_never();
    assert_eq!(small.unwrap().unwrap().body.len(), LARGE);
    drop(received.pop());
    let body = waiting.now_or_never().unwrap().unwrap().body;
    assert_eq!(body.len(), LARGE + 2);
}

/// Proves admission/bounds.
#[tokio::test(start_paused = true)]
async fn response_over_the_limit_fails_and_frees_its_place() {
    let limits = Limits::default();
    let read = Arc::new(AtomicUsize::new(0));
    for _ in 0..=MAX_LARGE {
        let endless = counted(&[1024 * 1024; 20], &read);
        let error = limits.receive(endless).now_or_never().unwrap().unwrap_err();
        assert_eq!(error, "length limit exceeded");
    }
    assert_eq!(read.load(Ordering::SeqCst), 17 * (MAX_LARGE + 1));
}
