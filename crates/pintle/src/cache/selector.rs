//! Label selectors.

use std::{fmt, str::FromStr};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::object::Labels;

/// Which objects, by their labels: the grammar of `kubectl get -l`.
///
/// `a=b`, `a==b`, `a!=b`, `a in (x,y)`, `a notin (x)`, `a` (there is such a label), `!a` (there is
/// none), joined by commas: all must hold. `!=` and `notin` also hold where there is no such label.
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
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    Missing,
    /// Sorted.
    In(Vec<String>),
    /// Sorted.
    NotIn(Vec<String>),
}

impl Requirement {
    fn holds(&self, value: Option<&str>) -> bool {
        let among = |values: &[String], value: &str| values.iter().any(|other| other == value);
        match (&self.test, value) {
            (Test::Exists, value) => value.is_some(),
            (Test::Missing, value) => value.is_none(),
            (Test::In(values), value) => value.is_some_and(|value| among(values, value)),
            (Test::NotIn(values), value) => !value.is_some_and(|value| among(values, value)),
        }
    }
}

impl Selector {
    /// Every object.
    pub fn everything() -> Self {
        Self::default()
    }

    /// No object.
    pub fn nothing() -> Self {
        Self {
            requirements: Vec::new(),
            nothing: true,
        }
    }

    /// Objects whose label `key` has the value `value`, besides what the selector asks already.
    pub fn equals(mut self, key: &str, value: &str) -> Self {
        let test = Test::In(vec![value.to_owned()]);
        self.requirements.push(Requirement {
            key: key.to_owned(),
            test,
        });
        self
    }

    /// Whether this is the selector of every object.
    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    /// Whether this is the selector of no object.
    pub fn is_nothing(&self) -> bool {
        self.nothing
    }

    /// Whether an object with these labels is selected.
    pub fn matches<'a, L>(&self, labels: L) -> bool
    where
        L: IntoIterator<Item = (&'a str, &'a str), IntoIter: Clone>,
    {
        let labels = labels.into_iter();
        self.hold(|key| {
            labels
                .clone()
                .find(|(name, _)| *name == key)
                .map(|(_, value)| value)
        })
    }

    /// Whether an object of the cache is selected.
    pub(crate) fn matches_labels(&self, labels: Labels<'_>) -> bool {
        self.hold(|key| labels.get(key))
    }

    fn hold<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.nothing
            && self
                .requirements
                .iter()
                .all(|wanted| wanted.holds(get(&wanted.key)))
    }
}

/// A text that is not a label selector.
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
                test: Test::Missing,
            });
        }
        let test = if self.take("==") || self.take("=") {
            Test::In(vec![self.value()?])
        } else if self.take("!=") {
            Test::NotIn(vec![self.value()?])
        } else {
            match self.word() {
                "" => Test::Exists,
                "in" => Test::In(self.values()?),
                "notin" => Test::NotIn(self.values()?),
                _ => return Err("=, ==, !=, in, notin or nothing after the key"),
            }
        };
        Ok(Requirement { key, test })
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

