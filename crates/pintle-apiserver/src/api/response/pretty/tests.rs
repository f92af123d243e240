use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

#[test]
fn indents_like_go() {
    let value = json!({"a": [], "b": {}, "c": [1, {"d": "x,{y}: \"z\\"}], "e": null});
    let text = Indenter::default().indent(value.to_string().as_bytes());
    let wanted = r#"{
  "a": [],
  "b": {},
  "c": [
    1,
    {
      "d": "x,{y}: \"z\\"
    }
  ],
  "e": null
}"#;
    assert_eq!(std::str::from_utf8(&text).unwrap(), wanted);
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(".*", inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn chunked_output_equals_serde_pretty(value in values(), cut in any::<prop::sample::Index>()) {
        let text = value.to_string();
        let (a, b) = text.as_bytes().split_at(cut.index(text.len() + 1));
        let mut indenter = Indenter::default();
        let parts = [indenter.indent(a), indenter.indent(b)].concat();
        prop_assert_eq!(parts, serde_json::to_vec_pretty(&value).unwrap());
    }
}
