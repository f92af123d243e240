use super::*;

#[test]
fn other_features_are_reported_and_local_packages_are_not() {
    let all = parse("pintle v0.1.0 (/src/pintle)\ttls\ntokio v1.0.0\tnet,rt\nsyn v2.0.0\t (*)");
    let same = parse("pintle v0.1.0 (/src/pintle)\t\ntokio v1.0.0\tnet,rt (*)\nsyn v2.0.0\t");
    assert_eq!(differences(&all, &same, "cargo run"), [] as [&str; 0]);
    let other = parse("tokio v1.0.0\trt\nextra v1.0.0\t");
    let problems = differences(&all, &other, "cargo run");
    assert_eq!(problems.len(), 1);
    assert!(problems[0].contains("tokio v1.0.0 than"), "{problems:?}");
    assert!(
        problems[0].contains("[rt] instead of [net,rt]"),
        "{problems:?}"
    );
}
