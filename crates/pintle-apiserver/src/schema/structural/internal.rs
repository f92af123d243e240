//! Schemas and versions of a CRD as messages show them: upstream's internal types, encoded as JSON
//! with every field under its Go name, in declaration order.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// The maximum length of an encoded value, in bytes. Each schema adds about a thousand bytes,
/// however short it is in the request.
const MAX_TEXT: usize = 1 << 20;

/// How a field is encoded. An absent field has the zero value of its Go type.
#[derive(Clone, Copy)]
enum As {
    /// A string, or `""`.
    Text,
    /// A boolean, or `false`.
    Flag,
    /// A number, or `0`.
    Number,
    /// Any JSON, or `null`.
    Json,
    /// An object with these fields, or `null`.
    Struct(&'static [Field]),
    /// A list of such objects, or `null`.
    Structs(&'static [Field]),
    Schema,
    Schemas,
    /// Schemas by name.
    Map,
    /// A schema or a list of them.
    Items,
    /// A schema or a boolean.
    Additional,
    /// Schemas or lists of names, by name.
    Dependencies,
}

/// The Go name, the JSON name and the form of a field.
type Field = (&'static str, &'static str, As);

const VERSION: [Field; 9] = [
    ("Name", "name", As::Text),
    ("Served", "served", As::Flag),
    ("Storage", "storage", As::Flag),
    ("Deprecated", "deprecated", As::Flag),
    ("DeprecationWarning", "deprecationWarning", As::Json),
    (
        "Schema",
        "schema",
        As::Struct(&[("OpenAPIV3Schema", "openAPIV3Schema", As::Schema)]),
    ),
    ("Subresources", "subresources", As::Struct(&SUBRESOURCES)),
    (
        "AdditionalPrinterColumns",
        "additionalPrinterColumns",
        As::Structs(&COLUMN),
    ),
    (
        "SelectableFields",
        "selectableFields",
        As::Structs(&[("JSONPath", "jsonPath", As::Text)]),
    ),
];

const SUBRESOURCES: [Field; 2] = [
    ("Status", "status", As::Struct(&[])),
    (
        "Scale",
        "scale",
        As::Struct(&[
            ("SpecReplicasPath", "specReplicasPath", As::Text),
            ("StatusReplicasPath", "statusReplicasPath", As::Text),
            ("LabelSelectorPath", "labelSelectorPath", As::Json),
        ]),
    ),
];

const COLUMN: [Field; 6] = [
    ("Name", "name", As::Text),
    ("Type", "type", As::Text),
    ("Format", "format", As::Text),
    ("Description", "description", As::Text),
    ("Priority", "priority", As::Number),
    ("JSONPath", "jsonPath", As::Text),
];

const RULE: [Field; 6] = [
    ("Rule", "rule", As::Text),
    ("Message", "message", As::Text),
    ("MessageExpression", "messageExpression", As::Text),
    ("Reason", "reason", As::Json),
    ("FieldPath", "fieldPath", As::Text),
    ("OptionalOldSelf", "optionalOldSelf", As::Json),
];

const SCHEMA: [Field; 44] = [
    ("ID", "id", As::Text),
    ("Schema", "$schema", As::Text),
    ("Ref", "$ref", As::Json),
    ("Description", "description", As::Text),
    ("Type", "type", As::Text),
    ("Nullable", "nullable", As::Flag),
    ("Format", "format", As::Text),
    ("Title", "title", As::Text),
    ("Default", "default", As::Json),
    ("Maximum", "maximum", As::Json),
    ("ExclusiveMaximum", "exclusiveMaximum", As::Flag),
    ("Minimum", "minimum", As::Json),
    ("ExclusiveMinimum", "exclusiveMinimum", As::Flag),
    ("MaxLength", "maxLength", As::Json),
    ("MinLength", "minLength", As::Json),
    ("Pattern", "pattern", As::Text),
    ("MaxItems", "maxItems", As::Json),
    ("MinItems", "minItems", As::Json),
    ("UniqueItems", "uniqueItems", As::Flag),
    ("MultipleOf", "multipleOf", As::Json),
    ("Enum", "enum", As::Json),
    ("MaxProperties", "maxProperties", As::Json),
    ("MinProperties", "minProperties", As::Json),
    ("Required", "required", As::Json),
    ("Items", "items", As::Items),
    ("AllOf", "allOf", As::Schemas),
    ("OneOf", "oneOf", As::Schemas),
    ("AnyOf", "anyOf", As::Schemas),
    ("Not", "not", As::Schema),
    ("Properties", "properties", As::Map),
    (
        "AdditionalProperties",
        "additionalProperties",
        As::Additional,
    ),
    ("PatternProperties", "patternProperties", As::Map),
    ("Dependencies", "dependencies", As::Dependencies),
    ("AdditionalItems", "additionalItems", As::Additional),
    ("Definitions", "definitions", As::Map),
    (
        "ExternalDocs",
        "externalDocs",
        As::Struct(&[
            ("Description", "description", As::Text),
            ("URL", "url", As::Text),
        ]),
    ),
    ("Example", "example", As::Json),
    (
        "XPreserveUnknownFields",
        "x-kubernetes-preserve-unknown-fields",
        As::Json,
    ),
    (
        "XEmbeddedResource",
        "x-kubernetes-embedded-resource",
        As::Flag,
    ),
    ("XIntOrString", "x-kubernetes-int-or-string", As::Flag),
    ("XListMapKeys", "x-kubernetes-list-map-keys", As::Json),
    ("XListType", "x-kubernetes-list-type", As::Json),
    ("XMapType", "x-kubernetes-map-type", As::Json),
    (
        "XValidations",
        "x-kubernetes-validations",
        As::Structs(&RULE),
    ),
];

/// Encodes a rule.
pub(super) fn rule(rule: &Value) -> String {
    let mut text = Text::default();
    text.object(rule, &RULE);
    text.out
}

/// Encodes a schema. Returns `None` if the result is too long.
pub(super) fn schema(schema: &Map<String, Value>) -> Option<String> {
    let mut text = Text::default();
    text.fields(schema, &SCHEMA);
    text.done()
}

/// Encodes the value of `items`. Returns `None` if the result is too long.
pub(super) fn items(items: &Value) -> Option<String> {
    let mut text = Text::default();
    text.value(items, As::Items);
    text.done()
}

/// Encodes the versions of a CRD without the fields that are `common` to all of them. Returns
/// `None` if the result is too long.
pub(crate) fn versions(versions: &[Value], common: &[&str]) -> Option<String> {
    let mut text = Text::default();
    if versions.is_empty() {
        return Some("null".to_owned());
    }
    text.list(versions, |text, version| {
        let mut version = version.as_object().cloned().unwrap_or_default();
        for field in common {
            version.remove(*field);
        }
        text.fields(&version, &VERSION);
    });
    text.done()
}

#[derive(Default)]
struct Text {
    out: String,
}

impl Text {
    fn done(self) -> Option<String> {
        (self.out.len() < MAX_TEXT).then_some(self.out)
    }

    /// Appends JSON as Go's encoder writes it, which escapes HTML's special characters.
    fn json(&mut self, value: &Value) {
        for c in value.to_string().chars() {
            match c {
                '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                    let _ = write!(self.out, "\\u{:04x}", u32::from(c));
                }
                c => self.out.push(c),
            }
        }
    }

    fn list<'a, T>(
        &mut self,
        items: impl IntoIterator<Item = &'a T>,
        mut each: impl FnMut(&mut Self, &'a T),
    ) where
        T: 'a,
    {
        self.out.push('[');
        for (i, item) in items.into_iter().enumerate() {
            if i > 0 {
                self.out.push(',');
            }
            each(self, item);
        }
        self.out.push(']');
    }

    fn map(&mut self, map: &Map<String, Value>, mut each: impl FnMut(&mut Self, &Value)) {
        self.out.push('{');
        for (i, (name, value)) in map.iter().enumerate() {
            if i > 0 {
                self.out.push(',');
            }
            self.json(&name.as_str().into());
            self.out.push(':');
            each(self, value);
        }
        self.out.push('}');
    }

    fn object(&mut self, value: &Value, fields: &[Field]) {
        match value.as_object() {
            Some(map) => self.fields(map, fields),
            None => self.out.push_str("null"),
        }
    }

    fn fields(&mut self, map: &Map<String, Value>, fields: &[Field]) {
        if self.out.len() > MAX_TEXT {
            return;
        }
        self.out.push('{');
        for (i, (go, json, form)) in fields.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            let _ = write!(self.out, "{comma}\"{go}\":");
            self.value(map.get(*json).unwrap_or(&Value::Null), *form);
        }
        self.out.push('}');
    }

