//! Types with custom encodings: quantities, times, durations, embedded JSON and schemas.

use base64::Engine as _;
use jiff::Timestamp;
use serde_json::Value;

use super::wire::Reader;
use super::{Decoder, MAGIC, ProtobufError, envelope, malformed};
use crate::schema::builtin::{self, Leaf};
use crate::schema::typed;

/// Go's zero time, January 1 of year 1, in Unix seconds.
const NO_TIME: i64 = -62_135_596_800;

pub(super) fn base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// Converts a double to JSON, as an integer if it has no fraction.
pub(super) fn number(number: f64) -> Value {
    // Integers up to here are exact in a double.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() < EXACT {
        #[allow(clippy::cast_possible_truncation)] // Checked above.
        return (number as i64).into();
    }
    number.into()
}

pub(super) fn json(bytes: &[u8]) -> Result<Value, ProtobufError> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(bytes).map_err(|error| malformed(format!("embedded JSON: {error}")))
}

impl Decoder {
    pub(super) fn leaf(
        &mut self,
        bytes: &[u8],
        leaf: Leaf,
        depth: usize,
    ) -> Result<Value, ProtobufError> {
        match leaf {
            Leaf::Quantity => {
                let text = first_text(bytes)?;
                Ok(if text.is_empty() {
                    "0".into()
                } else {
                    text.into()
                })
            }
            Leaf::IntOrString => int_or_string(bytes),
            Leaf::Time => moment(bytes, typed::second_time),
            Leaf::MicroTime => moment(bytes, typed::micro_time),
            Leaf::Duration => {
                let mut nanos = 0;
                for field in Reader::new(bytes) {
                    if let (1, payload) = field? {
                        nanos = payload.int64()?;
                    }
                }
                Ok(span(nanos).into())
            }
            Leaf::Fields | Leaf::Json | Leaf::Patch => json(first_bytes(bytes)?),
            Leaf::RawExtension => {
                let raw = first_bytes(bytes)?;
                if raw.starts_with(MAGIC) {
                    return envelope(raw, None, self.room);
                }
                json(raw)
            }
            Leaf::SchemaOrArray => self.alternative(bytes, 1, 2, depth),
            Leaf::SchemaOrBool => {
                let mut allows = false;
                for field in Reader::new(bytes) {
                    if let (1, payload) = field? {
                        allows = payload.int64()? != 0;
                    }
                }
                let schema = self.alternative(bytes, 2, 0, depth)?;
                Ok(if schema.is_null() {
                    allows.into()
                } else {
                    schema
                })
            }
            Leaf::SchemaOrStringArray => {
                let schema = self.alternative(bytes, 1, 0, depth)?;
                if !schema.is_null() {
                    return Ok(schema);
                }
                let mut names: Vec<Value> = Vec::new();
                for field in Reader::new(bytes) {
                    if let (2, payload) = field? {
                        names.push(payload.text()?.into());
                    }
                }
                Ok(names.into())
            }
        }
    }

    /// Decodes a schema, or a list of schemas.
    fn alternative(
        &mut self,
        bytes: &[u8],
        single: u32,
        many: u32,
        depth: usize,
    ) -> Result<Value, ProtobufError> {
        const NAME: &str =
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
        let ty = builtin::named(NAME).ok_or_else(|| malformed("no schema of schemas"))?;
        let mut found = None;
        let mut list: Vec<Value> = Vec::new();
        for field in Reader::new(bytes) {
            let (number, payload) = field?;
            if number == single {
                found = Some(self.message(payload.bytes()?, ty, depth)?);
            } else if number == many {
                list.push(Value::Object(self.message(payload.bytes()?, ty, depth)?));
            }
        }
        Ok(match found {
            Some(schema) if list.is_empty() => Value::Object(schema),
            None if list.is_empty() => Value::Null,
            _ => list.into(),
        })
    }
}

fn first_bytes(bytes: &[u8]) -> Result<&[u8], ProtobufError> {
    let mut found: &[u8] = &[];
    for field in Reader::new(bytes) {
        if let (1, payload) = field? {
            found = payload.bytes()?;
        }
    }
    Ok(found)
}

fn first_text(bytes: &[u8]) -> Result<String, ProtobufError> {
    let text = std::str::from_utf8(first_bytes(bytes)?);
    Ok(text
        .map_err(|_| malformed("a string is not UTF-8"))?
        .to_owned())
}

fn int_or_string(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let (mut is_text, mut number, mut text) = (false, 0, String::new());
    for field in Reader::new(bytes) {
        match field? {
            (1, payload) => is_text = payload.int64()? == 1,
            (2, payload) => number = payload.int32()?,
            (3, payload) => text = payload.text()?,
            _ => {}
        }
    }
    Ok(if is_text { text.into() } else { number.into() })
}

fn moment(bytes: &[u8], show: fn(Timestamp) -> String) -> Result<Value, ProtobufError> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0, 0);
    for field in Reader::new(bytes) {
        match field? {
            (1, payload) => seconds = payload.int64()?,
            (2, payload) => nanos = payload.int32()?,
            _ => {}
        }
    }
    if seconds == NO_TIME && nanos == 0 {
        return Ok(Value::Null);
    }
    let moment = Timestamp::new(seconds, nanos);
    Ok(show(moment.map_err(|_| malformed("a time out of range"))?).into())
}

/// Formats a duration like Go: `1h2m3.5s`.
fn span(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let left = nanos.unsigned_abs();
    let (unit, size) = match left {
        0 => return "0s".into(),
        1..1_000 => ("ns", 1),
        1_000..1_000_000 => ("µs", 1_000),
        1_000_000..1_000_000_000 => ("ms", 1_000_000),
        _ => {
            let (seconds, rest) = (left / 1_000_000_000, left % 1_000_000_000);
            let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
            let shown = fraction(seconds % 60, rest, 9);
            return match (hours, minutes) {
                (0, 0) => format!("{sign}{shown}s"),
                (0, _) => format!("{sign}{minutes}m{shown}s"),
                _ => format!("{sign}{hours}h{minutes}m{shown}s"),
            };
        }
    };
    let digits = match unit {
        "ns" => 0,
        "µs" => 3,
        _ => 6,
    };
    format!("{sign}{}{unit}", fraction(left / size, left % size, digits))
}

fn fraction(whole: u64, rest: u64, digits: usize) -> String {
    if rest == 0 {
        return whole.to_string();
    }
    let rest = format!("{rest:0digits$}");
    format!("{whole}.{}", rest.trim_end_matches('0'))
}

#[cfg(test)]
mod tests;
