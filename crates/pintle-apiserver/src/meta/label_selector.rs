//! Label selectors: `a=b,c!=d,e in (x,y),f notin (z),g,!h`. Error messages are upstream's.

use std::collections::{BTreeMap, BTreeSet};

use super::names;

/// A parsed label selector. All requirements must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operator {
    Exists,
    DoesNotExist,
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    GreaterThan(i64),
    LessThan(i64),
}

impl LabelSelector {
    /// Returns true if the selector matches everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    pub(crate) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements
            .iter()
            .all(|r| r.matches(labels.get(&r.key).map(String::as_str)))
    }

    /// Parses a selector. The error is upstream's message.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let tokens = tokens(text)?;
        let mut parser = Parser {
            tokens: &tokens,
            at: 0,
        };
        let mut requirements = Vec::new();
        if !tokens.is_empty() {
            loop {
                let requirement = parser.requirement();
                requirements.push(
                    requirement.map_err(|why| format!("unable to parse requirement: {why}"))?,
                );
                match parser.next() {
                    None => break,
                    Some(Token::Comma) => {}
                    Some(other) => {
                        return Err(format!(
                            "found '{}', expected: ',' or 'end of string'",
                            other.text()
                        ));
                    }
                }
            }
        }
        Ok(Self { requirements })
    }
}

impl Requirement {
    fn matches(&self, value: Option<&str>) -> bool {
        match &self.operator {
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::In(values) => value.is_some_and(|v| values.contains(v)),
            Operator::NotIn(values) => value.is_none_or(|v| !values.contains(v)),
            Operator::GreaterThan(than) => value
                .and_then(|v| v.parse::<i64>().ok())
                .is_some_and(|v| v > *than),
            Operator::LessThan(than) => value
                .and_then(|v| v.parse::<i64>().ok())
                .is_some_and(|v| v < *than),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Comma,
    Open,
    Close,
    Not,
    Equals,
    NotEquals,
    Greater,
    Less,
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Self::Word(word) => word,
            Self::Comma => ",",
            Self::Open => "(",
            Self::Close => ")",
            Self::Not => "!",
            Self::Equals => "=",
            Self::NotEquals => "!=",
            Self::Greater => ">",
            Self::Less => "<",
        }
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.chars().peekable();
    while let Some(&c) = rest.peek() {
        if c.is_whitespace() {
            rest.next();
            continue;
        }
        let single = match c {
            ',' => Some(Token::Comma),
            '(' => Some(Token::Open),
            ')' => Some(Token::Close),
            '>' => Some(Token::Greater),
            '<' => Some(Token::Less),
            '=' => Some(Token::Equals),
            '!' => Some(Token::Not),
            _ => None,
        };
        if let Some(mut token) = single {
            rest.next();
            if rest.peek() == Some(&'=') {
                token = match token {
                    Token::Equals => Token::Equals,
                    Token::Not => Token::NotEquals,
                    other => {
                        return Err(format!("found '{}=', expected: identifier", other.text()));
                    }
                };
                rest.next();
            }
            tokens.push(token);
            continue;
        }
        let mut word = String::new();
        while let Some(&c) = rest.peek() {
            if c.is_whitespace() || ",()><=!".contains(c) {
                break;
            }
            word.push(c);
            rest.next();
        }
        tokens.push(Token::Word(word));
    }
    Ok(tokens)
}

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = self.peek() == Some(&Token::Not);
        if absent {
            self.at += 1;
        }
        let key = match self.next() {
            Some(Token::Word(word)) => word,
            other => {
                return Err(format!(
                    "found '{}', expected: identifier",
                    other.as_ref().map_or("", Token::text)
                ));
            }
        };
        if let Some(problem) = names::qualified_name(&key).first() {
            return Err(format!("<nil>: Invalid value: \"{key}\": {problem}"));
        }
        if absent {
            return Ok(Requirement {
                key,
                operator: Operator::DoesNotExist,
            });
        }
        let operator = self
            .operator()
            .map_err(|why| why.replace("values[0][]", &format!("values[0][{key}]")))?;
        Ok(Requirement { key, operator })
    }

    fn operator(&mut self) -> Result<Operator, String> {
        match self.peek() {
            None | Some(Token::Comma) => return Ok(Operator::Exists),
            _ => {}
        }
        match self.next() {
            Some(Token::Equals) => Ok(Operator::In(BTreeSet::from([self.value()?]))),
            Some(Token::NotEquals) => Ok(Operator::NotIn(BTreeSet::from([self.value()?]))),
            Some(Token::Greater) => Ok(Operator::GreaterThan(self.number()?)),
            Some(Token::Less) => Ok(Operator::LessThan(self.number()?)),
            Some(Token::Word(word)) if word == "in" => Ok(Operator::In(self.set()?)),
            Some(Token::Word(word)) if word == "notin" => Ok(Operator::NotIn(self.set()?)),
            other => Err(format!(
                "found '{}', expected: in, notin, =, ==, !=, gt, lt",
                other.as_ref().map_or("", Token::text)
            )),
        }
    }

    fn value(&mut self) -> Result<String, String> {
        let value = match self.peek() {
            None | Some(Token::Comma | Token::Close) => String::new(),
            Some(Token::Word(word)) => {
                let word = word.clone();
                self.at += 1;
                word
            }
            Some(other) => return Err(format!("found '{}', expected: identifier", other.text())),
        };
        match names::label_value(&value).first() {
            Some(problem) => Err(format!(
                "values[0][]: Invalid value: \"{value}\": {problem}"
            )),
            None => Ok(value),
        }
    }

    fn number(&mut self) -> Result<i64, String> {
        let value = self.value()?;
        value.parse().map_err(|_| {
            format!("values[0]: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, the value must be an integer")
        })
    }

    fn set(&mut self) -> Result<BTreeSet<String>, String> {
        match self.next() {
            Some(Token::Open) => {}
            other => {
                return Err(format!(
                    "found '{}' expected: '('",
                    other.as_ref().map_or("", Token::text)
                ));
            }
        }
        let mut values = BTreeSet::new();
        loop {
            values.insert(self.value()?);
            match self.next() {
                Some(Token::Comma) => {}
                Some(Token::Close) => return Ok(values),
                other => {
                    return Err(format!(
                        "found '{}', expected: ',', or ')'",
                        other.as_ref().map_or("", Token::text)
                    ));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
