use super::*;
use crate::testing::contents;

/// Proves I-2, I-15, I-20, I-22, F-40, F-41, S-30.
#[tokio::test(start_paused = true)]
async fn what_is_there_is_told_first_and_then_every_change() {
    let server = Server::new();
    server.put("n/a", "1");
    server.put("n/b", "1");
    let informer = SharedInformer::new(server.clone());
    let (diary, registration) = Diary::of(&informer);
    assert!(!informer.has_synced() && !registration.has_synced());
    assert_eq!(informer.lister().resource_version(), "");
    let running = run(&server, informer.clone());
    assert!(registration.synced().await);
    assert!(informer.has_synced());
    assert_eq!(diary.take(), ["+* n/a 2", "+* n/b 3"]);

    server.put("n/a", "2");
    server.put("n/c", "1");
    server.delete("n/b");
    settle().await;
    assert_eq!(diary.take(), ["= n/a 2→4", "+ n/c 5", "- n/b 6"]);
    assert_eq!(contents(&informer.lister().list()), server.contents());
    assert_eq!(informer.lister().resource_version(), "6");
    running.stop.cancel();
    running.task.await.unwrap();
    assert!(informer.is_stopped());
}
