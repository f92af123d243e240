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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(chunks: &[&[u8]], limit: usize) -> Result<(Vec<String>, Page), BodyError> {
        let mut body = ListBody::new(limit);
        let mut items = Vec::new();
        for chunk in chunks {
            body.push(chunk, &mut |item| {
                items.push(match item {
                    RawItem::Json(json) => String::from_utf8_lossy(json).into_owned(),
                    RawItem::TooLarge { .. } => "too large".to_owned(),
                });
            })?;
        }
        Ok((items, body.finish()?))
    }

    fn whole(body: &str) -> Result<(Vec<String>, Page), BodyError> {
        split(&[body.as_bytes()], 1000)
    }

    #[test]
    fn items_and_metadata_are_found_in_any_order() {
        let (items, page) = whole(
            r#"{"kind":"PodList","metadata":{"resourceVersion":"7","continue":"t","x":[1]},"items":[{"a":"]"}, {"b":[{}]}]}"#,
        )
        .unwrap();
        assert_eq!(items, [r#"{"a":"]"}"#, r#"{"b":[{}]}"#]);
        assert_eq!(page.resource_version, "7");
        assert_eq!(page.continue_token.as_deref(), Some("t"));

        let (items, page) =
            whole(r#" { "items" : [ 1 , {} ] , "metadata":{"resourceVersion":"8"} } "#).unwrap();
        assert_eq!(items, ["1", "{}"]);
        assert_eq!(
            page,
            Page {
                resource_version: "8".into(),
                ..Page::default()
            }
        );
    }

    #[test]
    fn no_items_can_be_written_in_two_ways() {
        assert_eq!(whole(r#"{"items":[]}"#).unwrap().0.len(), 0);
        assert_eq!(whole(r#"{"items":null}"#).unwrap().0.len(), 0);
    }

    #[test]
    fn an_item_that_is_too_large_is_passed_over() {
        let body = format!(
            r#"{{"items":[{{"a":1}},{{"b":"{}"}},{{"c":3}}]}}"#,
            "x".repeat(40)
        );
        let pieces: Vec<&[u8]> = body.as_bytes().chunks(7).collect();
        for chunks in [&pieces[..], &[body.as_bytes()]] {
            let (items, _) = split(chunks, 20).unwrap();
            assert_eq!(items, [r#"{"a":1}"#, "too large", r#"{"c":3}"#]);
        }
    }

    #[test]
    fn the_rest_of_an_item_that_is_too_large_is_not_taken_for_an_item() {
        let body = format!(
            r#"{{"items":[{{"b":"{}"}},{{"c":3}}]}}"#,
            "x".repeat(25_000)
        );
        for size in [999, 4000, 10_001] {
            let chunks: Vec<&[u8]> = body.as_bytes().chunks(size).collect();
            let (items, _) = split(&chunks, 10_000).unwrap();
            assert_eq!(items, ["too large", r#"{"c":3}"#]);
        }
    }

    /// Proves R-29, PR-51.
    #[test]
    fn what_is_no_list_is_a_typed_error() {
        let error = |body: &str| whole(body).unwrap_err();
        assert_eq!(
            error(r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","rows":[]}"#),
            BodyError::Table("Table".into())
        );
        assert_eq!(error(r#"{"kind":"Status"}"#), BodyError::NotAList);
        assert_eq!(
            error(r#"{"items":[{"a":"#),
            BodyError::CutOff {
                at: 15,
                inside: "an item"
            }
        );
        assert_eq!(
            error(r#"{"items":[{}"#),
            BodyError::CutOff {
                at: 12,
                inside: "the items"
            }
        );
        assert_eq!(
            error(""),
            BodyError::CutOff {
                at: 0,
                inside: "the list"
            }
        );
        assert!(matches!(
            error("<html>"),
            BodyError::Malformed { at: 0, .. }
        ));
        assert!(matches!(
            error(r#"{"items":{}}"#),
            BodyError::Malformed { at: 9, .. }
        ));
        assert!(matches!(
            error(r#"{"items":[]]"#),
            BodyError::Malformed { .. }
        ));
        assert!(matches!(
            error(r#"{"items":[]} x"#),
            BodyError::Malformed { .. }
        ));
        assert!(matches!(
            error(r#"{"metadata":1}"#),
            BodyError::Malformed { .. }
        ));
        let long = format!(r#"{{"metadata":{{"a":"{}"}}}}"#, "x".repeat(SMALL));
        assert!(matches!(error(&long), BodyError::TooLarge { .. }));
    }

    fn cut(body: &[u8], cuts: &[usize]) -> Vec<Vec<u8>> {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (body.len() + 1)).collect();
        cuts.extend([0, body.len()]);
        cuts.sort_unstable();
        cuts.windows(2)
            .map(|pair| body[pair[0]..pair[1]].to_vec())
            .collect()
    }

    // Proves PR-52.
    proptest! {
        #[test]
        fn the_chunking_of_a_body_changes_nothing(
            strings in prop::collection::vec(".{0,12}", 0..6),
            cuts in prop::collection::vec(any::<usize>(), 0..12),
        ) {
            let items: Vec<_> =
                strings.iter().map(|text| serde_json::json!({"s": text, "n": [1, {"x": null}]})).collect();
            let body = serde_json::to_vec(
                &serde_json::json!({"kind": "L", "items": items, "metadata": {"resourceVersion": "1"}}),
            ).unwrap();
            let chunks = cut(&body, &cuts);
            let chunks: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
            let (found, page) = split(&chunks, 10_000).unwrap();
            let expected: Vec<String> = items.iter().map(ToString::to_string).collect();
            prop_assert_eq!(found, expected);
            prop_assert_eq!(page.resource_version, "1");
        }

        #[test]
        fn any_bytes_end_in_a_list_or_an_error(
            body in prop::collection::vec(
                prop_oneof![prop::sample::select(&b"{}[]\",:\\ n1itemskd"[..]), any::<u8>()], 0..200),
            cuts in prop::collection::vec(any::<usize>(), 0..5),
        ) {
            let chunks = cut(&body, &cuts);
            let chunks: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
            let pieces = split(&chunks, 20);
            let whole = split(&[&body], 20);
            prop_assert_eq!(pieces.is_ok(), whole.is_ok());
            if let (Ok(pieces), Ok(whole)) = (pieces, whole) {
                prop_assert_eq!(pieces, whole);
            }
        }

        #[test]
        fn a_damaged_list_never_panics(at in any::<usize>(), byte in any::<u8>()) {
            let mut body = br#"{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{"a":"b\\"},{}]}"#.to_vec();
            let at = at % body.len();
            body[at] = byte;
            let _ = split(&[&body], 1000);
        }
    }
}
