//! Operators, in order of increasing precedence.

use super::{Parsed, Parser};
use crate::ast::Id;
use crate::lexer::Kind;

impl Parser<'_> {
    pub(super) fn expr(&mut self) -> Parsed {
        self.levels.expr += 1;
        self.level(self.levels.expr)?;
        let first = self.or()?;
        let id = match self.eat("?") {
            None => first,
            Some(at) => {
                let yes = self.or()?;
                if self.eat(":").is_none() {
                    self.unexpected("mismatched", "':'")?;
                    return Ok(first);
                }
                let no = self.expr()?;
                self.call("_?_:_", vec![first, yes, no], at)
            }
        };
        self.levels.expr -= 1;
        self.bounded(id)
    }

    pub(super) fn or(&mut self) -> Parsed {
        self.logic("||", "_||_", Self::and)
    }

    pub(super) fn and(&mut self) -> Parsed {
        self.logic("&&", "_&&_", Self::relation)
    }

    /// Parses operands joined by `symbol` into a balanced tree.
    pub(super) fn logic(
        &mut self,
        symbol: &str,
        function: &str,
        below: fn(&mut Self) -> Parsed,
    ) -> Parsed {
        let mut terms = vec![below(self)?];
        let mut places = Vec::new();
        while let Some(at) = self.eat(symbol) {
            places.push(at);
            terms.push(below(self)?);
        }
        if places.is_empty() {
            return Ok(terms[0]);
        }
        Ok(self.balance(function, &terms, &places, 0, places.len() - 1))
    }

    pub(super) fn balance(
        &mut self,
        function: &str,
        terms: &[Id],
        at: &[usize],
        lo: usize,
        hi: usize,
    ) -> Id {
        let middle = (lo + hi).div_ceil(2);
        let left = if middle == lo {
            terms[middle]
        } else {
            self.balance(function, terms, at, lo, middle - 1)
        };
        let right = if middle == hi {
            terms[middle + 1]
        } else {
            self.balance(function, terms, at, middle + 1, hi)
        };
        self.call(function, vec![left, right], at[middle])
    }

    pub(super) fn relation(&mut self) -> Parsed {
        let outer = self.levels.relation;
        self.levels.relation += 1;
        self.level(self.levels.relation)?;
        let mut left = self.calc(0)?;
        loop {
            let token = self.peek();
            let function = match (token.kind, token.text.as_str()) {
                (Kind::In, _) => "@in",
                (Kind::Symbol, "<") => "_<_",
                (Kind::Symbol, "<=") => "_<=_",
                (Kind::Symbol, ">=") => "_>=_",
                (Kind::Symbol, ">") => "_>_",
                (Kind::Symbol, "==") => "_==_",
                (Kind::Symbol, "!=") => "_!=_",
                _ => break,
            };
            let at = self.take().at;
            self.levels.relation += 1;
            self.level(self.levels.relation)?;
            let right = self.calc(0)?;
            left = self.call(function, vec![left, right], at);
        }
        self.levels.relation = outer;
        self.bounded(left)
    }

    /// Parses sums (`level` 0) or products (`level` 1).
    pub(super) fn calc(&mut self, level: usize) -> Parsed {
        let outer = self.levels.calc;
        self.levels.calc += usize::from(level == 0);
        self.level(self.levels.calc)?;
        let mut left = if level == 0 {
            self.calc(1)?
        } else {
            self.unary()?
        };
        loop {
            let token = self.peek();
            let symbol = if token.kind == Kind::Symbol {
                token.text.as_str()
            } else {
                ""
            };
            let function = match (level, symbol) {
                (0, "+") => "_+_",
                (0, "-") => "_-_",
                (1, "*") => "_*_",
                (1, "/") => "_/_",
                (1, "%") => "_%_",
                _ => break,
            };
            let at = self.take().at;
            self.levels.calc += 1;
            self.level(self.levels.calc)?;
            let right = if level == 0 {
                self.calc(1)?
            } else {
                self.unary()?
            };
            left = self.call(function, vec![left, right], at);
        }
        self.levels.calc = outer;
        self.bounded(left)
    }

    pub(super) fn unary(&mut self) -> Parsed {
        for (symbol, function) in [("!", "!_"), ("-", "-_")] {
            if !self.is(symbol) {
                continue;
            }
            // A single minus before a number belongs to the literal.
            let next = self
                .tokens
                .get(self.next + 1)
                .map_or(Kind::End, |token| token.kind);
            if symbol == "-" && matches!(next, Kind::Int | Kind::Float) {
                let at = self.take().at;
                let first = self.number(Some(at));
                return self.member(first);
            }
            let at = self.take().at;
            let mut count = 1;
            while self.eat(symbol).is_some() {
                count += 1;
            }
            if symbol == "-" && self.peek().kind == Kind::End {
                let at = self.peek().at;
                self.syntax(at, "no viable alternative at input '-'")?;
                self.recovering = false;
            }
            let operand = self.primary()?;
            let operand = self.member(operand)?;
            return Ok(if count % 2 == 0 {
                operand
            } else {
                self.call(function, vec![operand], at)
            });
        }
        let first = self.primary()?;
        self.member(first)
    }
}
