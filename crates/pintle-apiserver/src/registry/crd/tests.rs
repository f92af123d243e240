use super::*;

#[test]
fn versions_order_by_maturity_then_number() {
    let mut names = ["v1alpha1", "v2", "foo", "v1beta2", "v11", "v1", "v1beta10"];
    names.sort_by_key(|name| std::cmp::Reverse(version_order(name)));
    assert_eq!(
        names,
        ["v11", "v2", "v1", "v1beta10", "v1beta2", "v1alpha1", "foo"]
    );
}
