use super::*;

#[test]
fn set_names_are_label_values() {
    let longest = "a".repeat(63);
    for valid in ["web", "shop-operator.v1", "A_b", &longest] {
        assert!(is_label_value(valid), "{valid}");
    }
    let too_long = "a".repeat(64);
    for invalid in ["", "-web", "web.", "a/b", "ä", &too_long] {
        assert!(!is_label_value(invalid), "{invalid}");
    }
}
