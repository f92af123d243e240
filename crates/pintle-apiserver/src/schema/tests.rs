use serde_json::{Value, json};

use super::*;

/// Proves errors/depth.
#[test]
fn depth_limit_matches_serde_json() {
    for leaf in [json!({}), json!([]), json!(1)] {
        let mut value = leaf;
        loop {
            let read = serde_json::from_str::<Value>(&value.to_string());
            assert_eq!(
                depth(&value) <= MAX_DEPTH,
                read.is_ok(),
                "{}",
                depth(&value)
            );
            if read.is_err() {
                break;
            }
            value = json!([value]);
        }
    }
}
