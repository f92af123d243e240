//! Quantities such as `500m`, `1.5Gi` and `1e3`, and their canonical form.

mod amount;

use pintle_cel::{Quantity, QuantityError};

pub(crate) use self::amount::Amount;

/// Returns the canonical form: the largest suffix that needs no fraction.
pub(crate) fn canonical(text: &str) -> Result<String, QuantityError> {
    let quantity: Quantity = text.trim().parse()?;
    Ok(quantity.to_string())
}

/// Returns whether `one` is less than `other`, or `None` if either is invalid.
pub(crate) fn less(one: &str, other: &str) -> Option<bool> {
    Some(Amount::parse(one)? < Amount::parse(other)?)
}

#[cfg(test)]
mod tests;
