//! List bodies, split into items as they arrive.

#![no_main]

use k8s_openapi::api::core::v1::Pod;
use libfuzzer_sys::fuzz_target;
use pintle::{
    cache::Reader,
    source::{KubeSource, ListOptions, ListWatch, RawItem, Scope},
};
use pintle_fuzz::{Replay, block_on, keys_are_distinct};

fuzz_target!(|input: &[u8]| {
    block_on(async {
        let client = Replay::new(input).client();
        let source = KubeSource::<Pod>::new(client, Scope::all()).object_limit(4096);
        let reader = Reader::<Pod>::new();
        let mut items = 0;
        let mut on_item = |item: RawItem<'_>| {
            items += 1;
            if let RawItem::Json(json) = item {
                assert!(json.len() <= 4096, "item over the limit");
                let _ = reader.read(json);
            }
        };
        let listed = source.list(ListOptions::default(), &mut on_item).await;
        // A valid body that was read completely must yield all its items.
        if listed.is_ok() && input.len() > 1 && keys_are_distinct(&input[1..]) {
            let list: Result<serde_json::Value, _> = serde_json::from_slice(&input[1..]);
            if let Ok(list) = list {
                let expected = list["items"].as_array().map_or(0, Vec::len);
                assert_eq!(items, expected);
            }
        }
    });
});
