//! Median and spread.

/// A figure over several rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    /// `None` without samples.
    pub(super) fn of(mut samples: Vec<f64>) -> Option<Self> {
        samples.retain(|sample| sample.is_finite());
        samples.sort_by(f64::total_cmp);
        let (min, max) = (*samples.first()?, *samples.last()?);
        let middle = samples.len() / 2;
        let median = if samples.len().is_multiple_of(2) {
            f64::midpoint(samples[middle - 1], samples[middle])
        } else {
            samples[middle]
        };
        Some(Self { median, min, max })
    }

    /// `12.3 (11.9–14.0)`, or the value alone if there was one round only.
    pub(super) fn show(&self) -> String {
        if self.min.total_cmp(&self.max).is_eq() {
            number(self.median)
        } else {
            let (min, max) = (number(self.min), number(self.max));
            format!("{} ({min}–{max})", number(self.median))
        }
    }
}

/// Formats a number with about three significant digits.
pub(super) fn number(value: f64) -> String {
    let magnitude = value.abs();
    let text = if magnitude >= 99.95 || magnitude == 0.0 {
        format!("{value:.0}")
    } else if magnitude >= 9.995 {
        format!("{value:.1}")
    } else if magnitude >= 0.9995 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    };
    thousands(&text)
}

/// `12345` as `12,345`.
fn thousands(text: &str) -> String {
    let (sign, digits) = text
        .strip_prefix('-')
        .map_or(("", text), |rest| ("-", rest));
    let (whole, fraction) = digits
        .split_once('.')
        .map_or((digits, String::new()), |(whole, rest)| {
            (whole, format!(".{rest}"))
        });
    let mut grouped = String::new();
    for (n, digit) in whole.chars().enumerate() {
        if n > 0 && (whole.len() - n).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}{fraction}")
}

#[cfg(test)]
mod tests;
