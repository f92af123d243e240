//! Primary expressions, the operands of operators: names, literals, members and calls, lists, maps
//! and messages.

use std::sync::Arc;

use super::{MAP_START, PRIMARY, Parsed, Parser, RESERVED, Stop};
use crate::ast::{Entry, Expr, Field, Id, Literal};
use crate::lexer::{self, Kind, Token};
use crate::macros;

impl Parser<'_> {
    /// Parses selections, calls and indices that follow a primary expression.
    pub(super) fn member(&mut self, first: Id) -> Parsed {
        let outer = self.levels.member;
        self.levels.member += 1;
        self.level(self.levels.member)?;
        let mut left = first;
        loop {
            if let Some(at) = self.eat(".") {
                left = self.selection(left, at)?;
            } else if let Some(at) = self.eat("[") {
                let optional = self.eat("?").is_some();
                let index = self.expr()?;
                self.close("]", "']'")?;
                let function = if optional { "_[?_]" } else { "_[_]" };
                left = self.call(function, vec![left, index], at);
            } else {
                break;
            }
            self.levels.member += 1;
            self.level(self.levels.member)?;
            self.bounded(left)?;
        }
        self.levels.member = outer;
        Ok(left)
    }

    pub(super) fn selection(&mut self, operand: Id, dot: usize) -> Parsed {
        let optional = self.eat("?").is_some();
        let token = self.peek().clone();
        match token.kind {
            Kind::Ident => {}
            Kind::EscapedIdent => {
                self.take();
                return Ok(self.error(token.at, "unsupported syntax: '`'"));
            }
            Kind::True | Kind::False | Kind::Null => {
                let message = format!("mismatched input '{}' expecting IDENTIFIER", token.text);
                self.syntax(token.at, &message)?;
                self.take();
                return Ok(self.add(Expr::Invalid, token.at));
            }
            _ => {
                let shown = if token.kind == Kind::End {
                    String::new()
                } else {
                    token.shown()
                };
                self.syntax(
                    token.at,
                    &format!("no viable alternative at input '.{shown}'"),
                )?;
                return Ok(self.add(Expr::Invalid, token.at));
            }
        }
        self.take();
        if let (false, Some(at)) = (optional, self.eat("(")) {
            let args = self.arguments()?;
            return macros::receiver(self, &token.text, operand, args, at);
        }
        if optional {
            let text: Arc<str> = token.text.as_str().into();
            let field = self.add(Expr::Literal(Literal::String(text)), token.at);
            return Ok(self.call("_?._", vec![operand, field], dot));
        }
        let field = token.text.as_str().into();
        Ok(self.add(
            Expr::Select {
                operand,
                field,
                test: false,
            },
            dot,
        ))
    }

    pub(super) fn arguments(&mut self) -> Result<Vec<Id>, Stop> {
        let mut args = Vec::new();
        if self.eat(")").is_some() {
            return Ok(args);
        }
        loop {
            args.push(self.expr()?);
            if self.eat(",").is_none() {
                break;
            }
        }
        self.close(")", "{')', ','}")?;
        Ok(args)
    }

    pub(super) fn starts_primary(token: &Token) -> bool {
        match token.kind {
            Kind::In | Kind::End | Kind::EscapedIdent => false,
            Kind::Symbol => matches!(token.text.as_str(), "[" | "{" | "(" | "." | "-" | "!"),
            _ => true,
        }
    }

    pub(super) fn primary(&mut self) -> Parsed {
        let token = self.peek().clone();
        if !Self::starts_primary(&token) || token.is("-") || token.is("!") {
            let after = self
                .tokens
                .get(self.next + 1)
                .is_some_and(Self::starts_primary);
            if after && token.kind != Kind::End && !token.is(")") && !token.is("]") {
                self.unexpected("extraneous", PRIMARY)?;
                self.take();
                return self.primary_here();
            }
            self.unexpected("mismatched", PRIMARY)?;
            return Ok(self.add(Expr::Invalid, token.at));
        }
        self.primary_here()
    }

    pub(super) fn primary_here(&mut self) -> Parsed {
        let token = self.peek().clone();
        let at = token.at;
        match token.kind {
            Kind::Int | Kind::Float | Kind::Uint => Ok(self.number(None)),
            Kind::String => {
                self.take();
                Ok(match lexer::unquote(&token.text, false) {
                    Ok(bytes) => {
                        let text: Arc<str> = String::from_utf8_lossy(&bytes).into();
                        self.add(Expr::Literal(Literal::String(text)), at)
                    }
                    Err(why) => self.error(at, why),
                })
            }
            Kind::Bytes => {
                self.take();
                Ok(match lexer::unquote(&token.text[1..], true) {
                    Ok(bytes) => self.add(Expr::Literal(Literal::Bytes(bytes.into())), at),
                    Err(why) => self.error(at, why),
                })
            }
            Kind::True | Kind::False => {
                self.take();
                let value = token.kind == Kind::True;
                Ok(self.add(Expr::Literal(Literal::Bool(value)), at))
            }
            Kind::Null => {
                self.take();
                Ok(self.add(Expr::Literal(Literal::Null), at))
            }
            Kind::Ident => self.name(""),
            Kind::Symbol => match token.text.as_str() {
                "(" => {
                    self.take();
                    let inner = self.expr()?;
                    self.close(")", "')'")?;
                    Ok(inner)
                }
                "[" => self.list(),
                "{" => self.map(),
                "." => {
                    self.take();
                    if self.peek().kind == Kind::Ident {
                        return self.name(".");
                    }
                    let shown = self.peek().shown();
                    let here = self.peek().at;
                    self.syntax(here, &format!("no viable alternative at input '.{shown}'"))?;
                    Ok(self.add(Expr::Invalid, at))
                }
                _ => self.primary(),
            },
            Kind::In | Kind::End | Kind::EscapedIdent => {
                self.unexpected("mismatched", PRIMARY)?;
                Ok(self.add(Expr::Invalid, at))
            }
        }
    }

    pub(super) fn number(&mut self, minus: Option<usize>) -> Id {
        let token = self.take();
        let at = minus.unwrap_or(token.at);
        let sign = if minus.is_some() { "-" } else { "" };
        let text = token.text.trim_end_matches(['u', 'U']);
        let (radix, digits) = match text.strip_prefix("0x") {
            Some(digits) => (16, digits),
            None => (10, text),
        };
        let literal = match token.kind {
            Kind::Uint => match u64::from_str_radix(digits, radix) {
                Ok(value) => Literal::Uint(value),
                Err(_) => return self.error(at, "invalid uint literal"),
            },
            Kind::Int => match i64::from_str_radix(&format!("{sign}{digits}"), radix) {
                Ok(value) => Literal::Int(value),
                Err(_) => return self.error(at, "invalid int literal"),
            },
            _ => match format!("{sign}{text}").parse::<f64>() {
                Ok(value) if value.is_finite() => Literal::Double(value),
                _ => return self.error(at, "invalid double literal"),
            },
        };
        self.add(Expr::Literal(literal), at)
    }

    /// Parses an identifier, a call of a function, or a message literal.
    pub(super) fn name(&mut self, dot: &str) -> Parsed {
        let token = self.take();
        if let Some((names, brace)) = self.message_name() {
            for _ in 0..names {
                self.take();
                self.take();
            }
            self.take();
            let end = self.next - 1;
            let start = end - 1 - 2 * names;
            let parts = self.tokens[start..end]
                .iter()
                .map(|token| token.text.as_str());
            let name: String = std::iter::once(dot).chain(parts).collect();
            return self.message(&name, brace);
        }
        let reserved = RESERVED.contains(&token.text.as_str());
        let opening = self.eat("(");
        if reserved {
            if opening.is_some() {
                self.arguments()?;
            }
            return Ok(self.error(token.at, &format!("reserved identifier: {}", token.text)));
        }
        let name = format!("{dot}{}", token.text);
        match opening {
            Some(at) => {
                let args = self.arguments()?;
                Ok(macros::global(self, &name, args, at))
            }
            None => Ok(self.add(Expr::Ident(name.as_str().into()), token.at)),
        }
    }

    /// Returns how many `.name` follow before an opening brace, and where that is.
    pub(super) fn message_name(&self) -> Option<(usize, usize)> {
        let mut names = 0;
        loop {
            let token = self.tokens.get(self.next + 2 * names)?;
            if token.is("{") {
                return Some((names, token.at));
            }
            let field = self.tokens.get(self.next + 2 * names + 1)?;
            if !token.is(".") || field.kind != Kind::Ident {
                return None;
            }
            names += 1;
        }
    }

    pub(super) fn message(&mut self, name: &str, at: usize) -> Parsed {
        let mut fields = Vec::new();
        while !self.is("}") && !self.is(",") {
            let optional = self.eat("?").is_some();
            let token = self.peek().clone();
            if token.kind != Kind::Ident {
                let next = self
                    .tokens
                    .get(self.next + 1)
                    .is_some_and(|t| t.kind == Kind::Ident);
                let expecting = if optional {
                    "{IDENTIFIER, ESC_IDENTIFIER}"
                } else {
                    "{'}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}"
                };
                self.unexpected(if next { "extraneous" } else { "mismatched" }, expecting)?;
                if !next {
                    return Err(Stop);
                }
                self.take();
            }
            let name = self.take().text.as_str().into();
            let at = self.peek().at;
            if self.eat(":").is_none() {
                self.unexpected("mismatched", "':'")?;
                break;
            }
            fields.push(Field {
                name,
                value: self.expr()?,
                optional,
                at,
            });
            if !self.more("}") {
                break;
            }
        }
        self.eat(",");
        self.close("}", "{'}', ','}")?;
        Ok(self.add(
            Expr::Struct {
                name: name.into(),
                fields,
            },
            at,
        ))
    }

    /// Consumes a comma if another item follows it. Returns whether it did.
    pub(super) fn more(&mut self, closing: &str) -> bool {
        let last = self
            .tokens
            .get(self.next + 1)
            .is_some_and(|token| token.is(closing));
        self.is(",") && !last && self.eat(",").is_some()
    }

    pub(super) fn list(&mut self) -> Parsed {
        let at = self.take().at;
        let mut items = Vec::new();
        while !self.is("]") && !self.is(",") {
            let optional = self.eat("?").is_some();
            items.push((self.expr()?, optional));
            if !self.more("]") {
                break;
            }
        }
        self.eat(",");
        self.close("]", "{']', ','}")?;
        let id = self.add(Expr::List(items), at);
        self.bounded(id)
    }

    pub(super) fn map(&mut self) -> Parsed {
        let at = self.take().at;
        let mut entries = Vec::new();
        while !self.is("}") && !self.is(",") {
            let optional = self.eat("?").is_some();
            if entries.is_empty() && !optional && !Self::starts_primary(self.peek()) {
                let next = self
                    .tokens
                    .get(self.next + 1)
                    .is_some_and(Self::starts_primary);
                self.unexpected(if next { "extraneous" } else { "mismatched" }, MAP_START)?;
                if !next {
                    return Err(Stop);
                }
                self.take();
            }
            let key = self.expr()?;
            if self.eat(":").is_none() {
                self.unexpected("mismatched", "':'")?;
                break;
            }
            let value = self.expr()?;
            entries.push(Entry {
                key,
                value,
                optional,
            });
            if !self.more("}") {
                break;
            }
        }
        self.eat(",");
        self.close("}", "{'}', ','}")?;
        let id = self.add(Expr::Map(entries), at);
        self.bounded(id)
    }
}
