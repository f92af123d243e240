//! Watch bodies, split into events as they arrive.

#![no_main]

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Pod;
use libfuzzer_sys::fuzz_target;
use pintle::{
    cache::Reader,
    source::{KubeSource, ListOptions, ListWatch, Scope, WatchEvent},
};
use pintle_fuzz::{Replay, block_on};

fuzz_target!(|input: &[u8]| {
    block_on(async {
        let client = Replay::new(input).client();
        let source = KubeSource::<Pod>::new(client, Scope::all()).object_limit(4096);
        let reader = Reader::<Pod>::new();
        let Ok(events) = source.watch(ListOptions::default()).await else {
            return;
        };
        pin_mut!(events);
        while let Some(Ok(event)) = events.next().await {
            if let WatchEvent::Added(json)
            | WatchEvent::Modified(json)
            | WatchEvent::Deleted(json) = event
            {
                assert!(json.len() <= 4096, "event over the limit");
                let _ = reader.read(&json);
            }
        }
    });
});
