use super::*;

#[test]
fn parses_terms_and_escapes() {
    let got = parse(r"metadata.name=a,b!=c\,d,e==f").unwrap();
    let want = [
        ("metadata.name", true, "a"),
        ("b", false, "c,d"),
        ("e", true, "f"),
    ];
    let got: Vec<_> = got
        .iter()
        .map(|r| (r.field.as_str(), r.equal, r.value.as_str()))
        .collect();
    assert_eq!(got, want);
    assert!(parse("x").is_err());
    assert!(parse(r"x=a\b").is_err());
    assert!(parse("").unwrap().is_empty());
}
