use pintle::clock::Clock;
use serde_json::json;

use super::*;

#[test]
fn same_uid_gets_the_same_mask() {
    let mut mask = Mask::new("ns-1", "");
    let uid = "0f0e0d0c-0b0a-4908-8706-050403020100";
    let other = "1f0e0d0c-0b0a-4908-8706-050403020100";
    let value = json!({"name": "a", "uid": uid, "resourceVersion": "12", "of": other, "me": uid});
    assert_eq!(
        mask.value(value),
        json!({"name": "a", "uid": "<uid-1>", "resourceVersion": "<version-1>", "of": "<uid-2>", "me": "<uid-1>"}),
        "keys are visited in order, so the first UID is that of `me`"
    );
}

#[test]
fn times_keep_their_format() {
    let mut mask = Mask::new("ns-1", "");
    let now = Clock::system().now();
    let seconds = format!("{now:.0}");
    assert_eq!(mask.text(&format!("{seconds} in ns-1")), "<time> in {ns}");
    assert_eq!(mask.text(&format!("{now:.6}")), "<time with 6 digits>");
}

#[test]
fn ages_of_all_formats_are_masked() {
    let mut mask = Mask::new("ns-1", "");
    let cells = json!({"cells": ["0s", "119s", "2m", "2m1s", "3h5m", "4d", "2y30d", "1/1", "5"]});
    let age = "<age>";
    assert_eq!(
        mask.value(cells),
        json!({"cells": [age, age, age, age, age, age, age, "1/1", "5"]})
    );
}

#[test]
fn field_order_in_a_message_is_ignored() {
    let mut mask = Mask::new("ns-1", "");
    for shown in [r#"[{"b":1,"a":2}]"#, r#"[{"a":2,"b":1}]"#] {
        let text = format!("x: Invalid value: {shown}: is wrong");
        let masked = mask.value(text.into());
        assert_eq!(masked, r#"x: Invalid value: [{"a":2,"b":1}]: is wrong"#);
    }
    let quoted = r#"Invalid value: "{\"name\":\"n\",\"uid\":\"\",\"resourceVersion\":\"7\"}": no"#;
    let masked = r#"Invalid value: {"name":"n","resourceVersion":"<version-1>","uid":""}: no"#;
    assert_eq!(mask.value(quoted.into()), masked);
    let text = "Invalid value: \"a\": is wrong";
    assert_eq!(mask.value(text.into()), text);
}

/// A server that alters values it was sent must not pass.
#[test]
fn sent_values_are_not_masked() {
    let uid = "0f0e0d0c-0b0a-4908-8706-050403020100";
    let script = format!("{uid} 10.1.2.3 30007 GET /x?resourceVersion=9999999");
    let mut mask = Mask::new("ns-1", &script);
    for sent in [
        uid,
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:00.100000Z",
        "10.1.2.3",
        "Too large resource version: 9999999",
    ] {
        assert_eq!(mask.text(sent), sent);
    }
    assert_eq!(
        mask.text("Too large resource version: 9999999, current: 12"),
        "Too large resource version: 9999999, current: <version>"
    );
    assert_eq!(mask.text("10.1.2.4"), "<address>");
    let ports = json!({"nodePort": 30007, "healthCheckNodePort": 30008});
    assert_eq!(
        mask.value(ports),
        json!({"nodePort": 30007, "healthCheckNodePort": "<port>"})
    );
}
