use super::*;

#[test]
fn queries_are_decoded() {
    let query = Parameters::of("key=a%2Fb&search=x+y&bad=%zz&limit=7&problems=true");
    assert_eq!(query.get("key"), Some("a/b"));
    assert_eq!(query.get("bad"), Some("%zz"));
    let list = query.list();
    assert_eq!(
        (list.search.as_str(), list.limit, list.problems),
        ("x y", 7, true)
    );
    assert!(query.key().is_err());
}

#[test]
fn tokens_are_compared_as_a_whole() {
    assert!(is_same(b"abc", b"abc"));
    for other in [&b"ab"[..], b"abcd", b"abd", b""] {
        assert!(!is_same(other, b"abc"));
    }
    assert_ne!(random_token().unwrap(), random_token().unwrap());
}
