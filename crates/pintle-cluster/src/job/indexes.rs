//! Sets of completion indexes, written like `0-3,5,7-9`.

use std::fmt;

/// A set of indexes as ordered intervals that do not touch, each with its first and last index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Indexes(Vec<(i32, i32)>);

impl Indexes {
    /// Parses indexes below `completions`. Intervals that cannot be parsed are ignored.
    pub(super) fn parse(text: &str, completions: i32) -> Self {
        let mut indexes = Self::default();
        for interval in text.split(',') {
            let (first, last) = interval.split_once('-').unwrap_or((interval, interval));
            if let (Ok(first), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>())
                && first < completions
            {
                indexes.push((first, last.min(completions - 1)));
            }
        }
        indexes
    }

    /// Appends an interval that begins no earlier than any existing one.
    fn push(&mut self, (first, last): (i32, i32)) {
        match self.0.last_mut() {
            Some(before) if before.1 >= first.saturating_sub(1) => before.1 = before.1.max(last),
            _ => self.0.push((first, last)),
        }
    }

    pub(super) fn insert(&mut self, index: i32) {
        if self.contains(index) {
            return;
        }
        let at = self.0.partition_point(|(first, _)| *first < index);
        let rest = self.0.split_off(at);
        self.push((index, index));
        for interval in rest {
            self.push(interval);
        }
    }

    /// Adds all indexes of another set.
    pub(super) fn merge(&mut self, other: &Self) {
        let mut intervals = std::mem::take(&mut self.0);
        intervals.extend(&other.0);
        intervals.sort_unstable();
        for interval in intervals {
            self.push(interval);
        }
    }

    pub(super) fn contains(&self, index: i32) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < index);
        self.0.get(at).is_some_and(|(first, _)| *first <= index)
    }

    pub(super) fn len(&self) -> i32 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Counts the indexes that are in both sets.
    pub(super) fn overlap(&self, other: &Self) -> i32 {
        let common = |a: &(i32, i32), b: &(i32, i32)| (a.1.min(b.1) - a.0.max(b.0) + 1).max(0);
        let pairs = self.0.iter();
        pairs
            .flat_map(|a| other.0.iter().map(move |b| common(a, b)))
            .sum()
    }

    /// Returns the first `count` indexes below `completions` that are not in the set.
    pub(super) fn missing(&self, completions: i32, count: usize) -> Vec<i32> {
        let mut missing = Vec::new();
        let mut next = 0;
        for (first, last) in self.0.iter().copied().chain([(completions, completions)]) {
            let gap = next..first.min(completions);
            missing.extend(gap.take(count - missing.len()));
            next = last.saturating_add(1);
        }
        missing
    }
}

impl Extend<i32> for Indexes {
    fn extend<T: IntoIterator<Item = i32>>(&mut self, indexes: T) {
        for index in indexes {
            self.insert(index);
        }
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (first, last)) in self.0.iter().enumerate() {
            if position > 0 {
                f.write_str(",")?;
            }
            match last - first {
                0 => write!(f, "{first}")?,
                1 => write!(f, "{first},{last}")?,
                _ => write!(f, "{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
