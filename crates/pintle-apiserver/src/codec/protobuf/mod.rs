//! Decodes Kubernetes' protobuf bodies to JSON.
//!
//! A body is four magic bytes followed by an envelope that names the kind; the object inside is
//! decoded with the field numbers from [`builtin`]. Encoding is not needed: every client that sends
//! protobuf also accepts JSON.

mod leaf;
mod wire;

#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use self::wire::{Payload, Reader};
use crate::schema::builtin::{self, Field, FieldType, ProtoTarget, TypeRef};
use crate::schema::{MAX_DEPTH, depth, typed};

/// The media type of protobuf bodies.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// The first bytes of every body.
const MAGIC: &[u8; 4] = b"k8s\0";

/// How deeply envelopes may nest.
const MAX_ENVELOPES: usize = 4;

/// Why a body could not be decoded. The client gets 400.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtobufError {
    /// The magic bytes are missing.
    #[error(
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    )]
    NotProtobuf,
    /// The kind is not built in.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind {
        /// The envelope's `apiVersion`.
        api_version: String,
        /// The envelope's `kind`.
        kind: String,
    },
    /// The bytes are truncated or not a valid message.
    #[error("{0}")]
    Malformed(String),
    /// The envelope was decoded, but the object inside was not.
    #[error("{why}")]
    Object {
        /// The envelope's `apiVersion`.
        api_version: String,
        /// The envelope's `kind`.
        kind: String,
        /// Why the object could not be decoded.
        why: Box<ProtobufError>,
    },
}

impl ProtobufError {
    /// Returns the envelope's `apiVersion` and `kind`, if they were decoded.
    pub(crate) fn type_meta(&self) -> Option<(&str, &str)> {
        match self {
            Self::UnknownKind { api_version, kind }
            | Self::Object {
                api_version, kind, ..
            } => Some((api_version, kind)),
            _ => None,
        }
    }
}

fn malformed(why: impl std::fmt::Display) -> ProtobufError {
    ProtobufError::Malformed(format!("proto: {why}"))
}

fn cut() -> ProtobufError {
    ProtobufError::Malformed("unexpected EOF".to_owned())
}

/// Decodes a body to the JSON that [`typed::canonicalize`] produces. `expected` is the group,
/// version and kind to assume if the envelope has none.
pub(crate) fn decode(
    body: &[u8],
    expected: Option<(&str, &str, &str)>,
) -> Result<Value, ProtobufError> {
    let object = envelope(body, expected, MAX_ENVELOPES)?;
    if depth(&object) > MAX_DEPTH {
        return Err(malformed("the object nests too deeply"));
    }
    Ok(object)
}

fn envelope(
    body: &[u8],
    expected: Option<(&str, &str, &str)>,
    room: usize,
) -> Result<Value, ProtobufError> {
    let inside = body.strip_prefix(MAGIC).ok_or(ProtobufError::NotProtobuf)?;
    if inside.is_empty() {
        return Err(ProtobufError::Malformed("empty body".to_owned()));
    }
    let Some(room) = room.checked_sub(1) else {
        return Err(malformed("too many envelopes"));
    };
    let (mut api_version, mut kind) = (String::new(), String::new());
    let mut raw: &[u8] = &[];
    for field in Reader::new(inside) {
        let (number, payload) = field?;
        match number {
            1 => {
                for field in Reader::new(payload.bytes()?) {
                    match field? {
                        (1, payload) => api_version = payload.text()?,
                        (2, payload) => kind = payload.text()?,
                        _ => {}
                    }
                }
            }
            2 => raw = payload.bytes()?,
            _ => {}
        }
    }
    if api_version.is_empty()
        && kind.is_empty()
        && let Some((group, version, name)) = expected
    {
        api_version = if group.is_empty() {
            version.to_owned()
        } else {
            format!("{group}/{version}")
        };
        name.clone_into(&mut kind);
    }
    let ty = find(&api_version, &kind).ok_or_else(|| ProtobufError::UnknownKind {
        api_version: api_version.clone(),
        kind: kind.clone(),
    })?;
    let mut decoder = Decoder { room };
    let read = decoder.message(raw, ty, 0).and_then(|object| {
        let mut object = Value::Object(object);
        typed::canonicalize(&mut object, ty).map_err(malformed)?;
        Ok(object)
    });
    let mut object = read.map_err(|why| ProtobufError::Object {
        api_version: api_version.clone(),
        kind: kind.clone(),
        why: Box::new(why),
    })?;
    if let Value::Object(map) = &mut object {
        map.insert("apiVersion".into(), api_version.into());
        map.insert("kind".into(), kind.into());
    }
    Ok(object)
}

