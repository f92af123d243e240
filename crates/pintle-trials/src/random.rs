//! Values that a controller chooses at random: passwords, suffixes of names, ids.
//!
//! Two runs without faults that get different random numbers differ exactly in these values. They
//! are learned from such runs and masked in every state, so that the rest can be compared. A value
//! that is not random, such as a checksum, is the same in both runs and is still compared.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    canonical::State,
    plan::Pace,
    trace::{Checkpoint, Numbers, Trace},
};

/// The minimum length of the random part of a value.
const SHORTEST: usize = 5;
/// The minimum length of a prefix that identifies names with a random suffix.
const PREFIX: usize = 2;
/// What replaces a random value.
const MASK: &str = "<random>";

/// The random values of a controller.
#[derive(Debug, Clone, Default)]
pub(crate) struct Random {
    /// Names with a random suffix: the prefix, and the length of the suffix.
    names: BTreeSet<(String, usize)>,
    /// Fields by kind and path; elements of lists have no index.
    fields: BTreeSet<(String, Vec<String>)>,
}

impl Random {
    /// Learns the random values from two runs that differ only in their random numbers.
    pub(crate) fn learn(a: &Trace, b: &Trace) -> Self {
        let mut random = Self::default();
        for (a, b) in a.checkpoints.iter().zip(&b.checkpoints) {
            random.learn_names(&a.state, &b.state);
        }
        for (a, b) in a.checkpoints.iter().zip(&b.checkpoints) {
            let (a, b) = (random.masked(&a.state), random.masked(&b.state));
            for (title, objects) in &a.objects {
                let other = b.objects.get(title).map_or(&[][..], Vec::as_slice);
                for (a, b) in objects.iter().zip(other) {
                    random.learn_fields(kind_of(title), &mut Vec::new(), a, b);
                }
            }
        }
        random
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.fields.is_empty()
    }

    /// Masks the random values of a trace.
    pub(crate) fn mask(&self, trace: &mut Trace, pace: Pace) {
        if self.is_empty() {
            return;
        }
        for Checkpoint { state, .. } in &mut trace.checkpoints {
            *state = self.masked(state).into();
        }
        let mut numbers = Numbers::new(pace);
        let mut rename = |step: usize, fingerprint: &mut String, nth: &mut u32| {
            *fingerprint = self.renamed(fingerprint);
            *nth = numbers.next(step, fingerprint);
        };
        for request in &mut trace.requests {
            rename(request.step, &mut request.fingerprint, &mut request.nth);
        }
        for delivery in &mut trace.deliveries {
            let step = delivery.step;
            rename(step, &mut delivery.fingerprint, &mut delivery.nth);
        }
    }

    /// Returns a state with its random values masked.
    pub(crate) fn masked(&self, state: &State) -> State {
        if self.is_empty() {
            return state.clone();
        }
        let mut masked = State::default();
        for (title, objects) in &state.objects {
            let renamed = self.renamed(title);
            let kind = kind_of(title);
            let all = masked.objects.entry(renamed.clone()).or_default();
            for object in objects {
                let mut object = object.clone();
                self.mask_value(kind, &mut Vec::new(), &mut object);
                all.push(object);
            }
            if let Some(id) = state.ids.get(title) {
                masked.ids.entry(renamed).or_insert_with(|| id.clone());
            }
        }
        for objects in masked.objects.values_mut() {
            objects.sort_by_cached_key(ToString::to_string);
        }
        masked
    }

    /// Returns a string with `*` for the random suffix of each name in it.
    pub(crate) fn renamed(&self, text: &str) -> String {
        let mut out = text.to_owned();
        for (prefix, length) in &self.names {
            let mut from = 0;
            while let Some(at) = out[from..].find(prefix.as_str()) {
                let end = from + at + prefix.len();
                let is_name = out.as_bytes().get(end..end + length);
                if is_name.is_some_and(|rest| rest.iter().all(u8::is_ascii_alphanumeric)) {
                    out.replace_range(end..end + length, "*");
                }
                from = end;
            }
        }
        out
    }

