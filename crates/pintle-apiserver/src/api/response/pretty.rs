//! Pretty-printed JSON.

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, Uri, header};

use crate::api::request::query::Query;

/// User agents that get indented JSON by default.
const INTERACTIVE: [&str; 3] = ["curl", "Wget", "Mozilla/5.0"];
const INDENT: &[u8] = b"  ";

/// Returns true if the request asks for indented JSON, or its user agent is one of [`INTERACTIVE`].
pub(crate) fn is_wanted(uri: &Uri, headers: &HeaderMap) -> bool {
    let query = Query::parse(uri.query());
    if accepts_pretty(headers) {
        return true;
    }
    match query.get("pretty") {
        "" => {}
        value => return matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True"),
    }
    let agent = headers.get(header::USER_AGENT);
    let agent = agent.and_then(|agent| agent.to_str().ok());
    agent.is_some_and(|agent| INTERACTIVE.iter().any(|prefix| agent.starts_with(prefix)))
}

/// Returns true if the first media type of `Accept` has the parameter `pretty=1`.
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
    /// Whether an object or array was just opened.
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
mod tests;