/// Looks up the type of a kind. Options kinds are the same in every group.
fn find(api_version: &str, kind: &str) -> Option<TypeRef> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    builtin::kind(group, version, kind).or_else(|| {
        let options = kind.ends_with("Options") || kind == "WatchEvent" || kind == "Status";
        let name = format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}");
        options.then(|| builtin::named(&name)).flatten()
    })
}

struct Decoder {
    /// How many more nested envelopes may be decoded.
    room: usize,
}

impl Decoder {
    fn message(
        &mut self,
        bytes: &[u8],
        ty: TypeRef,
        depth: usize,
    ) -> Result<Map<String, Value>, ProtobufError> {
        let mut map = Map::new();
        self.fields(bytes, ty, &mut map, depth)?;
        Ok(map)
    }

    fn fields(
        &mut self,
        bytes: &[u8],
        ty: TypeRef,
        map: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        if depth > MAX_DEPTH {
            return Err(malformed("the object nests too deeply"));
        }
        let ty = ty.get();
        for field in Reader::new(bytes) {
            let (number, payload) = field?;
            let Ok(at) = ty
                .numbers
                .binary_search_by_key(&number, |(number, _)| *number)
            else {
                continue;
            };
            match ty.numbers[at].1 {
                ProtoTarget::Inline(inline) => {
                    self.fields(payload.bytes()?, inline, map, depth + 1)?;
                }
                ProtoTarget::Field(at) => self.field(payload, &ty.fields[at], map, depth)?,
            }
        }
        Ok(())
    }

    fn field(
        &mut self,
        payload: Payload<'_>,
        field: &Field,
        map: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        let name = field.name.to_owned();
        match &field.ty {
            FieldType::List(item) => {
                let entry = map.entry(name).or_insert_with(|| Value::Array(Vec::new()));
                let Value::Array(items) = entry else {
                    return Ok(());
                };
                // Repeated numbers may be packed into one payload.
                let numbers = matches!(
                    **item,
                    FieldType::Int32 | FieldType::Int64 | FieldType::Bool
                );
                if let (true, Payload::Bytes(mut packed)) = (numbers, payload) {
                    while !packed.is_empty() {
                        let number = wire::varint(&mut packed)?;
                        items.push(self.value(Payload::Varint(number), item, depth)?);
                    }
                } else {
                    items.push(self.value(payload, item, depth)?);
                }
            }
            FieldType::Map(of) => {
                let (mut key, mut value) = (String::new(), None);
                for field in Reader::new(payload.bytes()?) {
                    match field? {
                        (1, payload) => key = payload.text()?,
                        (2, payload) => value = Some(self.value(payload, of, depth)?),
                        _ => {}
                    }
                }
                // A key without a value gets the zero value when the object is canonicalized.
                let entry = map.entry(name).or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(entries) = entry {
                    entries.insert(key, value.unwrap_or_default());
                }
            }
            ty => {
                let value = self.value(payload, ty, depth)?;
                map.insert(name, value);
            }
        }
        Ok(())
    }

    fn value(
        &mut self,
        payload: Payload<'_>,
        ty: &FieldType,
        depth: usize,
    ) -> Result<Value, ProtobufError> {
        Ok(match ty {
            FieldType::String => payload.text()?.into(),
            FieldType::Int32 => payload.int32()?.into(),
            FieldType::Int64 => payload.int64()?.into(),
            FieldType::Bool => (payload.int64()? != 0).into(),
            FieldType::Double => leaf::number(payload.double()?),
            FieldType::Bytes => leaf::base64(payload.bytes()?).into(),
            FieldType::List(item) | FieldType::Wrapped(item) => {
                let mut items = Vec::new();
                for field in Reader::new(payload.bytes()?) {
                    let (number, payload) = field?;
                    if number == 1 {
                        items.push(self.value(payload, item, depth)?);
                    }
                }
                items.into()
            }
            FieldType::Map(_) => return Err(malformed("a map in a map")),
            FieldType::Named(ty) => match ty.get().leaf {
                Some(leaf) => self.leaf(payload.bytes()?, leaf, depth + 1)?,
                None => Value::Object(self.message(payload.bytes()?, *ty, depth + 1)?),
            },
        })
    }
}
