//! Kubernetes quantities: `1500m`, `2Gi`, `1e3`.
//!
//! A quantity has a number and a suffix format, in which sums are shown. Upstream stores numbers
//! that fit as an integer times a power of ten and others as a decimal of any length. The
//! difference is visible: only the former count as integers. Numbers are rounded away from zero to
//! billionths, and binary quantities are capped at the largest 64-bit integer.

mod decimal;
mod display;
mod parse;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use self::decimal::Decimal;

/// Why a string is not a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuantityError {
    /// Not a number with a suffix.
    Format,
    /// A suffix without a number.
    Number,
    /// An unknown suffix.
    Suffix,
}

/// The suffix format of a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Suffixes {
    /// `k`, `M`, `m` …
    #[default]
    Decimal,
    /// `e3`
    Exponent,
    /// `Ki`, `Mi` …
    Binary,
}

#[derive(Debug, Clone)]
enum Amount {
    /// `value` × 10^`scale`
    Int { value: i64, scale: i32 },
    /// Upstream stores the number as an integer divided by 10^`places`, which decides how it rounds
    /// as a float.
    Decimal { value: Decimal, places: i64 },
}

/// A Kubernetes quantity, such as `1500m` or `2Gi`.
///
/// Quantities are exact: they are compared and added without rounding. They display in canonical
/// form, in which Kubernetes stores them.
///
/// ```
/// use pintle_cel::Quantity;
///
/// let memory: Quantity = "1.5Gi".parse()?;
/// assert_eq!(memory.to_string(), "1536Mi");
/// assert!(memory > "1500M".parse()?);
/// # Ok::<(), pintle_cel::QuantityError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Quantity {
    amount: Amount,
    suffixes: Suffixes,
    /// The text that was parsed, if it counts as canonical.
    written: Option<Arc<str>>,
}

impl Default for Quantity {
    fn default() -> Self {
        Self::from(0)
    }
}

impl From<i64> for Quantity {
    fn from(value: i64) -> Self {
        Self::computed(Amount::Int { value, scale: 0 }, Suffixes::Decimal)
    }
}

impl Quantity {
    fn computed(amount: Amount, suffixes: Suffixes) -> Self {
        Self {
            amount,
            suffixes,
            written: None,
        }
    }

