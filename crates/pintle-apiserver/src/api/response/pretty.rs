//! Pretty-printed JSON.

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, header, request::Parts};

use crate::api::request::query::Query;

/// User agents that get indented JSON by default.
const INTERACTIVE: [&str; 3] = ["curl", "Wget", "Mozilla/5.0"];
const INDENT: &[u8] = b"  ";

/// Returns true if the request asks for indented JSON, or its user agent is one of [`INTERACTIVE`].
pub(crate) fn is_wanted(parts: &Parts) -> bool {
    let query = Query::parse(parts.uri.query());
    if accepts_pretty(&parts.headers) {
        return true;
    }
    match query.get("pretty") {
        "" => {}
        value => return matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True"),
    }
    let agent = parts.headers.get(header::USER_AGENT);
    let agent = agent.and_then(|agent| agent.to_str().ok());
    agent.is_some_and(|agent| INTERACTIVE.iter().any(|prefix| agent.starts_with(prefix)))
}

/// `Accept: application/json;pretty=1`
fn accepts_pretty(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT);
    let accept = accept.and_then(|accept| accept.to_str().ok());
    let first = accept.and_then(|accept| accept.split(',').next());
    first.is_some_and(|first| first.split(';').any(|part| part.trim() == "pretty=1"))
}

/// Indents a JSON document that arrives in chunks.
#[derive(Debug, Default)]
pub(crate) struct Indenter {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// An object or array was just opened.
    opened: bool,
}

impl Indenter {
    /// Indents the next chunk. Chunks may end anywhere.
    pub(crate) fn indent(&mut self, piece: &[u8]) -> Bytes {
        let mut out = BytesMut::with_capacity(piece.len() * 2);
        for &byte in piece {
            self.byte(byte, &mut out);
        }
        out.freeze()
    }

    fn byte(&mut self, byte: u8, out: &mut BytesMut) {
        if self.in_string {
            out.put_u8(byte);
            self.in_string = self.escaped || byte != b'"';
            self.escaped = !self.escaped && byte == b'\\';
            return;
        }
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => return,
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                if !std::mem::take(&mut self.opened) {
                    self.line(out);
                }
                return out.put_u8(byte);
            }
            _ => {}
        }
        if std::mem::take(&mut self.opened) {
            self.line(out);
        }
        out.put_u8(byte);
        match byte {
            b'{' | b'[' => {
                self.depth += 1;
                self.opened = true;
            }
            b',' => self.line(out),
            b':' => out.put_u8(b' '),
            b'"' => self.in_string = true,
            _ => {}
        }
    }

    fn line(&self, out: &mut BytesMut) {
        out.put_u8(b'\n');
        for _ in 0..self.depth {
            out.put_slice(INDENT);
        }
    }
}

#[cfg(test)]
mod tests {
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
}
