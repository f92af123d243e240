use proptest::prelude::*;

use super::*;

fn claims() -> Value {
    json!({"iss": "us", "sub": "somebody"})
}

#[test]
fn only_own_signatures_verify() {
    let (ours, other) = (Key::generate().unwrap(), Key::generate().unwrap());
    let token = ours.sign(&claims()).unwrap();
    assert_eq!(ours.claims(&token, "us"), Ok(claims()));
    assert_eq!(ours.claims(&token, "them"), Err(Foreign::Unknown));
    assert_eq!(other.claims(&token, "us"), Err(Foreign::NoKey));
    let more = encode(json!({"iss": "us", "sub": "admin"}).to_string());
    let parts: Vec<&str> = token.split('.').collect();
    let forged = format!("{}.{more}.{}", parts[0], parts[2]);
    assert_eq!(ours.claims(&forged, "us"), Err(Foreign::Signature));
    let none = encode(json!({"alg": "none"}).to_string());
    let unsigned = format!("{none}.{more}.");
    assert_eq!(ours.claims(&unsigned, "us"), Err(Foreign::Signature));
    for text in ["", ".", "..", "a.b.c", "a.b.c.d"] {
        assert_eq!(ours.claims(text, "us"), Err(Foreign::Unknown), "{text:?}");
    }
}

#[test]
fn invalid_signature_is_rejected() {
    let (key, other) = (Key::generate().unwrap(), Key::generate().unwrap());
    let token = key.sign(&claims()).unwrap();
    for end in ["*", "=", "AAA"] {
        let changed = format!("{token}{end}");
        for key in [&key, &other] {
            let found = key.claims(&changed, "us");
            assert_eq!(found, Err(Foreign::Unknown), "{end}");
        }
    }
    // These are base64, but the second has unused bits set.
    for end in ["AAAA", "x"] {
        let changed = format!("{token}{end}");
        let found = key.claims(&changed, "us");
        assert_eq!(found, Err(Foreign::Signature), "{end}");
    }
    let mut changed = token.clone();
    let last = changed.pop().unwrap();
    // 64 bytes leave four bits of the last character unused.
    changed.push(char::from(u8::try_from(last).unwrap() + 1));
    let signature = |token: &str| LENIENT.decode(token.rsplit('.').next().unwrap()).unwrap();
    assert_eq!(signature(&changed), signature(&token));
    assert_eq!(key.claims(&changed, "us"), Err(Foreign::Signature));
}

#[test]
fn token_without_key_id_is_verified() {
    let key = Key::generate().unwrap();
    let nameless = encode(json!({"alg": "ES256"}).to_string());
    let signed = format!("{nameless}.{}", encode(claims().to_string()));
    let signature = key.pair.sign(&key.random, signed.as_bytes()).unwrap();
    let token = format!("{signed}.{}", encode(signature));
    assert_eq!(key.claims(&token, "us"), Ok(claims()));
}

#[test]
fn published_key_verifies_signatures() {
    let key = Key::generate().unwrap();
    let public = key.public();
    let part = |name: &str| {
        let text = public[name].as_str().unwrap();
        URL_SAFE_NO_PAD.decode(text).unwrap()
    };
    let point = [vec![4], part("x"), part("y")].concat();
    assert_eq!(point, key.pair.public_key().as_ref());
    assert!(format!("{key:?}").contains(public["kid"].as_str().unwrap()));
}

proptest! {
    #[test]
    fn changed_token_is_rejected(at: prop::sample::Index, byte in any::<u8>()) {
        let key = Key::generate().unwrap();
        let token = key.sign(&claims()).unwrap();
        let mut bytes = token.clone().into_bytes();
        *at.get_mut(&mut bytes) = byte;
        let changed = String::from_utf8_lossy(&bytes).into_owned();
        prop_assume!(changed != token);
        prop_assert!(key.claims(&changed, "us").is_err());
    }
}
