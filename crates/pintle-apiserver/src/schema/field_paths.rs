//! The faults of form a body is told of: fields it names twice, or that nobody knows. However many a
//! client sends, and however long their names are, what is told of them has a bound.

/// How many are told.
pub(crate) const MAX_PATHS: usize = 100;

/// How much of the path of one is told, in characters: as much as all warnings of an answer hold, so
/// that a warning loses nothing by it.
pub(crate) const MAX_PATH_LEN: usize = 4 * 1024;

/// The paths of such fields, in the order they were found.
#[derive(Debug, Default)]
pub(crate) struct FieldPaths(Vec<String>);

impl FieldPaths {
    /// Whether no more are told, so that nobody need make up their paths.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= MAX_PATHS
    }

    /// Adds the path that these pieces make, if there is room.
    pub(crate) fn add<'a>(&mut self, pieces: impl IntoIterator<Item = &'a str>) {
        if !self.is_full() {
            self.0.push(joined(pieces));
        }
    }

    pub(crate) fn into_vec(self) -> Vec<String> {
        self.0
    }
}

/// The pieces as one text, as far as it is told.
fn joined<'a>(pieces: impl IntoIterator<Item = &'a str>) -> String {
    let mut text = String::new();
    let mut room = MAX_PATH_LEN;
    for piece in pieces {
        let piece = clip(piece, room);
        text.push_str(piece);
        room -= piece.chars().count();
        if room == 0 {
            break;
        }
    }
    text
}

/// The first `most` characters of a text.
pub(crate) fn clip(text: &str, most: usize) -> &str {
    match text.char_indices().nth(most) {
        Some((end, _)) => text.get(..end).unwrap_or(text),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_told_up_to_its_bound() {
        let mut paths = FieldPaths::default();
        paths.add(["a", ".", "b"]);
        let long = "ä".repeat(MAX_PATH_LEN);
        paths.add(["a", ".", &long, ".b"]);
        let paths = paths.into_vec();
        assert_eq!(paths[0], "a.b");
        assert_eq!(paths[1].chars().count(), MAX_PATH_LEN);
        assert!(paths[1].starts_with("a.ä") && paths[1].ends_with('ä'));
    }

    #[test]
    fn so_many_paths_are_told_and_no_more() {
        let mut paths = FieldPaths::default();
        for _ in 0..MAX_PATHS {
            assert!(!paths.is_full());
            paths.add(["a"]);
        }
        assert!(paths.is_full());
        paths.add(["b"]);
        assert_eq!(paths.into_vec(), vec!["a"; MAX_PATHS]);
    }
}
