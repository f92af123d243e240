//! The trees of the Foos, as text.

use pintle::inspect::{KeyLife, Node, Verdict};

use crate::terminal::{paint, printable};

/// The most lines of recent changes below the trees.
const RECENT: usize = 8;

/// Draws the trees of some keys, what changed last, and what to try next.
pub(crate) fn frame(lives: &[KeyLife], recent: &[String], footer: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for life in lives {
        lines.push(String::new());
        let wrapped = wrap(&printable(&life.why.sentence), 78);
        for (number, part) in wrapped.iter().enumerate() {
            let mark = if number == 0 { "●" } else { " " };
            let mark = paint(life.why.verdict, mark);
            lines.push(format!("{mark} {part}"));
        }
        let roots = |node: &&Node| node.role == "self";
        for root in life.tree.iter().filter(roots) {
            lines.push(format!("  {}", describe(root)));
            branches(&life.tree, root, "  ", &mut lines);
        }
    }
    if lives.is_empty() {
        lines.push("No Foo yet.".to_owned());
    }
    if !recent.is_empty() {
        lines.push(String::new());
        let skip = recent.len().saturating_sub(RECENT);
        lines.extend(
            recent
                .iter()
                .skip(skip)
                .flat_map(|line| line.lines())
                .map(printable),
        );
    }
    lines.extend(footer.lines().map(str::to_owned));
    lines
}

fn branches(tree: &[Node], parent: &Node, indent: &str, lines: &mut Vec<String>) {
    let children: Vec<_> = tree
        .iter()
        .filter(|node| node.parent == parent.uid && node.role == "child")
        .collect();
    for (at, child) in children.iter().enumerate() {
        let last = at + 1 == children.len();
        let (branch, below) = if last {
            ("└─", "  ")
        } else {
            ("├─", "│ ")
        };
        lines.push(format!("{indent}{branch} {}", describe(child)));
        branches(tree, child, &format!("{indent}{below} "), lines);
    }
}

fn describe(node: &Node) -> String {
    let verdict = match node.status.as_str() {
        "Current" => Verdict::Fine,
        "Failed" => Verdict::Failing,
        _ => Verdict::Waiting,
    };
    let name = node.key.rsplit('/').next().unwrap_or(&node.key);
    let (name, kind) = (printable(name), printable(&node.kind));
    let status = paint(verdict, &printable(&node.status));
    format!("{kind}/{name}  {status}")
}

/// Breaks `text` into lines of at most `width` characters, unless a word is longer.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last().map_or(0, |line| line.chars().count());
        if line > 0 && line + 1 + word.chars().count() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests;
