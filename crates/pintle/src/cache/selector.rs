//! Label selectors.

use std::{fmt, str::FromStr};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::object::Labels;

/// A label selector, in the syntax of `kubectl get -l`.
///
/// Requirements are `a=b`, `a==b`, `a!=b`, `a in (x,y)`, `a notin (x)`, `a` (the label exists) and
/// `!a` (it does not), separated by commas. An object must meet all of them. `!=` and `notin` are
/// also met if the label does not exist.
///
/// ```
/// use pintle::cache::Selector;
///
/// let selector: Selector = "app in (web, api),!test".parse().unwrap();
/// assert!(selector.matches([("app", "web")]));
/// assert!(!selector.matches([("app", "web"), ("test", "yes")]));
/// assert_eq!(selector.to_string(), "app in (api,web),!test");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
    nothing: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operator {
    Exists,
    DoesNotExist,
    /// Sorted.
    In(Vec<String>),
    /// Sorted.
    NotIn(Vec<String>),
}

impl Requirement {
    fn is_met_by(&self, value: Option<&str>) -> bool {
        let among = |values: &[String], value: &str| values.iter().any(|other| other == value);
        match (&self.operator, value) {
            (Operator::Exists, value) => value.is_some(),
            (Operator::DoesNotExist, value) => value.is_none(),
            (Operator::In(values), value) => value.is_some_and(|value| among(values, value)),
            (Operator::NotIn(values), value) => !value.is_some_and(|value| among(values, value)),
        }
    }
}

impl Selector {
    /// Returns the selector that matches every object.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Returns the selector that matches no object.
    pub fn nothing() -> Self {
        Self {
            requirements: Vec::new(),
            nothing: true,
        }
    }

    /// Adds the requirement that the label `key` has the value `value`.
    pub fn equals(mut self, key: &str, value: &str) -> Self {
        let operator = Operator::In(vec![value.to_owned()]);
        self.requirements.push(Requirement {
            key: key.to_owned(),
            operator,
        });
        self
    }

    /// Returns whether this selector matches every object.
    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    /// Returns whether this is the [`nothing`](Self::nothing) selector. Contradictory requirements
    /// do not count.
    pub fn is_nothing(&self) -> bool {
        self.nothing
    }

    /// Returns whether an object with these labels matches.
    pub fn matches<'a, L>(&self, labels: L) -> bool
    where
        L: IntoIterator<Item = (&'a str, &'a str), IntoIter: Clone>,
    {
        let labels = labels.into_iter();
        self.all_met(|key| {
            labels
                .clone()
                .find(|(name, _)| *name == key)
                .map(|(_, value)| value)
        })
    }

    /// Like [`matches`](Self::matches), for a cached object.
    pub(crate) fn matches_labels(&self, labels: Labels<'_>) -> bool {
        self.all_met(|key| labels.get(key))
    }

    fn all_met<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.nothing
            && self
                .requirements
                .iter()
                .all(|requirement| requirement.is_met_by(get(&requirement.key)))
    }
}

/// The error returned when a string is not a label selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unable to parse label selector {text:?}: expected {expected}")]
pub struct InvalidSelector {
    text: String,
    expected: &'static str,
}

impl FromStr for Selector {
    type Err = InvalidSelector;

    fn from_str(text: &str) -> Result<Self, InvalidSelector> {
        let mut parser = Parser { rest: text };
        let mut requirements = Vec::new();
        let invalid = |expected| InvalidSelector {
            text: text.to_owned(),
            expected,
        };
        if parser.done() {
            return Ok(Self::everything());
        }
        loop {
            requirements.push(parser.requirement().map_err(invalid)?);
            if parser.done() {
                return Ok(Self {
                    requirements,
                    nothing: false,
                });
            }
            if !parser.take(",") {
                return Err(invalid("a comma between requirements"));
            }
        }
    }
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn done(&mut self) -> bool {
        self.rest = self.rest.trim_start();
        self.rest.is_empty()
    }

    fn take(&mut self, token: &str) -> bool {
        self.rest = self.rest.trim_start();
        self.rest
            .strip_prefix(token)
            .map(|rest| self.rest = rest)
            .is_some()
    }

