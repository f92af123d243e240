//! A bounded list of field paths, for reporting unknown and duplicate fields. However many of them
//! a client sends and however long their names are, the report stays small.

/// The maximum number of paths.
pub(crate) const MAX_PATHS: usize = 100;

/// The maximum length of a path in characters. The same as the limit on all warnings of a response
/// together, so this never truncates a warning further.
pub(crate) const MAX_PATH_LEN: usize = 4 * 1024;

/// Paths in the order in which they were found.
#[derive(Debug, Default)]
pub(crate) struct FieldPaths(Vec<String>);

impl FieldPaths {
    /// Returns true if further paths would be dropped, so that callers need not build them.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= MAX_PATHS
    }

    /// Adds the path formed by `pieces`, unless the list is full.
    pub(crate) fn add<'a>(&mut self, pieces: impl IntoIterator<Item = &'a str>) {
        if !self.is_full() {
            self.0.push(joined(pieces));
        }
    }

    pub(crate) fn into_vec(self) -> Vec<String> {
        self.0
    }
}

/// Joins pieces up to [`MAX_PATH_LEN`].
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

/// Returns the first `max` characters of a string.
pub(crate) fn clip(text: &str, max: usize) -> &str {
    match text.char_indices().nth(max) {
        Some((end, _)) => text.get(..end).unwrap_or(text),
        None => text,
    }
}

#[cfg(test)]
mod tests;
