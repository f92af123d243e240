//! A hash that identifies a schema.

use pintle_clock::StableHash;
use serde_json::Value;

/// Returns a hash of a schema.
pub(super) fn fingerprint(schema: &Value) -> u64 {
    let mut hash = StableHash::default();
    // Writing to the hash cannot fail.
    let _ = serde_json::to_writer(&mut hash, schema);
    hash.finish()
}
