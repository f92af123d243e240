//! Arithmetic on quantities.

use std::fmt;

use pintle_cel::Quantity;

/// A quantity that can be added and compared, and displays in canonical form.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Amount(Quantity);

impl Amount {
    /// Creates an amount of whole units.
    pub(crate) fn of(units: usize) -> Self {
        Self(Quantity::from(i64::try_from(units).unwrap_or(i64::MAX)))
    }

    /// Parses a quantity. Returns `None` if it is invalid.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        text.trim().parse().ok().map(Self)
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.0.signum() == 0
    }

    pub(crate) fn is_negative(&self) -> bool {
        self.0.signum() < 0
    }

    /// Returns the sum, in the format of the first nonzero operand. If the sum has too many digits,
    /// returns the larger operand, which already exceeds any realistic limit.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        let sum = self.0.plus(&other.0).map(Self);
        sum.unwrap_or_else(|| self.max(other).clone())
    }

    /// Returns the difference, or zero if it would be negative.
    pub(crate) fn minus(&self, other: &Self) -> Self {
        let difference = self.0.minus(&other.0).map(Self);
        let difference = difference.unwrap_or_else(|| self.clone());
        if self < other {
            Self::default()
        } else {
            difference
        }
    }

    /// Rounds up to whole units.
    pub(crate) fn rounded_up(&self) -> Self {
        Self(self.0.rounded_up())
    }

    /// Returns `self` divided by `other`; `None` if `other` is zero.
    pub(crate) fn ratio(&self, other: &Self) -> Option<f64> {
        (!other.is_zero()).then(|| self.as_f64() / other.as_f64())
    }

    /// Returns the approximate value as a float.
    pub(crate) fn as_f64(&self) -> f64 {
        self.0.as_approximate_float()
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests;
