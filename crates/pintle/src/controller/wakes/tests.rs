use futures::stream;
use tokio::time::timeout;

use super::*;

fn keys(names: std::ops::Range<usize>) -> Vec<ObjectKey> {
    let key = |number| ObjectKey::namespaced("default", &format!("k-{number}"));
    names.map(key).collect()
}

/// The queue of a standby holds every object of the cache, however many there are.
///
/// Proves controller/external-sources.
#[tokio::test(start_paused = true)]
async fn keys_of_known_objects_never_wait() {
    let (queue, objects) = (WorkQueue::new("standby"), 3 * FULL);
    for key in keys(0..objects) {
        queue.add(key);
    }
    let known = keys(0..objects);
    let reading = add_keys(stream::iter(known).boxed(), &queue, || objects);
    timeout(Duration::from_secs(3600), reading)
        .await
        .expect("everything is read");
    assert_eq!(queue.len(), objects);

    // Keys without an object are bounded.
    let unknown = keys(objects..objects + 3 * FULL);
    let reading = add_keys(stream::iter(unknown).boxed(), &queue, || objects);
    let read = timeout(Duration::from_secs(3600), reading).await;
    assert!(read.is_err(), "the stream waits");
    assert!(queue.len() <= objects + FULL + BURST, "{}", queue.len());
}
