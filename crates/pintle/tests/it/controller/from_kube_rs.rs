//! The migration guide moves a whole controller with fewer than ten changed lines. `cargo xtask
//! lint` checks that both versions are formatted.

const GUIDE: &str = include_str!("../../../../../docs/from-kube-rs.md");

/// Returns the lines of the first code block after a heading.
fn code(heading: &str) -> Vec<&'static str> {
    let (_, rest) = GUIDE.split_once(heading).unwrap();
    let (_, rest) = rest.split_once("```rust,no_run\n").unwrap();
    rest.split_once("\n```").unwrap().0.lines().collect()
}

/// Returns the length of the longest common subsequence.
fn common(before: &[&str], after: &[&str]) -> usize {
    let mut row = vec![0; after.len() + 1];
    for old in before {
        let mut diagonal = 0;
        for (at, new) in after.iter().enumerate() {
            let above = row[at + 1];
            row[at + 1] = if old == new {
                diagonal + 1
            } else {
                above.max(row[at])
            };
            diagonal = above;
        }
    }
    row[after.len()]
}

/// Proves controller/kube-runtime-migration.
#[test]
fn kube_runtime_controller_moves_in_under_ten_lines() {
    let (before, after) = (code("## Before"), code("## After"));
    assert!(before.len() >= 100, "{} lines", before.len());
    let common = common(&before, &after);
    let (removed, added) = (before.len() - common, after.len() - common);
    assert!(
        removed < 10 && added < 10,
        "{removed} removed, {added} added"
    );
}
