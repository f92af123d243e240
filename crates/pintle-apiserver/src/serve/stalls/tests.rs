use super::*;

const LIMIT: Duration = Duration::from_secs(120);
const HOUR: Duration = Duration::from_secs(3600);

async fn is_overdue(stalls: &Stalls) -> bool {
    let waited = tokio::time::timeout(HOUR, stalls.overdue(LIMIT)).await;
    waited.is_ok()
}

#[tokio::test(start_paused = true)]
async fn only_unread_data_is_overdue() {
    let stalls = Stalls::default();
    let (read, waiting) = (stalls.track(), stalls.track());
    read.begin();
    read.end();
    assert!(!is_overdue(&stalls).await, "nothing waits");

    waiting.begin();
    let start = Instant::now();
    sleep(LIMIT / 2).await;
    read.begin();
    assert!(is_overdue(&stalls).await);
    assert_eq!(start.elapsed(), LIMIT);

    drop(waiting);
    assert!(is_overdue(&stalls).await);
    assert_eq!(start.elapsed(), LIMIT + LIMIT / 2);
    drop(read);
    assert!(!is_overdue(&stalls).await, "all responses are gone");
}

#[tokio::test(start_paused = true)]
async fn slow_reader_is_not_overdue() {
    let stalls = Stalls::default();
    let response = stalls.track();
    let reads = async {
        for _ in 0..100 {
            response.begin();
            sleep(LIMIT / 2).await;
            response.end();
        }
    };
    tokio::select! {
        biased;
        () = stalls.overdue(LIMIT) => panic!("all data was read in time"),
        () = reads => {}
    }
}
