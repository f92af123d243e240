use super::*;

#[test]
fn canonical_form_ignores_spaces() {
    assert_eq!(canonical(" 1.5Gi "), Ok("1536Mi".to_owned()));
    assert_eq!(canonical("1 5"), Err(QuantityError::Format));
    assert_eq!(canonical("1ki"), Err(QuantityError::Suffix));
}

#[test]
fn quantities_compare_across_suffixes() {
    assert_eq!(less("1M", "1Mi"), Some(true));
    assert_eq!(less("1k", "1000"), Some(false));
    assert_eq!(less("", "1"), None);
}
