//! Ranges of costs and sizes.

/// The cost of one character of a string that is read.
pub(crate) const PER_CHAR: f64 = 0.1;
/// The cost of one character of a regular expression.
pub(crate) const PER_REGEX_CHAR: f64 = 0.25;
pub(crate) const LIST_COST: u64 = 10;
pub(crate) const MAP_COST: u64 = 30;
pub(crate) const STRUCT_COST: u64 = 40;

/// A range of costs or sizes: a minimum and a maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The minimum.
    pub min: u64,
    /// The maximum.
    pub max: u64,
}

pub(crate) const UNKNOWN: Range = Range {
    min: 0,
    max: u64::MAX,
};

impl Range {
    pub(crate) fn fixed(value: u64) -> Self {
        Self {
            min: value,
            max: value,
        }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }

    pub(crate) fn times(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    pub(crate) fn factor(self, factor: f64) -> Self {
        Self {
            min: scale(self.min, factor),
            max: scale(self.max, factor),
        }
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

/// Multiplies and rounds up, without overflow.
pub(crate) fn scale(value: u64, factor: f64) -> u64 {
    let wide = value as f64;
    if wide > 0.0 && factor > 0.0 && wide > u64::MAX as f64 / factor {
        return u64::MAX;
    }
    // The cast saturates.
    (wide * factor).ceil() as u64
}