/// A name of up to 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
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
    /// In the grammar it parses from. The selector of no object has no such form and prints as a
    /// requirement that cannot hold.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nothing {
            return f.write_str("!a,a");
        }
        for (number, Requirement { key, test }) in self.requirements.iter().enumerate() {
            if number > 0 {
                f.write_str(",")?;
            }
            match test {
                Test::Exists => f.write_str(key)?,
                Test::Missing => write!(f, "!{key}")?,
                Test::In(values) => match values.as_slice() {
                    [value] => write!(f, "{key}={value}")?,
                    values => write!(f, "{key} in ({})", values.join(","))?,
                },
                Test::NotIn(values) => match values.as_slice() {
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

    /// The selector that a workload's `spec.selector` means. An empty one selects everything.
    fn try_from(selector: &LabelSelector) -> Result<Self, InvalidSelector> {
        let invalid = |text: &str, expected| InvalidSelector {
            text: text.to_owned(),
            expected,
        };
        let mut requirements = Vec::new();
        for (key, value) in selector.match_labels.iter().flatten() {
            let test = Test::In(vec![value.clone()]);
            requirements.push(Requirement {
                key: key.clone(),
                test,
            });
        }
        for wanted in selector.match_expressions.iter().flatten() {
            let mut values = wanted.values.clone().unwrap_or_default();
            values.sort_unstable();
            values.dedup();
            let test = match (wanted.operator.as_str(), values.is_empty()) {
                ("In", false) => Test::In(values),
                ("NotIn", false) => Test::NotIn(values),
                ("Exists", true) => Test::Exists,
                ("DoesNotExist", true) => Test::Missing,
                (operator, _) => {
                    return Err(invalid(operator, "an operator with the values it takes"));
                }
            };
            requirements.push(Requirement {
                key: wanted.key.clone(),
                test,
            });
        }
        Ok(Self {
            requirements,
            nothing: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves cache/label-selectors.
    #[test]
    fn the_grammar_of_kubectl() {
        let labels = [("app", "web"), ("example.com/tier", "front"), ("empty", "")];
        for (selector, selected) in [
            ("", true),
            ("app=web", true),
            ("app==web", true),
            ("app = web , example.com/tier=front", true),
            ("app=api", false),
            ("app!=web", false),
            ("app!=api", true),
            ("other!=x", true),
            ("app in (web,api)", true),
            ("app in (api)", false),
            ("app notin (web, api)", false),
            ("other notin (x)", true),
            ("app", true),
            ("other", false),
            ("!other", true),
            ("! app", false),
            ("empty=", true),
            ("empty in ()", true),
            ("app=web,other", false),
            ("in in (in)", false),
        ] {
            let parsed: Selector = selector.parse().unwrap();
            assert_eq!(parsed.matches(labels), selected, "{selector}");
            let printed: Selector = parsed.to_string().parse().unwrap();
            assert_eq!(
                printed.matches(labels),
                selected,
                "{selector} printed as {parsed}"
            );
        }
        for text in [
            "=a", "a=b=c", "a in b", "a in (b", "a b", ",a", "a,", "!", "-a", "a=-", "A/b",
            "a/b/c", "a=b c",
        ] {
            assert!(text.parse::<Selector>().is_err(), "{text:?} parsed");
        }
    }

    /// Proves cache/label-selectors.
    #[test]
    fn keys_and_values_are_those_that_a_server_takes() {
        let name = |length: usize| "n".repeat(length);
        // 253 characters, of parts as long as they may be.
        let prefix = [63, 63, 63, 61].map(name).join(".");
        for valid in [
            name(63),
            format!("{prefix}/{}", name(63)),
            "a.B_c-9".to_owned(),
            "a-1.b/c".to_owned(),
            format!("a={}", name(63)),
            "a in (1.2_3-4,)".to_owned(),
        ] {
            assert!(valid.parse::<Selector>().is_ok(), "{valid:?}");
        }
        for invalid in [
            name(64),
            format!("{prefix}n/a"),
            format!("a/{}", name(64)),
            format!("a={}", name(64)),
        ] {
            assert!(invalid.parse::<Selector>().is_err(), "{invalid:?} parsed");
        }
        for invalid in [
            "a-",
            "_a",
            "a+b",
            "\u{e4}",
            "/a",
            "a/",
            "a/-b",
            "a..b/c",
            ".a/b",
            "a./b",
            "-a/b",
            "a-/b",
            "a_b/c",
            "a=b-",
            "a=.b",
            "a=b+c",
            "a!=b/c",
            "a in (b-)",
            "a in (b c)",
            "a<b",
        ] {
            assert!(invalid.parse::<Selector>().is_err(), "{invalid:?} parsed");
        }
    }

    #[test]
    fn a_selector_prints_as_it_would_be_written() {
        for (text, printed) in [
            ("", ""),
            ("a,!b , c==d,e != f", "a,!b,c=d,e!=f"),
            ("a in (y,x,y)", "a in (x,y)"),
            ("a notin (y,x)", "a notin (x,y)"),
            ("a in (x),b notin (y)", "a=x,b!=y"),
        ] {
            assert_eq!(text.parse::<Selector>().unwrap().to_string(), printed);
        }
        let nothing: Selector = Selector::nothing().to_string().parse().unwrap();
        assert!(!nothing.matches([]) && !nothing.matches([("a", "x")]));
    }

    #[test]
    fn everything_nothing_and_what_is_between() {
        let (all, none) = (Selector::everything(), Selector::nothing());
        let some = Selector::everything().equals("a", "x").equals("b", "y");
        assert!(all.is_everything() && !none.is_everything() && !some.is_everything());
        assert!(!all.is_nothing() && none.is_nothing() && !some.is_nothing());
        for (labels, selected) in [
            (&[][..], false),
            (&[("a", "x")], false),
            (&[("a", "x"), ("b", "y")], true),
        ] {
            let labels = labels.iter().copied();
            assert!(all.matches(labels.clone()) && !none.matches(labels.clone()));
            assert_eq!(some.matches(labels), selected);
        }
        assert!(!none.equals("a", "x").matches([("a", "x")]));
    }

    #[test]
    fn the_selector_of_a_workload() {
        let selector: LabelSelector = serde_json::from_value(serde_json::json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "NotIn", "values": ["back"]},
                {"key": "test", "operator": "DoesNotExist"},
            ],
        }))
        .unwrap();
        let selector = Selector::try_from(&selector).unwrap();
        assert_eq!(selector.to_string(), "app=web,tier!=back,!test");
        assert!(selector.matches([("app", "web")]));
        assert!(!selector.matches([("app", "web"), ("tier", "back")]));
        assert!(
            Selector::try_from(&LabelSelector::default())
                .unwrap()
                .is_everything()
        );
        let expression = |operator: &str, values: &[&str]| {
            let expression =
                serde_json::json!([{"key": "a", "operator": operator, "values": values}]);
            let selector = serde_json::json!({"matchExpressions": expression});
            Selector::try_from(&serde_json::from_value(selector).unwrap())
        };
        for (operator, values, printed) in [
            ("In", &["y", "x", "y"][..], "a in (x,y)"),
            ("NotIn", &["y", "x"], "a notin (x,y)"),
            ("Exists", &[], "a"),
            ("DoesNotExist", &[], "!a"),
        ] {
            assert_eq!(expression(operator, values).unwrap().to_string(), printed);
            let other: &[&str] = if values.is_empty() { &["x"] } else { &[] };
            let refused = expression(operator, other).unwrap_err();
            assert!(refused.to_string().contains(operator), "{refused}");
        }
        assert!(expression("Gt", &["1"]).is_err());
    }
}
