use super::*;

#[test]
fn query_values_are_decoded() {
    let query = Query::parse(Some("labelSelector=a%3Db%2Cc+in+(x)&watch&limit=5&x=%zz%4"));
    assert_eq!(query.get("labelSelector"), "a=b,c in (x)");
    assert!(query.flag("watch"));
    assert!(!query.flag("other"));
    assert_eq!(query.number("limit").unwrap(), Some(5));
    assert!(query.number("x").is_err());
    assert_eq!(query.get("x"), "%zz%4");
}
