//! Splits the body of a list into items while it arrives.

use serde::Deserialize;

use super::{BodyError, Page, RawItem};
use crate::json::{ValueEnd, begins_value, is_space};

/// The largest accepted key, `kind` or `metadata` of a list. Other members are skipped.
const MEMBER_LIMIT: usize = 64 * 1024;
/// How much of an oversized item is passed on, for the error report.
const HEAD: usize = 4 * 1024;
/// A buffer larger than this is freed after use, so that one huge object does not pin its memory.
const REUSE_LIMIT: usize = 1024 * 1024;

/// Splits the body of a list, which arrives in chunks of any size, into its items.
///
/// An item within one chunk is passed on in place; only an item that spans chunks is assembled in a
/// buffer. The memory needed is therefore one chunk and one item, however long the list.
///
/// A list is an object whose members, `items` among them, appear in any order. The states are `Open
/// → Key → Colon → Value → Comma → Key → … → Closed`, and inside `items` alternates between `Item`
/// and `ItemComma`.
#[derive(Debug)]
pub(super) struct ListBody {
    state: State,
    value_end: ValueEnd,
    /// The buffered part of a value that continues in the next chunk.
    partial: Vec<u8>,
    /// The value exceeded its limit, and the rest of it is skipped.
    oversized: bool,
    item_limit: usize,
    /// The length of all chunks so far.
    read: u64,
    /// The key of the current member.
    key: Key,
    kind: Option<String>,
    metadata: Option<Metadata>,
    has_items: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    KeyOrClose,
    Key,
    Colon,
    Value,
    Comma,
    ItemOrClose,
    Item,
    ItemComma,
    Closed,
    /// Inside a value that is this part of the list.
    Inside(Part),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Key,
    Member,
    Item,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Kind,
    Metadata,
    Items,
    Other,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
    #[serde(rename = "continue")]
    continue_token: String,
    remaining_item_count: Option<i64>,
}

impl ListBody {
    pub(super) fn new(item_limit: usize) -> Self {
        Self {
            state: State::Open,
            value_end: ValueEnd::default(),
            partial: Vec::new(),
            oversized: false,
            item_limit,
            read: 0,
            key: Key::Other,
            kind: None,
            metadata: None,
            has_items: false,
        }
    }