    fn decimal(&self) -> Cow<'_, Decimal> {
        match &self.amount {
            Amount::Int { value, scale } => Cow::Owned(Decimal::of(*value, i64::from(*scale))),
            Amount::Decimal { value, .. } => Cow::Borrowed(value),
        }
    }

    /// Returns -1, 0 or 1.
    #[must_use]
    pub fn signum(&self) -> i64 {
        match &self.amount {
            Amount::Int { value, .. } => value.signum(),
            Amount::Decimal { value, .. } if value.is_zero() => 0,
            Amount::Decimal { value, .. } => 1 - 2 * i64::from(value.negative),
        }
    }

    /// Returns the value as upstream's `AsInt64` does, which rejects `1000m` and `1Ei`.
    #[must_use]
    pub fn as_integer(&self) -> Option<i64> {
        match self.amount {
            Amount::Int { value: 0, scale } => (scale >= 0).then_some(0),
            Amount::Int { value, scale } => scaled(value, scale),
            Amount::Decimal { .. } => None,
        }
    }

    /// Returns the value as a float, which may be rounded or infinite.
    #[must_use]
    pub fn as_approximate_float(&self) -> f64 {
        let (base, exponent) = match &self.amount {
            Amount::Int { value, scale } => (*value as f64, i64::from(*scale)),
            Amount::Decimal { value, places } => (value.to_f64(*places), -places),
        };
        if exponent == 0 {
            base
        } else {
            base * power_of_ten(exponent)
        }
    }

    /// Returns the sum in the format of the first nonzero quantity, or `None` if it has tens of
    /// thousands of digits.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Option<Self> {
        let suffixes = if self.signum() == 0 {
            other.suffixes
        } else {
            self.suffixes
        };
        let ints = match (&self.amount, &other.amount) {
            (
                &Amount::Int { value, scale },
                &Amount::Int {
                    value: more,
                    scale: by,
                },
            ) => sum((value, scale), (more, by)),
            _ => None,
        };
        let amount = match ints {
            Some((value, scale)) => Amount::Int { value, scale },
            None => Amount::Decimal {
                value: self.decimal().plus(&other.decimal())?,
                places: self.places().max(other.places()),
            },
        };
        Some(Self::computed(amount, suffixes))
    }

    /// Returns the difference in the format of the first nonzero quantity, or `None` if it has tens
    /// of thousands of digits.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Option<Self> {
        self.plus(&other.negated())
    }

    fn negated(&self) -> Self {
        let amount = match &self.amount {
            Amount::Int { value, scale } => Amount::Int {
                value: value.wrapping_neg(),
                scale: *scale,
            },
            Amount::Decimal { value, places } => Amount::Decimal {
                value: Decimal {
                    negative: !value.negative && !value.is_zero(),
                    ..value.clone()
                },
                places: *places,
            },
        };
        Self::computed(amount, self.suffixes)
    }

    /// Rounds away from zero to a whole number.
    #[must_use]
    pub fn rounded_up(&self) -> Self {
        let amount = match &self.amount {
            Amount::Int { scale: 0.., .. } => return self.clone(),
            _ => Amount::Decimal {
                value: self.decimal().rounded_up(0),
                places: 0,
            },
        };
        Self::computed(amount, self.suffixes)
    }

    /// Returns the number of digits that computing with the quantity takes.
    pub(crate) fn digits(&self) -> usize {
        match &self.amount {
            Amount::Int { .. } => 1,
            Amount::Decimal { value, .. } => value.digits.len(),
        }
    }

    /// Returns the number of digits that adding the quantities takes.
    pub(crate) fn sum_digits(&self, other: &Self) -> usize {
        match (&self.amount, &other.amount) {
            (Amount::Int { .. }, Amount::Int { .. }) => 1,
            _ => self.decimal().sum_digits(&other.decimal()),
        }
    }

    fn places(&self) -> i64 {
        match &self.amount {
            Amount::Int { scale, .. } => -i64::from(*scale),
            Amount::Decimal { places, .. } => *places,
        }
    }
}

/// Returns `value` × 10^`scale` for a scale that is not negative.
fn scaled(value: i64, scale: i32) -> Option<i64> {
    let factor = 10_i64.checked_pow(u32::try_from(scale).ok()?)?;
    value.checked_mul(factor)
}

/// Adds numbers with their powers of ten. The sum has the smaller power. Returns `None` on
/// overflow.
fn sum(a: (i64, i32), b: (i64, i32)) -> Option<(i64, i32)> {
    if b.0 == 0 {
        return Some(a);
    }
    if a.0 == 0 {
        return Some(b);
    }
    let scale = a.1.min(b.1);
    let lifted = |(value, from): (i64, i32)| scaled(value, from.checked_sub(scale)?);
    Some((lifted(a)?.checked_add(lifted(b)?)?, scale))
}

/// Returns a power of ten as Go's `math.Pow10` does, which multiplies two powers.
fn power_of_ten(exponent: i64) -> f64 {
    let exact = |exponent: i64| format!("1e{exponent}").parse().unwrap_or(f64::NAN);
    match exponent {
        ..-323 => 0.0,
        309.. => f64::INFINITY,
        0.. => exact(exponent / 32 * 32) * exact(exponent % 32),
        _ => exact(exponent / 32 * 32) / exact(-exponent % 32),
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.amount, &other.amount) {
            (
                Amount::Int { value: a, scale },
                Amount::Int {
                    value: b,
                    scale: by,
                },
            ) if scale == by => a.cmp(b),
            _ => self.decimal().cmp(&other.decimal()),
        }
    }
}

#[cfg(test)]
mod tests;
