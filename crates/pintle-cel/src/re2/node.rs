//! Parsed patterns.

use std::fmt::Write as _;

use super::class::Class;

/// The maximum height of a tree, so that compiling it cannot exhaust a thread's stack.
const MAX_HEIGHT: usize = 250;

/// Go's limit, in which every capturing group counts too.
const MAX_GO_HEIGHT: usize = 1_000;

/// What a repetition, alternative or sequence adds to the size, in bytes.
const STATE: usize = 96;

/// A part of a pattern, with the figures that limits apply to.
#[derive(Debug)]
pub(super) struct Node {
    kind: Kind,
    height: usize,
    go_height: usize,
    /// The product of nested repetition counts.
    repeats: usize,
    size: usize,
}

#[derive(Debug)]
enum Kind {
    Empty,
    Char(char, bool),
    Class(Class, bool),
    /// An assertion, in the syntax of the `regex` crate.
    Look(&'static str),
    Concat(Vec<Node>),
    Alternate(Vec<Node>),
    Repeat(Box<Node>, Count),
}

/// How often a node repeats.
#[derive(Debug, Clone, Copy)]
pub(super) struct Count {
    pub(super) min: usize,
    pub(super) max: Option<usize>,
    pub(super) greedy: bool,
    /// False for `*`, `+` and `?`, which do not count towards the limit.
    pub(super) counted: bool,
}

impl Node {
    fn leaf(kind: Kind, size: usize) -> Self {
        Self {
            kind,
            height: 1,
            go_height: 1,
            repeats: 1,
            size,
        }
    }

    pub(super) fn empty() -> Self {
        Self::leaf(Kind::Empty, STATE)
    }

    pub(super) fn literal(c: char, fold: bool) -> Self {
        let size = c.len_utf8() * STATE * if fold { 2 } else { 1 };
        Self::leaf(Kind::Char(c, fold), size)
    }

    pub(super) fn look(assertion: &'static str) -> Self {
        Self::leaf(Kind::Look(assertion), STATE)
    }

    pub(super) fn class(class: Class, fold: bool) -> Self {
        let size = class.size() * if fold { 2 } else { 1 } + STATE;
        Self::leaf(Kind::Class(class, fold), size)
    }

    pub(super) fn concat(nodes: Vec<Self>) -> Self {
        Self::many(nodes, Kind::Concat)
    }

    pub(super) fn alternate(nodes: Vec<Self>) -> Self {
        Self::many(nodes, Kind::Alternate)
    }

    fn many(mut nodes: Vec<Self>, kind: fn(Vec<Self>) -> Kind) -> Self {
        match nodes.len() {
            0 => Self::empty(),
            1 => nodes.remove(0),
            _ => {
                let most = |read: fn(&Self) -> usize| nodes.iter().map(read).max().unwrap_or(0);
                Self {
                    height: 1 + most(|node| node.height),
                    go_height: 1 + most(|node| node.go_height),
                    repeats: most(|node| node.repeats),
                    size: nodes
                        .iter()
                        .fold(STATE, |sum, node| sum.saturating_add(node.size)),
                    kind: kind(nodes),
                }
            }
        }
    }

    pub(super) fn repeat(self, count: Count) -> Self {
        let copies = count.max.unwrap_or(count.min).max(1);
        Self {
            height: 1 + self.height,
            go_height: 1 + self.go_height,
            repeats: match (count.counted, count.max) {
                (false, _) => self.repeats,
                (true, Some(0)) => 1,
                (true, _) => self.repeats.saturating_mul(copies),
            },
            size: self.size.saturating_add(STATE).saturating_mul(copies),
            kind: Kind::Repeat(Box::new(self), count),
        }
    }

    pub(super) fn captured(mut self) -> Self {
        self.go_height += 1;
        self
    }

    pub(super) fn too_deep(&self) -> bool {
        self.height > MAX_HEIGHT || self.go_height > MAX_GO_HEIGHT
    }

    pub(super) fn repeats(&self) -> usize {
        self.repeats
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Writes the node in the syntax of the `regex` crate.
    pub(super) fn write(&self, out: &mut String) {
        match &self.kind {
            Kind::Empty => out.push_str("(?:)"),
            Kind::Char(c, fold) => {
                folded(out, *fold, |out| write_char(out, u32::from(*c)));
            }
            Kind::Class(class, fold) => folded(out, *fold, |out| class.write(out)),
            Kind::Look(assertion) => out.push_str(assertion),
            Kind::Concat(nodes) => {
                for node in nodes {
                    match node.kind {
                        Kind::Alternate(_) => node.grouped(out),
                        _ => node.write(out),
                    }
                }
            }
            Kind::Alternate(nodes) => {
                for (i, node) in nodes.iter().enumerate() {
                    if i > 0 {
                        out.push('|');
                    }
                    node.write(out);
                }
            }
            Kind::Repeat(node, count) => {
                node.grouped(out);
                let _ = match (count.min, count.max) {
                    (min, Some(max)) => write!(out, "{{{min},{max}}}"),
                    (min, None) => write!(out, "{{{min},}}"),
                };
                if !count.greedy {
                    out.push('?');
                }
            }
        }
    }

    fn grouped(&self, out: &mut String) {
        out.push_str("(?:");
        self.write(out);
        out.push(')');
    }
}

fn folded(out: &mut String, fold: bool, write: impl FnOnce(&mut String)) {
    if fold {
        out.push_str("(?i:");
        write(out);
        out.push(')');
    } else {
        write(out);
    }
}

/// Writes a character so that it stands for itself.
pub(super) fn write_char(out: &mut String, c: u32) {
    match char::from_u32(c) {
        Some(c) if c.is_ascii_alphanumeric() => out.push(c),
        _ => {
            let _ = write!(out, "\\x{{{c:x}}}");
        }
    }
}