    /// Processes the next chunk and passes each item that it completes to `on_item`.
    pub(super) fn push(
        &mut self,
        chunk: &[u8],
        on_item: &mut (dyn FnMut(RawItem<'_>) + Send),
    ) -> Result<(), BodyError> {
        let mut at = 0;
        while at < chunk.len() {
            if let State::Inside(part) = self.state {
                let (len, ended) = self.value_end.advance(&chunk[at..]);
                let piece = &chunk[at..at + len];
                at += len;
                if ended {
                    self.end_value(part, piece, on_item)
                        .map_err(|error| self.located(error, at))?;
                } else {
                    self.buffer(part, piece)?;
                }
            } else if is_space(chunk[at]) {
                at += 1;
            } else {
                at += self
                    .structure(chunk[at])
                    .map_err(|error| self.located(error, at))?;
            }
        }
        self.read += chunk.len() as u64;
        Ok(())
    }

    /// Returns the list's own metadata after the end of the body.
    pub(super) fn finish(self) -> Result<Page, BodyError> {
        if self.state != State::Closed {
            let inside = match self.state {
                State::Inside(Part::Item) => "an item",
                State::ItemOrClose | State::Item | State::ItemComma => "the items",
                _ => "the list",
            };
            return Err(BodyError::CutOff {
                at: self.read,
                inside,
            });
        }
        if !self.has_items {
            return Err(BodyError::NotAList);
        }
        let metadata = self.metadata.unwrap_or_default();
        Ok(Page {
            resource_version: metadata.resource_version,
            continue_token: Some(metadata.continue_token).filter(|token| !token.is_empty()),
            remaining: metadata.remaining_item_count,
        })
    }

    /// Handles a byte between values. Returns 1 if it is consumed, 0 if a value begins with it.
    fn structure(&mut self, byte: u8) -> Result<usize, BodyError> {
        let (next, used) = match (self.state, byte) {
            (State::Open, b'{') => (State::KeyOrClose, 1),
            (State::KeyOrClose | State::Comma, b'}') => (State::Closed, 1),
            (State::KeyOrClose | State::Key, b'"') => (State::Inside(Part::Key), 0),
            (State::Colon, b':') => (State::Value, 1),
            (State::Comma, b',') => (State::Key, 1),
            (State::Value, b'[') if self.key == Key::Items => (State::ItemOrClose, 1),
            (State::Value, b'n') if self.key == Key::Items => (State::Inside(Part::Member), 0),
            (State::Value, _) if self.key != Key::Items && begins_value(byte) => {
                (State::Inside(Part::Member), 0)
            }
            (State::ItemOrClose | State::ItemComma, b']') => (State::Comma, 1),
            (State::ItemOrClose | State::Item, _) if begins_value(byte) => {
                (State::Inside(Part::Item), 0)
            }
            (State::ItemComma, b',') => (State::Item, 1),
            (State::Open, _) => return Err(malformed("a JSON object")),
            (State::Value, _) if self.key == Key::Items => {
                return Err(malformed("an array of items"));
            }
            (State::Item | State::ItemOrClose | State::ItemComma, _) => {
                return Err(malformed("a comma or the end of the items"));
            }
            _ => return Err(malformed("the next member of the list")),
        };
        if self.key == Key::Items && self.state == State::Value {
            self.has_items = true;
        }
        self.state = next;
        Ok(used)
    }

    /// Buffers a piece of a value that continues in the next chunk, unless the value is oversized.
    fn buffer(&mut self, part: Part, piece: &[u8]) -> Result<(), BodyError> {
        if self.oversized || part == Part::Member && self.key == Key::Other {
            return Ok(());
        }
        let limit = if part == Part::Item {
            self.item_limit
        } else {
            MEMBER_LIMIT
        };
        if self.partial.len() + piece.len() <= limit {
            self.partial.extend_from_slice(piece);
            return Ok(());
        }
        if part != Part::Item {
            return Err(BodyError::TooLarge {
                what: "the list's metadata",
                limit,
            });
        }
        self.oversized = true;
        let room = HEAD.saturating_sub(self.partial.len()).min(piece.len());
        self.partial.extend_from_slice(&piece[..room]);
        self.partial.truncate(HEAD);
        self.partial.shrink_to_fit();
        Ok(())
    }

    /// Completes a value whose last piece is `piece`.
    fn end_value(
        &mut self,
        part: Part,
        piece: &[u8],
        on_item: &mut (dyn FnMut(RawItem<'_>) + Send),
    ) -> Result<(), BodyError> {
        self.value_end = ValueEnd::default();
        let mut partial = std::mem::take(&mut self.partial);
        let limit = if part == Part::Item {
            self.item_limit
        } else {
            MEMBER_LIMIT
        };
        let too_large = self.oversized || partial.len() + piece.len() > limit;
        self.oversized = false;
        let value = if partial.is_empty() {
            piece
        } else {
            if !too_large {
                partial.extend_from_slice(piece);
            }
            &partial
        };
        match part {
            Part::Item if too_large => {
                on_item(RawItem::TooLarge {
                    head: &value[..value.len().min(HEAD)],
                    limit,
                });
            }
            Part::Item => on_item(RawItem::Json(value)),
            Part::Key => self.key = Key::of(value),
            Part::Member => self.member(value, too_large)?,
        }
        self.state = match part {
            Part::Key => State::Colon,
            Part::Member => State::Comma,
            Part::Item => State::ItemComma,
        };
        if partial.capacity() <= REUSE_LIMIT {
            partial.clear();
            self.partial = partial;
        }
        Ok(())
    }

    fn member(&mut self, value: &[u8], too_large: bool) -> Result<(), BodyError> {
        if self.key == Key::Other {
            return Ok(());
        }
        if too_large {
            return Err(BodyError::TooLarge {
                what: "the list's metadata",
                limit: MEMBER_LIMIT,
            });
        }
        match self.key {
            Key::Kind => {
                let kind: String = serde_json::from_slice(value)
                    .map_err(|_| malformed("a string as the kind of the list"))?;
                if kind == "Table" {
                    return Err(BodyError::Table(kind));
                }
                self.kind = Some(kind);
            }
            Key::Metadata => {
                let metadata: Option<Metadata> =
                    serde_json::from_slice(value).map_err(|_| malformed("list metadata"))?;
                self.metadata = metadata;
            }
            // Arrays are split into items, so only `null` gets here: Go's empty list.
            Key::Items if value == b"null" => {}
            Key::Items => return Err(malformed("an array of items")),
            Key::Other => {}
        }
        Ok(())
    }

    /// Adds the position to an error.
    fn located(&self, error: BodyError, at: usize) -> BodyError {
        match error {
            BodyError::Malformed { expected, .. } => BodyError::Malformed {
                expected,
                at: self.read + at as u64,
            },
            other => other,
        }
    }
}

impl Key {
    fn of(quoted: &[u8]) -> Self {
        match quoted {
            br#""kind""# => Self::Kind,
            br#""metadata""# => Self::Metadata,
            br#""items""# => Self::Items,
            _ => Self::Other,
        }
    }
}

fn malformed(expected: &'static str) -> BodyError {
    BodyError::Malformed { expected, at: 0 }
}

#[cfg(test)]
mod tests;