    fn learn_names(&mut self, a: &State, b: &State) {
        let missing = |from: &State, other: &State| -> BTreeMap<String, Vec<String>> {
            let mut by_kind: BTreeMap<String, Vec<String>> = BTreeMap::new();
            let titles = from.objects.keys();
            for title in titles.filter(|title| !other.objects.contains_key(*title)) {
                let kind = kind_of(title).to_owned();
                by_kind.entry(kind).or_default().push(title.clone());
            }
            by_kind
        };
        let (a, b) = (missing(a, b), missing(b, a));
        for (kind, titles) in a {
            let others = b.get(&kind).map_or(&[][..], Vec::as_slice);
            for (a, b) in titles.iter().zip(others) {
                if let Some((prefix, length)) = random_end(name_of(a), name_of(b)) {
                    self.names.insert((prefix.to_owned(), length));
                }
            }
        }
    }

    fn learn_fields(&mut self, kind: &str, path: &mut Vec<String>, a: &Value, b: &Value) {
        match (a, b) {
            _ if a == b => {}
            (Value::Object(a), Value::Object(b)) => {
                for (name, a) in a {
                    let Some(b) = b.get(name) else { continue };
                    path.push(name.clone());
                    self.learn_fields(kind, path, a, b);
                    path.pop();
                }
            }
            (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
                for (a, b) in a.iter().zip(b) {
                    self.learn_fields(kind, path, a, b);
                }
            }
            (Value::String(a), Value::String(b)) if are_random(a, b) => {
                self.fields.insert((kind.to_owned(), path.clone()));
            }
            _ => {}
        }
    }

    fn mask_value(&self, kind: &str, path: &mut Vec<String>, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    path.push(name.clone());
                    self.mask_value(kind, path, value);
                    path.pop();
                }
            }
            Value::Array(items) => {
                for item in items {
                    self.mask_value(kind, path, item);
                }
            }
            Value::String(text) => {
                if self.fields.contains(&(kind.to_owned(), path.clone())) {
                    MASK.clone_into(text);
                } else {
                    *text = self.renamed(text);
                }
            }
            _ => {}
        }
    }
}

/// Returns the kind of a title such as `Service default/web` or `External dns web`.
fn kind_of(title: &str) -> &str {
    title.rsplit_once(' ').map_or(title, |(kind, _)| kind)
}

fn name_of(title: &str) -> &str {
    title.rsplit([' ', '/']).next().unwrap_or(title)
}

/// Returns the common prefix of two names and the length of their random suffixes, if they have
/// any.
fn random_end<'a>(a: &'a str, b: &str) -> Option<(&'a str, usize)> {
    let same = common(a.bytes(), b.bytes());
    // The random parts may begin with the same characters.
    let prefix = a.get(..same)?;
    let end = prefix.rfind(['-', '.']).map_or(same, |at| at + 1);
    let (a, b) = (&a[end..], b.get(end..)?);
    (end >= PREFIX && are_random(a, b)).then_some((&prefix[..end], a.len()))
}

/// Returns whether two strings are the same except for a random part.
fn are_random(a: &str, b: &str) -> bool {
    if a.len() != b.len() || !a.is_ascii() || !b.is_ascii() {
        return false;
    }
    let start = common(a.bytes(), b.bytes());
    let end = common(a[start..].bytes().rev(), b[start..].bytes().rev());
    // Random strings may have characters in common, so compare the whole words around the
    // difference.
    let word = |text: &str| {
        let from = text[..start].rfind(is_separator).map_or(0, |at| at + 1);
        let to = text.len() - end;
        let to = text[to..]
            .find(is_separator)
            .map_or(text.len(), |at| to + at);
        text[from..to].to_owned()
    };
    let (a, b) = (word(a), word(b));
    let random = |text: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
        text.len() >= SHORTEST && text.chars().all(plain)
    };
    let has_digit = |text: &str| text.bytes().any(|byte| byte.is_ascii_digit());
    let letters = |text: &str| {
        let mut bytes = text.as_bytes().to_vec();
        bytes.sort_unstable();
        bytes
    };
    // A hash map's order only permutes characters or swaps words, which is not random.
    random(&a) && random(&b) && (has_digit(&a) || has_digit(&b)) && letters(&a) != letters(&b)
}

fn is_separator(c: char) -> bool {
    !c.is_ascii_alphanumeric() && !"+/=".contains(c)
}

fn common(a: impl Iterator<Item = u8>, b: impl Iterator<Item = u8>) -> usize {
    a.zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests;
