//! The protobuf encoding of an OpenAPI v2 document: `openapi.v2.Document` of google/gnostic-models,
//! the only encoding client-go reads.
//!
//! Each message is a table of its fields: the JSON name, the number, and how the value is encoded.
//! Values without a schema (extensions, enums) are carried as YAML, of which JSON is a subset.

use serde_json::Value;

/// How the value of a field is encoded.
#[derive(Clone, Copy)]
enum As {
    Text,
    Texts,
    Flag,
    Integer,
    Double,
    /// A value of any kind, as YAML.
    Any,
    Anys,
    Message(&'static Message),
    Messages(&'static Message),
    /// `name` and `value` for each member.
    Named(&'static Message),
    /// A message that wraps the schema, or a boolean.
    SchemaOrFlag,
    /// A message around one or more strings.
    Wrapped,
    /// A message around a schema.
    Inside(&'static Message, u32),
    /// References to parameters of the document, or inline parameters.
    Parameters,
}

type Field = (&'static str, u32, As);

/// The fields of a message, and the field number of its extensions; 0 if it has none.
struct Message {
    fields: &'static [Field],
    extensions: u32,
}

static SCHEMA: Message = Message {
    fields: &[
        ("$ref", 1, As::Text),
        ("format", 2, As::Text),
        ("title", 3, As::Text),
        ("description", 4, As::Text),
        ("default", 5, As::Any),
        ("multipleOf", 6, As::Double),
        ("maximum", 7, As::Double),
        ("exclusiveMaximum", 8, As::Flag),
        ("minimum", 9, As::Double),
        ("exclusiveMinimum", 10, As::Flag),
        ("maxLength", 11, As::Integer),
        ("minLength", 12, As::Integer),
        ("pattern", 13, As::Text),
        ("maxItems", 14, As::Integer),
        ("minItems", 15, As::Integer),
        ("uniqueItems", 16, As::Flag),
        ("maxProperties", 17, As::Integer),
        ("minProperties", 18, As::Integer),
        ("required", 19, As::Texts),
        ("enum", 20, As::Anys),
        ("additionalProperties", 21, As::SchemaOrFlag),
        ("type", 22, As::Wrapped),
        ("items", 23, As::Inside(&SCHEMA, 1)),
        ("allOf", 24, As::Messages(&SCHEMA)),
        ("properties", 25, As::Named(&SCHEMA)),
        ("example", 30, As::Any),
    ],
    extensions: 31,
};

static INFO: Message = Message {
    fields: &[("title", 1, As::Text), ("version", 2, As::Text)],
    extensions: 7,
};

static PATH_ITEM: Message = Message {
    fields: &[
        ("get", 2, As::Message(&OPERATION)),
        ("put", 3, As::Message(&OPERATION)),
        ("post", 4, As::Message(&OPERATION)),
        ("delete", 5, As::Message(&OPERATION)),
        ("patch", 8, As::Message(&OPERATION)),
        ("parameters", 9, As::Parameters),
    ],
    extensions: 10,
};

static OPERATION: Message = Message {
    fields: &[
        ("produces", 6, As::Texts),
        ("consumes", 7, As::Texts),
        ("parameters", 8, As::Parameters),
        ("responses", 9, As::Named(&RESPONSE_VALUE)),
    ],
    extensions: 13,
};

static REFERENCE: Message = Message {
    fields: &[("$ref", 1, As::Text)],
    extensions: 0,
};

static BODY: Message = Message {
    fields: &[
        ("description", 1, As::Text),
        ("name", 2, As::Text),
        ("in", 3, As::Text),
        ("required", 4, As::Flag),
        ("schema", 5, As::Message(&SCHEMA)),
    ],
    extensions: 6,
};

static QUERY: Message = Message {
    fields: &[
        ("required", 1, As::Flag),
        ("in", 2, As::Text),
        ("description", 3, As::Text),
        ("name", 4, As::Text),
        ("type", 6, As::Text),
        ("uniqueItems", 20, As::Flag),
    ],
    extensions: 23,
};

static PATH: Message = Message {
    fields: &[
        ("required", 1, As::Flag),
        ("in", 2, As::Text),
        ("description", 3, As::Text),
        ("name", 4, As::Text),
        ("type", 5, As::Text),
        ("uniqueItems", 19, As::Flag),
    ],
    extensions: 22,
};

/// A response, in a message that may also hold a reference.
static RESPONSE_VALUE: Message = Message {
    fields: &[("", 1, As::Message(&RESPONSE))],
    extensions: 0,
};

static RESPONSE: Message = Message {
    fields: &[
        ("description", 1, As::Text),
        ("schema", 2, As::Inside(&SCHEMA, 1)),
    ],
    extensions: 5,
};

/// Encodes a document, one path and one definition at a time.
pub(super) struct Writer {
    head: Vec<u8>,
    paths: Vec<u8>,
    definitions: Vec<u8>,
    parameters: Vec<u8>,
}

impl Writer {
    pub(super) fn new(info: &Value) -> Self {
        let mut head = Encoder::default();
        head.bytes(1, b"2.0");
        head.nested(2, |out| out.message(&INFO, info));
        Self {
            head: head.0,
            paths: Vec::new(),
            definitions: Vec::new(),
            parameters: Vec::new(),
        }
    }

    pub(super) fn path(&mut self, name: &str, item: &Value) {
        append(&mut self.paths, |out| {
            out.named(2, name, |out| out.message(&PATH_ITEM, item));
        });
    }

    pub(super) fn definition(&mut self, name: &str, schema: &Value) {
        append(&mut self.definitions, |out| {
            out.named(1, name, |out| out.message(&SCHEMA, schema));
        });
    }

    pub(super) fn parameter(&mut self, name: &str, parameter: &Value) {
        append(&mut self.parameters, |out| {
            out.named(1, name, |out| out.parameter(parameter));
        });
    }

    pub(super) fn finish(self) -> Vec<u8> {
        let mut out = Encoder(self.head);
        out.bytes(8, &self.paths);
        out.bytes(9, &self.definitions);
        out.bytes(10, &self.parameters);
        out.0
    }
}

fn append(to: &mut Vec<u8>, write: impl FnOnce(&mut Encoder)) {
    let mut out = Encoder(std::mem::take(to));
    write(&mut out);
    *to = out.0;
}

/// Appends the fields of a message.
#[derive(Default)]
struct Encoder(Vec<u8>);

impl Encoder {
    fn varint(&mut self, mut number: u64) {
        loop {
            let [group, ..] = (number & 0x7f).to_le_bytes();
            number >>= 7;
            if number == 0 {
                return self.0.push(group);
            }
            self.0.push(0x80 | group);
        }
    }

    fn key(&mut self, number: u32, wire: u32) {
        self.varint(u64::from(number << 3 | wire));
    }

    fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.key(number, 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn nested(&mut self, number: u32, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(number, &inner.0);
    }

    fn named(&mut self, number: u32, name: &str, write: impl FnOnce(&mut Self)) {
        self.nested(number, |out| {
            out.bytes(1, name.as_bytes());
            out.nested(2, write);
        });
    }

    /// Writes any value, as YAML.
    fn any(&mut self, number: u32, value: &Value) {
        let yaml = value.to_string();
        self.nested(number, |out| out.bytes(2, yaml.as_bytes()));
    }

    fn message(&mut self, message: &Message, value: &Value) {
        for (name, number, kind) in message.fields {
            let found = match *name {
                "" => Some(value),
                name => value.get(name),
            };
            if let Some(found) = found {
                self.field(*number, *kind, found);
            }
        }
        let members = value.as_object().into_iter().flatten();
        let extensions = members.filter(|(name, _)| name.starts_with("x-"));
        for (name, value) in extensions.filter(|_| message.extensions != 0) {
            self.nested(message.extensions, |out| {
                out.bytes(1, name.as_bytes());
                out.any(2, value);
            });
        }
    }

    fn field(&mut self, number: u32, kind: As, value: &Value) {
        match (kind, value) {
            (As::Text, Value::String(text)) => self.bytes(number, text.as_bytes()),
            (As::Texts, Value::Array(texts)) => {
                for text in texts.iter().filter_map(Value::as_str) {
                    self.bytes(number, text.as_bytes());
                }
            }
            (As::Flag, Value::Bool(true)) => {
                self.key(number, 0);
                self.varint(1);
            }
            (As::Integer, value) => {
                if let Some(integer) = value.as_i64() {
                    self.key(number, 0);
                    self.varint(integer.cast_unsigned());
                }
            }
            (As::Double, value) => {
                if let Some(double) = value.as_f64() {
                    self.key(number, 1);
                    self.0.extend_from_slice(&double.to_le_bytes());
                }
            }
            (As::Any, value) => self.any(number, value),
            (As::Anys, Value::Array(values)) => {
                for value in values {
                    self.any(number, value);
                }
            }
            (As::Message(message), value) => {
                self.nested(number, |out| out.message(message, value));
            }
            (As::Messages(message), Value::Array(values)) => {
                for value in values {
                    self.nested(number, |out| out.message(message, value));
                }
            }
            (As::Named(message), Value::Object(members)) => self.nested(number, |out| {
                for (name, value) in members {
                    out.named(1, name, |out| out.message(message, value));
                }
            }),
            (As::SchemaOrFlag, Value::Bool(flag)) => self.nested(number, |out| {
                out.key(2, 0);
                out.varint(u64::from(*flag));
            }),
            (As::SchemaOrFlag, schema) => self.nested(number, |out| {
                out.nested(1, |out| out.message(&SCHEMA, schema));
            }),
            (As::Wrapped, Value::String(text)) => {
                self.nested(number, |out| out.bytes(1, text.as_bytes()));
            }
            (As::Inside(message, inner), value) => self.nested(number, |out| {
                out.nested(inner, |out| out.message(message, value));
            }),
            (As::Parameters, Value::Array(parameters)) => {
                for parameter in parameters {
                    self.nested(number, |out| out.parameter_item(parameter));
                }
            }
            _ => {}
        }
    }

    fn parameter_item(&mut self, value: &Value) {
        if value.get("$ref").is_some() {
            self.nested(2, |out| out.message(&REFERENCE, value));
        } else {
            self.nested(1, |out| out.parameter(value));
        }
    }

    /// Writes a parameter in the body, in the path or in the query.
    fn parameter(&mut self, value: &Value) {
        match value["in"].as_str().unwrap_or_default() {
            "body" => self.nested(1, |out| out.message(&BODY, value)),
            "path" => self.nested(2, |out| out.nested(4, |out| out.message(&PATH, value))),
            _ => self.nested(2, |out| out.nested(3, |out| out.message(&QUERY, value))),
        }
    }
}

#[cfg(test)]
mod tests;
