//! The canonical form of quantities: the largest suffix that needs no fraction.

use std::fmt;

use super::{Decimal, Quantity, Suffixes};

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.written {
            return f.write_str(text);
        }
        let value = self.decimal();
        if value.is_zero() {
            return f.write_str("0");
        }
        if value.negative {
            f.write_str("-")?;
        }
        if self.suffixes == Suffixes::Binary
            && let Some(text) = binary(&value)
        {
            return f.write_str(&text);
        }
        f.write_str(&decimal(&value, self.suffixes))
    }
}

/// Formats a whole number of at least 1024 with a binary suffix.
fn binary(value: &Decimal) -> Option<String> {
    const NAMES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let magnitude = Decimal {
        negative: false,
        ..value.clone()
    };
    if magnitude < Decimal::of(1024, 0) {
        return None;
    }
    let (digits, times) = value.without_factors_of_1024()?;
    // As upstream, a power without a suffix is dropped.
    Some(format!("{digits}{}", NAMES.get(times).unwrap_or(&"")))
}

fn decimal(value: &Decimal, suffixes: Suffixes) -> String {
    let zeros = value.exponent.rem_euclid(3);
    let exponent = value.exponent - zeros;
    let mut text = value.show();
    text.extend((0..zeros).map(|_| '0'));
    match suffixes {
        Suffixes::Exponent if exponent == 0 => {}
        Suffixes::Exponent => {
            text.push('e');
            text.push_str(&exponent.to_string());
        }
        Suffixes::Decimal | Suffixes::Binary => text.push_str(match exponent {
            -9 => "n",
            -6 => "u",
            -3 => "m",
            3 => "k",
            6 => "M",
            9 => "G",
            12 => "T",
            15 => "P",
            18 => "E",
            // As upstream, a power without a suffix is dropped.
            _ => "",
        }),
    }
    text
}
