use super::*;

#[test]
fn budgets_have_units() {
    assert_eq!(duration("90"), Some(Duration::from_secs(90)));
    assert_eq!(duration("2m"), Some(Duration::from_secs(120)));
    assert_eq!(duration("250ms"), Some(Duration::from_millis(250)));
    assert_eq!(duration("soon"), None);
}

#[test]
fn families_match_with_their_variants() {
    let mut options = Options::from_env();
    options.without.push(("delay".to_owned(), String::new()));
    assert!(!options.wants("delay-100ms"));
    assert!(options.wants("cut"));
    options.only = Some(["error".to_owned()].into());
    assert!(options.wants("error-500"));
    assert!(!options.wants("errors-503x4"));
}
