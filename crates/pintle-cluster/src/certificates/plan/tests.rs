use serde_json::json;

use super::*;

/// A certificate request for the user ann in the group red, with an ECDSA key.
const ANN: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIV01INENBUUF3SERFTU1Bb0dBMVVFQXd3RFlXNXVNUXd3Q2dZRFZRUUtEQU55WldRd1dUQVRCZ2NxaGtqTwpQUUlCQmdncWhrak9QUU1CQndOQ0FBUkpyZ3NQNUptZFNTamZoMExyWm4rYVJiN2RhdDZva2RmcldZYkduOW1jCkJVVHZVQ255aUoxQUpldXU0VG9QejErQUFKRVM4WmZsZlFGdnNWcGdOVlN6b0FBd0NnWUlLb1pJemowRUF3SUQKU0FBd1JRSWdKV2dYenk0SWdnaVRGb1pKc2hiR3JxTlF6WDhlTFlnVnBKQlhPQXhvSUw0Q0lRRHAwRThoTFZLNgpIcjZhd2hPbUtwWmIyZzMraGlQa0IxZGhrdGNSWjhUVUJnPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg==";

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn request(signer: &str, usages: &[&str], conditions: &[&str]) -> CertificateSigningRequest {
    let conditions: Vec<_> = conditions
        .iter()
        .map(|it| json!({ "type": it, "status": "True", "lastUpdateTime": at(0).to_string() }))
        .collect();
    serde_json::from_value(json!({
        "metadata": { "name": "ann", "creationTimestamp": at(0).to_string() },
        "spec": { "request": ANN, "signerName": signer, "usages": usages, "username": "ann" },
        "status": { "conditions": conditions },
    }))
    .unwrap()
}

/// Proves certificates/signed.
#[test]
fn only_approved_requests_are_signed() {
    let step =
        |signer, usages: &[_], conditions: &[_]| plan(&request(signer, usages, conditions), at(0));
    let usages = ["client auth", "digital signature"];
    assert_eq!(step(CLIENT, &usages, &[]), Step::None);
    assert_eq!(step(CLIENT, &usages, &["Denied"]), Step::None);
    assert_eq!(
        step("example.com/other", &usages, &["Approved"]),
        Step::None
    );
    let year = Step::Sign(at(-300)..at(LONGEST - 300));
    assert_eq!(step(CLIENT, &usages, &["Approved"]), year);
    assert_eq!(step(CLIENT, &usages, &["Approved", "Failed"]), Step::None);
    assert_eq!(step(LEGACY, &["server auth"], &["Approved"]), year);
}

/// Proves certificates/signed.
#[test]
fn signers_reject_requests_that_break_their_rules() {
    for (signer, usage, why) in [
        (
            CLIENT,
            "server auth",
            "invalid usage for client certificate: server auth",
        ),
        (
            CLIENT,
            "digital signature",
            "missing required usage for client certificate: client auth",
        ),
        (
            KUBELET_CLIENT,
            "client auth",
            "subject organization is not system:nodes",
        ),
    ] {
        let step = plan(&request(signer, &[usage], &["Approved"]), at(0));
        assert_eq!(step, Step::Fail(why.to_owned()));
    }
}

/// Proves certificates/signed.
#[test]
fn short_certificates_last_as_long_as_requested() {
    let mut asked = request(CLIENT, &["client auth"], &["Approved"]);
    for (seconds, until) in [(3600, 3600), (60, 600), (86_400, 86_400 - 300)] {
        asked.spec.expiration_seconds = Some(seconds);
        assert_eq!(plan(&asked, at(0)), Step::Sign(at(-300)..at(until)));
    }
}

/// Proves certificates/cleaned.
#[test]
fn old_requests_expire() {
    let left = |conditions: &[_], now| {
        expires_in(&request(CLIENT, &["client auth"], conditions), at(now)).as_secs()
    };
    assert_eq!(left(&[], 3600), 23 * 3600);
    assert_eq!(left(&["Denied"], 3599), 1);
    assert_eq!(left(&["Failed"], 3600), 0);
    assert_eq!(left(&["Approved"], 3600), 23 * 3600);
    let mut issued = request(CLIENT, &["client auth"], &["Approved"]);
    issued.status.as_mut().unwrap().certificate = Some(k8s_openapi::ByteString(vec![1]));
    assert_eq!(expires_in(&issued, at(3600)), Duration::ZERO);
}