    fn value(&mut self, value: &Value, form: As) {
        match (form, value) {
            (As::Text, Value::Null) => self.out.push_str("\"\""),
            (As::Flag, Value::Null) => self.out.push_str("false"),
            (As::Number, Value::Null) => self.out.push('0'),
            (_, Value::Null) => self.out.push_str("null"),
            (As::Struct(fields), value) => self.object(value, fields),
            (As::Structs(fields), Value::Array(items)) => {
                self.list(items, |text, item| text.object(item, fields));
            }
            (As::Schema, value) => self.object(value, &SCHEMA),
            (As::Schemas, Value::Array(items)) => {
                self.list(items, |text, item| text.object(item, &SCHEMA));
            }
            (As::Map, Value::Object(map)) => {
                self.map(map, |text, value| text.object(value, &SCHEMA));
            }
            (As::Items, value) => {
                let (one, many) = match value {
                    Value::Array(_) => (&Value::Null, value),
                    value => (value, &Value::Null),
                };
                self.out.push_str("{\"Schema\":");
                self.value(one, As::Schema);
                self.out.push_str(",\"JSONSchemas\":");
                self.value(many, As::Schemas);
                self.out.push('}');
            }
            (As::Additional, value) => {
                let allows = value.as_bool().unwrap_or(true);
                let _ = write!(self.out, "{{\"Allows\":{allows},\"Schema\":");
                self.object(value, &SCHEMA);
                self.out.push('}');
            }
            (As::Dependencies, Value::Object(map)) => self.map(map, |text, value| {
                let names = if value.is_array() {
                    value
                } else {
                    &Value::Null
                };
                text.out.push_str("{\"Schema\":");
                text.object(value, &SCHEMA);
                text.out.push_str(",\"Property\":");
                text.json(names);
                text.out.push('}');
            }),
            (_, value) => self.json(value),
        }
    }
}
