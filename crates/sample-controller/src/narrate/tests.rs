use super::*;

#[test]
fn long_text_wraps_at_80_columns() {
    let text = "event ScalingReplicaSet: Scaled up replica set example-foo-g9b8q5xh87 to 1";
    for subject in [
        "Foo/a",
        "Deployment/a-name-that-is-longer-than-the-column-of-names",
    ] {
        let shown = line(subject, text);
        assert!(shown.lines().count() > 1, "{shown}");
        for line in shown.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
        let words: Vec<_> = shown.split_whitespace().skip(1).collect();
        assert_eq!(words.join(" "), text);
    }
}
