use super::*;

#[test]
fn classes_are_ascii() {
    let digits = compile(r"^\d+$").unwrap();
    assert!(digits.is_match("123"));
    assert!(!digits.is_match("١٢٣"));
    assert!(!compile(r"^\w$").unwrap().is_match("é"));
    assert!(compile(r"^[\w.-]+$").unwrap().is_match("a.b-c"));
}

#[test]
fn brackets_inside_sets_are_plain() {
    assert!(compile(r"^[[]$").unwrap().is_match("["));
    assert!(compile(r"^[]a]+$").unwrap().is_match("]a"));
    assert!(compile(r"^[^]a]+$").unwrap().is_match("bc"));
    assert!(compile(r"^[[:alpha:]&&]+$").unwrap().is_match("a&"));
    assert!(compile(r"^\Qa.b\E$").unwrap().is_match("a.b"));
    assert!(!compile(r"^\Qa.b\E$").unwrap().is_match("axb"));
}

#[test]
fn invalid_pattern_is_reported() {
    assert!(compile("(").unwrap_err().contains("error parsing regexp"));
}

proptest::proptest! {
    #[test]
    fn arbitrary_patterns_never_panic(pattern in "\\PC{0,40}") {
        let _ = compile(&pattern);
    }
}
