//! Cutting a list's body into items while it arrives.

use serde::Deserialize;

use super::{
    BodyError, Page, RawItem,
    scan::{ValueScanner, is_space},
};

/// How large the parts of a list other than its items may be.
const SMALL: usize = 64 * 1024;
/// How much of an item that is too large is shown to whoever reports it.
const HEAD: usize = 4 * 1024;
/// A buffer larger than this is given back after use, so that one huge object does not pin it.
const KEEP: usize = 1024 * 1024;

/// Splits the body of a list, given in chunks of any size, into its items.
///
/// An item that lies within one chunk is handed on from where it lies; only one that spans chunks
/// is put together in a buffer. So the memory needed is one chunk and one item, however long the
/// list.
///
/// The list is one object: its members come in any order, `items` among them. The splitter moves
/// `Open → Key → Colon → Value → Comma → Key → … → Closed`, and within `items` between `Item` and
/// `ItemComma`.
#[derive(Debug)]
pub(super) struct ListBody {
    place: Place,
    scanner: ValueScanner,
    /// The beginning of a value that the next chunk continues.
    held: Vec<u8>,
    /// The value outgrew its limit: the rest of it is passed over.
    dropping: bool,
    item_limit: usize,
    read: u64,
    key: Key,
    kind: Option<String>,
    metadata: Option<Metadata>,
    has_items: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
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
    /// Inside a value; what it is stands beside it.
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
            place: Place::Open,
            scanner: ValueScanner::default(),
            held: Vec::new(),
            dropping: false,
            item_limit,
            read: 0,
            key: Key::Other,
            kind: None,
            metadata: None,
            has_items: false,
        }
    }

    /// Takes the next chunk, and hands on each item that it completes.
    pub(super) fn push(
        &mut self,
        chunk: &[u8],
        on_item: &mut (dyn FnMut(RawItem<'_>) + Send),
    ) -> Result<(), BodyError> {
        let mut at = 0;
        while at < chunk.len() {
            if let Place::Inside(part) = self.place {
                let (len, ended) = self.scanner.advance(&chunk[at..]);
                let piece = &chunk[at..at + len];
                at += len;
                if ended {
                    self.end_value(part, piece, on_item)
                        .map_err(|error| self.located(error, at))?;
                } else {
                    self.hold(part, piece)?;
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

    /// The list's own metadata, once the body has ended.
    pub(super) fn finish(self) -> Result<Page, BodyError> {
        if self.place != Place::Closed {
            let inside = match self.place {
                Place::Inside(Part::Item) => "an item",
                Place::ItemOrClose | Place::Item | Place::ItemComma => "the items",
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

    /// One byte between values: how many bytes of it are used up, and where that leads.
    fn structure(&mut self, byte: u8) -> Result<usize, BodyError> {
        let (place, used) = match (self.place, byte) {
            (Place::Open, b'{') => (Place::KeyOrClose, 1),
            (Place::KeyOrClose | Place::Comma, b'}') => (Place::Closed, 1),
            (Place::KeyOrClose | Place::Key, b'"') => (Place::Inside(Part::Key), 0),
            (Place::Colon, b':') => (Place::Value, 1),
            (Place::Comma, b',') => (Place::Key, 1),
            (Place::Value, b'[') if self.key == Key::Items => (Place::ItemOrClose, 1),
            (Place::Value, b'n') if self.key == Key::Items => (Place::Inside(Part::Member), 0),
            (Place::Value, _) if self.key != Key::Items && begins_value(byte) => {
                (Place::Inside(Part::Member), 0)
            }
            (Place::ItemOrClose | Place::ItemComma, b']') => (Place::Comma, 1),
            (Place::ItemOrClose | Place::Item, _) if begins_value(byte) => {
                (Place::Inside(Part::Item), 0)
            }
            (Place::ItemComma, b',') => (Place::Item, 1),
            (Place::Open, _) => return Err(malformed("a JSON object")),
            (Place::Value, _) if self.key == Key::Items => {
                return Err(malformed("a list: its items are no array"));
            }
            (Place::Item | Place::ItemOrClose | Place::ItemComma, _) => {
                return Err(malformed("a well-formed array of items"));
            }
            _ => return Err(malformed("a well-formed list")),
        };
        if self.key == Key::Items && self.place == Place::Value {
            self.has_items = true;
        }
        self.place = place;
        Ok(used)
    }

    /// Keeps the piece of a value that goes on in the next chunk, unless it outgrew its limit.
    fn hold(&mut self, part: Part, piece: &[u8]) -> Result<(), BodyError> {
        if self.dropping || part == Part::Member && self.key == Key::Other {
            return Ok(());
        }
        let limit = if part == Part::Item {
            self.item_limit
        } else {
            SMALL
        };
        if self.held.len() + piece.len() <= limit {
            self.held.extend_from_slice(piece);
            return Ok(());
        }
        if part != Part::Item {
            return Err(BodyError::TooLarge {
                what: "the list's metadata",
                limit,
            });
        }
        self.dropping = true;
        let room = HEAD.saturating_sub(self.held.len()).min(piece.len());
        self.held.extend_from_slice(&piece[..room]);
        self.held.truncate(HEAD);
        self.held.shrink_to_fit();
        Ok(())
    }

    /// The value is complete: `piece` is its last part.
    fn end_value(
        &mut self,
        part: Part,
        piece: &[u8],
        on_item: &mut (dyn FnMut(RawItem<'_>) + Send),
    ) -> Result<(), BodyError> {
        self.scanner = ValueScanner::default();
        let mut held = std::mem::take(&mut self.held);
        let limit = if part == Part::Item {
            self.item_limit
        } else {
            SMALL
        };
        let too_large = self.dropping || held.len() + piece.len() > limit;
        self.dropping = false;
        let value = if held.is_empty() {
            piece
        } else {
            if !too_large {
                held.extend_from_slice(piece);
            }
            &held
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
        self.place = match part {
            Part::Key => Place::Colon,
            Part::Member => Place::Comma,
            Part::Item => Place::ItemComma,
        };
        if held.capacity() <= KEEP {
            held.clear();
            self.held = held;
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
                limit: SMALL,
            });
        }
        match self.key {
            Key::Kind => {
                let kind: String =
                    serde_json::from_slice(value).map_err(|_| malformed("a list with a kind"))?;
                if kind == "Table" {
                    return Err(BodyError::Table(kind));
                }
                self.kind = Some(kind);
            }
            Key::Metadata => {
                let metadata: Option<Metadata> = serde_json::from_slice(value)
                    .map_err(|_| malformed("a list with readable metadata"))?;
                self.metadata = metadata;
            }
            // An array is walked item by item, so this is `null`: an empty list as Go writes it.
            Key::Items if value == b"null" => {}
            Key::Items => return Err(malformed("a list: its items are no array")),
            Key::Other => {}
        }
        Ok(())
    }

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

fn begins_value(byte: u8) -> bool {
    matches!(
        byte,
        b'{' | b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n'
    )
}

fn malformed(expected: &'static str) -> BodyError {
    BodyError::Malformed { expected, at: 0 }
}

#[cfg(test)]
mod tests;
