//! Decimal numbers of any length.

use std::cmp::Ordering;

/// The number of digits up to which sums are computed.
const MAX_DIGITS: i64 = 1 << 16;
/// The number of digits up to which factors of 1024 are divided out, which takes quadratic time.
const MAX_BINARY_DIGITS: i64 = 1 << 12;

/// `digits` × 10^`exponent`. Digits start with the most significant one, and neither the first nor
/// the last is zero, so that every number has one form. Zero has no digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decimal {
    pub(super) negative: bool,
    pub(super) digits: Vec<u8>,
    pub(super) exponent: i64,
}

impl Decimal {
    /// Creates a number from ASCII digits.
    pub(super) fn new(negative: bool, digits: impl IntoIterator<Item = u8>, exponent: i64) -> Self {
        let digits = digits.into_iter().map(|digit| digit.wrapping_sub(b'0'));
        Self {
            negative,
            digits: digits.skip_while(|digit| *digit == 0).collect(),
            exponent,
        }
        .normalized()
    }

    pub(super) fn of(value: i64, exponent: i64) -> Self {
        let digits = value.unsigned_abs().to_string();
        Self::new(value < 0, digits.bytes(), exponent)
    }

    fn normalized(mut self) -> Self {
        while self.digits.last() == Some(&0) {
            self.digits.pop();
            self.exponent += 1;
        }
        if self.digits.is_empty() {
            self.exponent = 0;
            self.negative = false;
        }
        self
    }

    pub(super) fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    /// Returns the exponent of the power of ten just above the number's magnitude.
    fn top(&self) -> i64 {
        self.digits.len() as i64 + self.exponent
    }

    fn cmp_magnitude(&self, other: &Self) -> Ordering {
        match (self.is_zero(), other.is_zero()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            // Without trailing zeros, a longer number is larger than its prefix.
            (false, false) => self
                .top()
                .cmp(&other.top())
                .then_with(|| self.digits.cmp(&other.digits)),
        }
    }

    /// Returns how many digits [`plus`](Self::plus) works on.
    pub(super) fn sum_digits(&self, other: &Self) -> usize {
        let length = self.top().max(other.top()) - self.exponent.min(other.exponent);
        let given = self.digits.len() + other.digits.len();
        usize::try_from(length.min(MAX_DIGITS))
            .unwrap_or_default()
            .max(given)
    }

    /// Returns the sum, or `None` if it has too many digits.
    pub(super) fn plus(&self, other: &Self) -> Option<Self> {
        if self.is_zero() {
            return Some(other.clone());
        }
        if other.is_zero() {
            return Some(self.clone());
        }
        let (large, small) = if self.cmp_magnitude(other) == Ordering::Less {
            (other, self)
        } else {
            (self, other)
        };
        let exponent = large.exponent.min(small.exponent);
        // One digit more for the carry.
        let length = large.top() - exponent + 1;
        if length > MAX_DIGITS {
            return None;
        }
        let mut digits = vec![0_i8; usize::try_from(length).ok()?];
        for (number, sign) in [
            (large, 1),
            (
                small,
                if large.negative == small.negative {
                    1
                } else {
                    -1
                },
            ),
        ] {
            let end = length - (number.exponent - exponent);
            let end = usize::try_from(end).ok()?;
            let places = digits[..end].iter_mut().rev();
            for (place, digit) in places.zip(number.digits.iter().rev()) {
                *place += sign * i8::try_from(*digit).unwrap_or_default();
            }
        }
        let mut carry = 0;
        for place in digits.iter_mut().rev() {
            let sum = *place + carry;
            *place = sum.rem_euclid(10);
            carry = sum.div_euclid(10);
        }
        let digits = digits.iter().map(|digit| b'0' + digit.unsigned_abs());
        Some(Self::new(large.negative, digits, exponent))
    }

    /// Multiplies by a small number.
    pub(super) fn times(&self, factor: u64) -> Self {
        let mut digits = Vec::with_capacity(self.digits.len() + 20);
        let mut carry: u128 = 0;
        for digit in self.digits.iter().rev() {
            carry += u128::from(*digit) * u128::from(factor);
            digits.push((carry % 10) as u8);
            carry /= 10;
        }
        while carry > 0 {
            digits.push((carry % 10) as u8);
            carry /= 10;
        }
        digits.reverse();
        Self {
            negative: self.negative,
            digits,
            exponent: self.exponent,
        }
        .normalized()
    }

    /// Rounds away from zero to a multiple of a power of ten.
    pub(super) fn rounded_up(&self, exponent: i64) -> Self {
        if self.exponent >= exponent || self.is_zero() {
            return self.clone();
        }
        let kept = usize::try_from(self.top() - exponent).unwrap_or(0);
        let mut digits: Vec<u8> = self.digits.iter().take(kept).copied().collect();
        let mut carry = true;
        for digit in digits.iter_mut().rev() {
            if *digit < 9 {
                *digit += 1;
                carry = false;
                break;
            }
            *digit = 0;
        }
        if carry {
            digits.insert(0, 1);
        }
        Self {
            negative: self.negative,
            digits,
            exponent,
        }
        .normalized()
    }

    /// Divides a whole number by 1024 until there would be a remainder. Returns the digits of the
    /// quotient and the number of divisions, or `None` for fractions and very long numbers.
    pub(super) fn without_factors_of_1024(&self) -> Option<(String, usize)> {
        if self.top() > MAX_BINARY_DIGITS || self.exponent < 0 {
            return None;
        }
        let zeros = usize::try_from(self.exponent).ok()?;
        let mut digits = self.digits.clone();
        digits.resize(digits.len() + zeros, 0);
        let mut times = 0;
        loop {
            let mut rest: u32 = 0;
            let mut quotient = Vec::with_capacity(digits.len());
            for digit in &digits {
                rest = rest * 10 + u32::from(*digit);
                quotient.push((rest / 1024) as u8);
                rest %= 1024;
            }
            if rest != 0 || digits.is_empty() {
                return Some((show(&digits), times));
            }
            let start = quotient.iter().take_while(|digit| **digit == 0).count();
            digits = quotient.split_off(start);
            times += 1;
        }
    }

    /// Returns the number times a power of ten, as the nearest float.
    pub(super) fn to_f64(&self, shift: i64) -> f64 {
        let sign = if self.negative { "-" } else { "" };
        let text = format!("{sign}{}e{}", self.show(), self.exponent + shift);
        text.parse().unwrap_or(f64::NAN)
    }

    /// Returns the digits as text.
    pub(super) fn show(&self) -> String {
        show(&self.digits)
    }
}

fn show(digits: &[u8]) -> String {
    if digits.is_empty() {
        return "0".into();
    }
    digits
        .iter()
        .map(|digit| char::from(b'0' + digit))
        .collect()
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.negative, other.negative) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => self.cmp_magnitude(other),
            (true, true) => other.cmp_magnitude(self),
        }
    }
}