    fn word(&mut self) -> &'a str {
        self.rest = self.rest.trim_start();
        let end = self
            .rest
            .find(|c: char| c.is_whitespace() || "=!,()<>".contains(c));
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        word
    }

    fn requirement(&mut self) -> Result<Requirement, &'static str> {
        let missing = self.take("!");
        let key = self.word().to_owned();
        if !is_label_key(&key) {
            return Err("a label key");
        }
        if missing {
            return Ok(Requirement {
                key,
                operator: Operator::DoesNotExist,
            });
        }
        let operator = if self.take("==") || self.take("=") {
            Operator::In(vec![self.value()?])
        } else if self.take("!=") {
            Operator::NotIn(vec![self.value()?])
        } else {
            match self.word() {
                "" => Operator::Exists,
                "in" => Operator::In(self.values()?),
                "notin" => Operator::NotIn(self.values()?),
                _ => return Err("=, ==, !=, in, notin or nothing after the key"),
            }
        };
        Ok(Requirement { key, operator })
    }

    fn value(&mut self) -> Result<String, &'static str> {
        let value = self.word();
        if is_label_value(value) {
            Ok(value.to_owned())
        } else {
            Err("a label value")
        }
    }

    fn values(&mut self) -> Result<Vec<String>, &'static str> {
        if !self.take("(") {
            return Err("( before the values");
        }
        let mut values = Vec::new();
        loop {
            values.push(self.value()?);
            if self.take(")") {
                values.sort_unstable();
                values.dedup();
                return Ok(values);
            }
            if !self.take(",") {
                return Err(") after the values");
            }
        }
    }
}

/// Returns whether `text` is a name of up to 63 letters, digits, `-`, `_` and `.` that begins and
/// ends with a letter or digit.
fn is_label_name(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let outer = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= 63
        && text.chars().all(inner)
        && outer(text.chars().next())
        && outer(text.chars().next_back())
}

fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_label_name(text)
}

fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        None => is_label_name(text),
        Some((prefix, name)) => {
            let part = |part: &str| {
                let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
                !part.is_empty()
                    && part.chars().all(inner)
                    && !part.starts_with('-')
                    && !part.ends_with('-')
            };
            prefix.len() <= 253 && prefix.split('.').all(part) && is_label_name(name)
        }
    }
}

impl fmt::Display for Selector {
    /// Writes the syntax that selectors are parsed from. The selector that matches nothing has no
    /// such form and is written as a contradiction.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nothing {
            return f.write_str("!a,a");
        }
        for (number, Requirement { key, operator }) in self.requirements.iter().enumerate() {
            if number > 0 {
                f.write_str(",")?;
            }
            match operator {
                Operator::Exists => f.write_str(key)?,
                Operator::DoesNotExist => write!(f, "!{key}")?,
                Operator::In(values) => match values.as_slice() {
                    [value] => write!(f, "{key}={value}")?,
                    values => write!(f, "{key} in ({})", values.join(","))?,
                },
                Operator::NotIn(values) => match values.as_slice() {
                    [value] => write!(f, "{key}!={value}")?,
                    values => write!(f, "{key} notin ({})", values.join(","))?,
                },
            }
        }
        Ok(())
    }
}

impl TryFrom<&LabelSelector> for Selector {
    type Error = InvalidSelector;

    /// Converts a workload's `spec.selector`. An empty selector matches everything.
    fn try_from(selector: &LabelSelector) -> Result<Self, InvalidSelector> {
        let invalid = |text: &str, expected| InvalidSelector {
            text: text.to_owned(),
            expected,
        };
        let mut requirements = Vec::new();
        for (key, value) in selector.match_labels.iter().flatten() {
            let operator = Operator::In(vec![value.clone()]);
            requirements.push(Requirement {
                key: key.clone(),
                operator,
            });
        }
        for expression in selector.match_expressions.iter().flatten() {
            let mut values = expression.values.clone().unwrap_or_default();
            values.sort_unstable();
            values.dedup();
            let operator = match (expression.operator.as_str(), values.is_empty()) {
                ("In", false) => Operator::In(values),
                ("NotIn", false) => Operator::NotIn(values),
                ("Exists", true) => Operator::Exists,
                ("DoesNotExist", true) => Operator::DoesNotExist,
                (unknown, _) => {
                    return Err(invalid(unknown, "an operator with the values it takes"));
                }
            };
            requirements.push(Requirement {
                key: expression.key.clone(),
                operator,
            });
        }
        Ok(Self {
            requirements,
            nothing: false,
        })
    }
}

#[cfg(test)]
mod tests;
