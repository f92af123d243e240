//! Compiled patterns, shared by the whole process and bounded in total.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use regex::{Regex, RegexBuilder};

/// The maximum estimated size of all compiled patterns together, in bytes.
pub(super) const MAX_TOTAL: usize = 64 * 1024 * 1024;

/// The size of a compiled pattern besides its program, including its tables for matching.
pub(super) const OVERHEAD: usize = 16 * 1024;

/// The maximum size of the tables that a pattern builds while it matches, for each thread that uses
/// it.
const MAX_TABLES: usize = 512 * 1024;

/// The limit passed to the compiler, in case an estimate is too low.
const HARD_LIMIT: usize = 4 * super::MAX_SIZE;

static SHARED: Mutex<Cache> = Mutex::new(Cache::new());

/// Compiled patterns, with the time of their last use.
#[derive(Debug)]
pub(super) struct Cache {
    known: BTreeMap<Arc<str>, Entry>,
    total: usize,
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    regex: Regex,
    size: usize,
    used: u64,
}

/// Returns a compiled pattern. Compiles it outside of the lock if it is not known.
pub(super) fn get(text: &Arc<str>, size: usize) -> Result<Regex, String> {
    let lock = || SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = lock().find(text) {
        return Ok(known);
    }
    let regex = compile(text)?;
    lock().insert(text.clone(), regex.clone(), size);
    Ok(regex)
}

pub(super) fn compile(text: &str) -> Result<Regex, String> {
    let (translated, _) = super::translate(text)?;
    RegexBuilder::new(&translated)
        .size_limit(HARD_LIMIT)
        .dfa_size_limit(MAX_TABLES)
        .nest_limit(4_000)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => {
                format!("error parsing regexp: expression too large: `{text}`")
            }
            other => format!("error parsing regexp: {other}"),
        })
}

impl Cache {
    pub(super) const fn new() -> Self {
        Self {
            known: BTreeMap::new(),
            total: 0,
            clock: 0,
        }
    }

    pub(super) fn find(&mut self, text: &str) -> Option<Regex> {
        self.clock += 1;
        let entry = self.known.get_mut(text)?;
        entry.used = self.clock;
        Some(entry.regex.clone())
    }

    pub(super) fn insert(&mut self, text: Arc<str>, regex: Regex, size: usize) {
        let size = size + text.len() + OVERHEAD;
        if size > MAX_TOTAL {
            return;
        }
        if self.total + size > MAX_TOTAL {
            self.shrink(MAX_TOTAL / 2 - size.min(MAX_TOTAL / 2));
        }
        self.clock += 1;
        let entry = Entry {
            regex,
            size,
            used: self.clock,
        };
        self.total += size;
        if let Some(old) = self.known.insert(text, entry) {
            self.total -= old.size;
        }
    }

    #[cfg(test)]
    pub(super) fn total(&self) -> usize {
        self.total
    }

    /// Drops the least recently used patterns until the rest fits.
    fn shrink(&mut self, limit: usize) {
        let mut oldest: Vec<(u64, Arc<str>)> = self
            .known
            .iter()
            .map(|(text, entry)| (entry.used, text.clone()))
            .collect();
        oldest.sort_unstable();
        for (_, text) in oldest {
            if self.total <= limit {
                break;
            }
            if let Some(entry) = self.known.remove(&text) {
                self.total -= entry.size;
            }
        }
    }
}
