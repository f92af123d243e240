//! The query parameters of a request.

use crate::api::ApiError;

/// The query parameters of a request, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    pub(crate) fn parse(query: Option<&str>) -> Self {
        let pairs = query
            .unwrap_or_default()
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                (decode(key, true), decode(value, true))
            })
            .collect();
        Self { pairs }
    }

    /// Returns the first value of a parameter, or an empty string.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.pairs
            .iter()
            .find(|(key, _)| key == name)
            .map_or("", |(_, value)| value)
    }

    /// Returns every value of a parameter.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs
            .iter()
            .filter(move |(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    fn has(&self, name: &str) -> bool {
        self.pairs.iter().any(|(key, _)| key == name)
    }

    /// Returns true if a parameter is present and neither `false` nor `0`.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.has(name) && !matches!(self.get(name).to_lowercase().as_str(), "false" | "0")
    }

    /// Returns a boolean parameter, or `None` if it is absent.
    pub(crate) fn optional_flag(&self, name: &str) -> Option<bool> {
        self.has(name).then(|| self.flag(name))
    }

    /// Returns a numeric parameter, or `None` if it is absent or empty.
    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>, ApiError> {
        match self.get(name) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                ApiError::bad_request(format!(
                    "strconv.ParseInt: parsing {text:?}: invalid syntax"
                ))
            }),
        }
    }
}

/// Percent-decodes a string. Invalid escapes are left unchanged.
pub(crate) fn decode(text: &str, plus_is_space: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = |i: usize| bytes.get(i).and_then(|b| char::from(*b).to_digit(16));
        match bytes[at] {
            b'%' => {
                if let (Some(high), Some(low)) = (hex(at + 1), hex(at + 2)) {
                    out.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
                    at += 2;
                } else {
                    out.push(b'%');
                }
            }
            b'+' if plus_is_space => out.push(b' '),
            byte => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests;
