use super::*;

#[test]
fn commands_come_from_shell_blocks_only() {
    let markdown = "cargo test\n```rust\ncargo test;\n```\n```sh\n  cargo run\ncargo test\n```\n\
                        ```text\nno\n```\nno\n```sh test\nyes\n```\n";
    let lines: Vec<&str> = shell_lines(markdown).collect();
    assert_eq!(lines, ["cargo run", "cargo test", "yes"]);
}

#[test]
fn table_ends_with_the_total() {
    let times = [
        ("format", Duration::from_millis(1500)),
        ("clippy", Duration::from_mins(1)),
    ];
    let table = table(&times);
    assert_eq!(
        table.lines().last().unwrap().split_whitespace().nth(1),
        Some("61.5")
    );
}
