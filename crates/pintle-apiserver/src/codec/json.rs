//! Strict JSON decoding: reports duplicate and unknown fields. The last of several duplicates wins.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    fmt::{self, Write as _},
    rc::Rc,
};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::schema::field_paths::{FieldPaths, MAX_PATH_LEN, MAX_PATHS, clip};

/// Decodes JSON. Also returns the paths of duplicate fields, such as `spec.ports[0].name`.
pub(crate) fn decode(text: &[u8]) -> Result<(Value, Vec<String>), serde_json::Error> {
    // Validating the whole text once is cheaper than validating every string in it.
    match std::str::from_utf8(text) {
        Ok(text) => read(serde_json::Deserializer::from_str(text)),
        // Reports the position.
        Err(_) => read(serde_json::Deserializer::from_slice(text)),
    }
}

fn read<'de, R: serde_json::de::Read<'de>>(
    mut reader: serde_json::Deserializer<R>,
) -> Result<(Value, Vec<String>), serde_json::Error> {
    let mut found = Duplicates::default();
    let value = DecodeVisitor(&mut found).deserialize(&mut reader)?;
    reader.end()?;
    let mut duplicates = FieldPaths::default();
    for path in &found.paths {
        // Paths are collected on the way out, so their last part comes first.
        let parts = path
            .iter()
            .rev()
            .enumerate()
            .flat_map(|(i, part)| match part {
                Part::Field(name) => {
                    let dot = if i == 0 { "" } else { "." };
                    [Cow::Borrowed(dot), Cow::Borrowed(&**name)]
                }
                Part::Item(index) => [Cow::Borrowed(""), Cow::Owned(format!("[{index}]"))],
            });
        let parts: Vec<Cow<'_, str>> = parts.collect();
        duplicates.add(parts.iter().map(AsRef::as_ref));
    }
    Ok((value, duplicates.into_vec()))
}

/// Returns the strict decoding errors of a JSON document in its order: fields whose paths are in
/// `unknown`, and duplicate fields. Nothing below an unknown field is reported.
pub(crate) fn strict_errors(text: &[u8], unknown: &[String]) -> Vec<String> {
    let mut errors = StrictErrors {
        unknown: unknown.iter().map(String::as_str).collect(),
        path: String::new(),
        messages: Vec::new(),
    };
    let mut reader = serde_json::Deserializer::from_slice(text);
    // The text has been parsed before, so this cannot fail.
    let _ = OrderVisitor(&mut errors).deserialize(&mut reader);
    // Truncated paths do not match while walking; append them.
    let rest = unknown.iter().map(|path| unknown_field(path));
    rest.for_each(|message| errors.push(message));
    errors.messages
}

fn unknown_field(path: &str) -> String {
    format!("unknown field {path:?}")
}

struct StrictErrors<'a> {
    unknown: BTreeSet<&'a str>,
    /// The path of the current value.
    path: String,
    messages: Vec<String>,
}

impl StrictErrors<'_> {
    /// Adds a message unless it is already present or the limit is reached.
    fn push(&mut self, message: String) {
        if self.messages.len() < MAX_PATHS && !self.messages.contains(&message) {
            self.messages.push(message);
        }
    }
}

struct OrderVisitor<'a, 'b>(&'a mut StrictErrors<'b>);

impl<'de> DeserializeSeed<'de> for OrderVisitor<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for OrderVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let here = self.0.path.len();
        for index in 0_usize.. {
            // Writing to a `String` cannot fail.
            let _ = write!(self.0.path, "[{index}]");
            let item = items.next_element_seed(OrderVisitor(self.0))?;
            self.0.path.truncate(here);
            if item.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let here = self.0.path.len();
        let mut seen = BTreeSet::new();
        while let Some(name) = fields.next_key::<String>()? {
            if here > 0 {
                self.0.path.push('.');
            }
            self.0.path.push_str(&name);
            if self.0.unknown.contains(self.0.path.as_str()) {
                self.0.push(unknown_field(&self.0.path));
                fields.next_value::<IgnoredAny>()?;
            } else {
                if !seen.insert(name) {
                    let path = clip(&self.0.path, MAX_PATH_LEN);
                    self.0.push(format!("duplicate field {path:?}"));
                }
                fields.next_value_seed(OrderVisitor(self.0))?;
            }
            self.0.path.truncate(here);
        }
        Ok(())
    }
}

enum Part {
    Field(Rc<str>),
    Item(usize),
}

/// Paths of duplicate fields, each with its last part first.
#[derive(Default)]
struct Duplicates {
    paths: Vec<Vec<Part>>,
}

impl Duplicates {
    /// Appends the parent `part` to every path found after the first `before` ones.
    fn add_parent(&mut self, before: usize, part: impl Fn() -> Part) {
        for path in self.paths.iter_mut().skip(before) {
            path.push(part());
        }
    }
}

struct DecodeVisitor<'a>(&'a mut Duplicates);

impl<'de> DeserializeSeed<'de> for DecodeVisitor<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DecodeVisitor<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let before = self.0.paths.len();
            match items.next_element_seed(DecodeVisitor(self.0))? {
                Some(item) => list.push(item),
                None => return Ok(list.into()),
            }
            self.0.add_parent(before, || Part::Item(list.len() - 1));
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if map.contains_key(&name) && self.0.paths.len() < MAX_PATHS {
                self.0.paths.push(vec![Part::Field(name.as_str().into())]);
            }
            let before = self.0.paths.len();
            let value = fields.next_value_seed(DecodeVisitor(self.0))?;
            if self.0.paths.len() > before {
                // Names can be long, so all paths through this field share one copy.
                let shared: Rc<str> = name.as_str().into();
                self.0
                    .add_parent(before, || Part::Field(Rc::clone(&shared)));
            }
            map.insert(name, value);
        }
        Ok(map.into())
    }
}

#[cfg(test)]
mod tests;
