//! Quantities to count with.

use std::{cmp::Ordering, fmt};

use super::{Format, binary, decimal, nanos, suffix};

/// Billionths in one.
const ONE: i128 = 1_000_000_000;

/// A quantity that can be added and compared. It is exact to a billionth, and displays in canonical
/// form.
#[derive(Clone, Copy)]
pub(crate) struct Amount {
    nanos: i128,
    format: Format,
}

impl Amount {
    pub(crate) const ZERO: Self = Self {
        nanos: 0,
        format: Format::Decimal,
    };

    /// Creates an amount of whole units.
    pub(crate) fn of(units: usize) -> Self {
        Self {
            nanos: i128::try_from(units).map_or(i128::MAX, |units| units.saturating_mul(ONE)),
            format: Format::Decimal,
        }
    }

    /// Parses a quantity. One too large to count with is larger than every other: as a request it
    /// exceeds any limit, and as a limit it never refuses. `None` if the text is invalid.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let at = text.find(|c: char| c.is_ascii_alphabetic());
        let (format, _) = suffix(at.map_or("", |at| &text[at..]))?;
        Some(Self {
            nanos: nanos(text)?,
            format,
        })
    }

    pub(crate) fn is_zero(self) -> bool {
        self.nanos == 0
    }

    pub(crate) fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Returns the sum, in the format of the first amount that is not zero.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            nanos: self.nanos.saturating_add(other.nanos),
            format: if self.is_zero() {
                other.format
            } else {
                self.format
            },
        }
    }

    /// Returns the difference, or zero if it would be negative.
    pub(crate) fn minus(self, other: Self) -> Self {
        Self {
            nanos: self.nanos.saturating_sub(other.nanos).max(0),
            ..self
        }
    }

    /// Rounds up to whole units.
    pub(crate) fn rounded_up(self) -> Self {
        let rest = self.nanos.rem_euclid(ONE);
        let missing = if rest == 0 { 0 } else { ONE - rest };
        Self {
            nanos: self.nanos.saturating_add(missing),
            ..self
        }
    }

    /// Returns `self` divided by `other`; `None` if that is zero.
    pub(crate) fn ratio(self, other: Self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "upstream divides floats, too")]
        let float = |amount: Self| amount.nanos as f64;
        (!other.is_zero()).then(|| float(self) / float(other))
    }

    /// Returns the amount as a number.
    #[expect(clippy::cast_precision_loss, reason = "compared with a ratio")]
    pub(crate) fn as_f64(self) -> f64 {
        self.nanos as f64 / ONE as f64
    }
}

impl PartialEq for Amount {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Amount {}

impl PartialOrd for Amount {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Amount {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return f.write_str("0");
        }
        let number = i128::try_from(self.nanos.unsigned_abs()).unwrap_or(i128::MAX);
        let text = match self.format {
            Format::Binary => binary(number, 0, 9),
            format => decimal(number, -9, format),
        };
        let sign = if self.is_negative() { "-" } else { "" };
        write!(f, "{sign}{text}")
    }
}

impl fmt::Debug for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests;
