use std::path::PathBuf;

use proptest::prelude::*;

use super::*;

/// Bodies written by a typed Go client, each with the JSON the same client writes.
fn fixtures() -> Vec<(String, Vec<u8>, Value)> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/protobuf");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "pb") {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let json = std::fs::read(path.with_extension("json")).unwrap();
            let json = serde_json::from_slice(&json).unwrap();
            all.push((name, std::fs::read(&path).unwrap(), json));
        }
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

/// Proves wire/formats, wire/json.
#[test]
fn go_client_bodies_decode_to_their_json() {
    let all = fixtures();
    assert!(all.len() >= 14);
    for (name, body, json) in all {
        assert_eq!(decode(&body, None).unwrap(), json, "{name}");
    }
}

/// Proves wire/formats.
#[test]
fn url_names_the_kind_if_the_envelope_does_not() {
    let body = b"k8s\0\x12\x05\x0a\x03\x0a\x01a";
    let object = decode(body, Some(("", "v1", "ConfigMap"))).unwrap();
    assert_eq!(object["kind"], "ConfigMap");
    assert_eq!(object["metadata"]["name"], "a");
    assert!(matches!(
        decode(body, None),
        Err(ProtobufError::UnknownKind { .. })
    ));
}

/// Proves wire/formats.
#[test]
fn malformed_bodies_are_rejected() {
    assert_eq!(decode(b"{}", None), Err(ProtobufError::NotProtobuf));
    let why = |body: &[u8]| decode(body, None).unwrap_err();
    assert_eq!(why(b"k8s\0").to_string(), "empty body");
    let cut = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x05\x0a\x03";
    assert_eq!(why(cut).to_string(), "unexpected EOF");
    assert_eq!(why(cut).type_meta(), None);
    // The envelope is complete, but the object inside is truncated.
    let cut = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x02\x0a\x03";
    assert_eq!(why(cut).to_string(), "unexpected EOF");
    assert_eq!(why(cut).type_meta(), Some(("v1", "ConfigMap")));
}

/// Proves wire/formats.
#[test]
fn integral_doubles_decode_as_integers() {
    for (number, text) in [(0.0, "0"), (-2.0, "-2"), (0.5, "0.5"), (1e300, "1e+300")] {
        assert_eq!(leaf::number(number).to_string(), text);
    }
}

/// A schema inside a schema inside a schema, 10,000 levels deep.
#[test]
fn message_nesting_is_limited() {
    fn wrap(number: u8, inside: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2];
        let mut length = inside.len();
        while length > 0x7f {
            out.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
            length >>= 7;
        }
        out.push(u8::try_from(length).unwrap());
        out.extend(inside);
        out
    }
    let mut schema = Vec::new();
    for _ in 0..10_000 {
        // `not` is field 28: its key takes two bytes.
        let body = wrap(0, &schema);
        schema = [&[0xe2, 0x01][..], &body[1..]].concat();
    }
    let version = wrap(4, &wrap(1, &schema));
    let raw = wrap(2, &wrap(7, &version));
    let kind = b"\x0a\x17apiextensions.k8s.io/v1\x12\x18CustomResourceDefinition";
    let body = [&b"k8s\0"[..], &wrap(1, kind), &wrap(2, &raw)].concat();
    assert!(matches!(
        decode(&body, None),
        Err(ProtobufError::Object { .. })
    ));
}

proptest! {
    // Proves wire/formats.
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes, Some(("apps", "v1", "Deployment")));
        let _ = decode(&[&MAGIC[..], &bytes].concat(), Some(("", "v1", "Pod")));
    }

    // Proves wire/formats.
    #[test]
    fn corrupted_bodies_never_panic(
        pick in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let all = fixtures();
        let mut body = pick.get(&all).1.clone();
        let at = at.index(body.len());
        body[at] = byte;
        let _ = decode(&body, None);
        body.truncate(cut.index(body.len()));
        let _ = decode(&body, None);
    }
}
