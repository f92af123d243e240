//! Parses tokens into a syntax tree, within cel-go's limits on size and nesting.
//!
//! Syntax errors use ANTLR's wording, because Kubernetes passes it on to users. After an error the
//! parser continues as long as that can find further errors that ANTLR would report too.

use std::sync::Arc;

use crate::ast::{Ast, Entry, Expr, Field, Id, Literal, MAX_NODES};
use crate::lexer::{self, Kind, Token};
use crate::macros;
use crate::source::Errors;

/// The longest expression, in code points.
const MAX_SIZE: usize = 100_000;

/// The deepest nesting of one grammar rule, and of the tree.
const MAX_DEPTH: usize = 250;

/// The maximum number of syntax errors after which parsing stops.
const MAX_SYNTAX_ERRORS: usize = 30;

const PRIMARY: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, \
                       NUM_UINT, STRING, BYTES, IDENTIFIER}";
const MAP_START: &str = "{'[', '{', '}', '(', '.', ',', '-', '!', '?', 'true', 'false', 'null', \
                         NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";

const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Parsing stopped: the error is reported already.
#[derive(Debug)]
pub(crate) struct Stop;

type Parsed = Result<Id, Stop>;

/// Parses an expression. The tree is only complete if no error was reported.
pub(crate) fn parse(source: &str, errors: &mut Errors) -> Ast {
    let size = source.chars().count();
    if size > MAX_SIZE {
        errors.report(
            None,
            format!("expression code point size exceeds limit: size: {size}, limit {MAX_SIZE}"),
        );
        return Ast::default();
    }
    let tokens = lexer::tokens(source, errors);
    let mut parser = Parser {
        tokens,
        next: 0,
        ast: Ast::default(),
        depths: Vec::new(),
        levels: Levels::default(),
        errors,
        recovering: false,
        syntax_errors: 0,
    };
    if let Ok(root) = parser.start() {
        parser.ast.root = root;
    }
    parser.ast
}

/// The current nesting of each recursive rule.
#[derive(Default)]
struct Levels {
    expr: usize,
    relation: usize,
    calc: usize,
    member: usize,
}

pub(crate) struct Parser<'e> {
    tokens: Vec<Token>,
    next: usize,
    pub(crate) ast: Ast,
    /// The depth of each node.
    depths: Vec<usize>,
    levels: Levels,
    errors: &'e mut Errors,
    recovering: bool,
    syntax_errors: usize,
}

impl Parser<'_> {
    fn start(&mut self) -> Parsed {
        let root = self.expr()?;
        if self.peek().kind != Kind::End {
            let last = self
                .tokens
                .get(self.next + 1)
                .is_some_and(|t| t.kind == Kind::End);
            self.unexpected(if last { "extraneous" } else { "mismatched" }, "<EOF>")?;
        }
        Ok(root)
    }

    fn peek(&self) -> &Token {
        // The last token is `End`, and is never consumed.
        &self.tokens[self.next.min(self.tokens.len() - 1)]
    }

    fn is(&self, symbol: &str) -> bool {
        self.peek().is(symbol)
    }

    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        if token.kind != Kind::End {
            self.next += 1;
        }
        self.recovering = false;
        token
    }

    fn eat(&mut self, symbol: &str) -> Option<usize> {
        self.is(symbol).then(|| self.take().at)
    }

    /// Reports the current token, unless an error was just reported.
    fn unexpected(&mut self, what: &str, expecting: &str) -> Result<(), Stop> {
        let token = self.peek();
        let message = format!("{what} input '{}' expecting {expecting}", token.shown());
        let at = token.at;
        self.syntax(at, &message)
    }

    fn syntax(&mut self, at: usize, message: &str) -> Result<(), Stop> {
        if !self.recovering {
            self.errors
                .report(Some(at), format!("Syntax error: {message}"));
            self.syntax_errors += 1;
        }
        self.recovering = true;
        if self.syntax_errors > MAX_SYNTAX_ERRORS {
            Err(Stop)
        } else {
            Ok(())
        }
    }

    /// Reports an error that is not about syntax.
    pub(crate) fn error(&mut self, at: usize, message: &str) -> Id {
        self.errors.report(Some(at), message);
        self.add(Expr::Invalid, at)
    }

    /// Consumes a closing symbol.
    fn close(&mut self, symbol: &str, expecting: &str) -> Result<(), Stop> {
        if self.eat(symbol).is_some() {
            return Ok(());
        }
        let after = self
            .tokens
            .get(self.next + 1)
            .is_some_and(|token| token.is(symbol));
        if after {
            self.unexpected("extraneous", expecting)?;
            self.take();
            self.take();
            return Ok(());
        }
        let token = self.peek();
        let closes = token.kind == Kind::End
            || [")", "]", "}", ",", ":", "."]
                .iter()
                .any(|symbol| token.is(symbol));
        if closes {
            let (at, shown) = (token.at, token.shown());
            return self.syntax(at, &format!("missing '{symbol}' at '{shown}'"));
        }
        self.unexpected("mismatched", expecting)
    }

    pub(crate) fn add(&mut self, expr: Expr, at: usize) -> Id {
        let below = |id: &Id| self.depths.get(*id as usize).copied().unwrap_or_default();
        let deepest = |ids: &[Id]| ids.iter().map(below).max().unwrap_or_default();
        let depth = match &expr {
            Expr::Literal(_) | Expr::Ident(_) | Expr::Invalid => 0,
            Expr::Select { operand, .. } => below(operand),
            Expr::Call { target, args, .. } => deepest(args).max(target.as_ref().map_or(0, below)),
            Expr::List(items) => items
                .iter()
                .map(|(id, _)| below(id))
                .max()
                .unwrap_or_default(),
            Expr::Map(entries) => {
                let both = entries.iter().map(|e| below(&e.key).max(below(&e.value)));
                both.max().unwrap_or_default()
            }
            Expr::Struct { fields, .. } => fields
                .iter()
                .map(|f| below(&f.value))
                .max()
                .unwrap_or_default(),
            Expr::Fold(fold) => deepest(&[
                fold.range,
                fold.init,
                fold.condition,
                fold.step,
                fold.result,
            ]),
        };
        self.depths.push(depth + 1);
        self.ast.add(expr, at)
    }

    /// Stops if the tree is too deep or too large.
    fn bounded(&mut self, id: Id) -> Parsed {
        let depth = self.depths.get(id as usize).copied().unwrap_or_default();
        // Macros and logical operators add levels that cel-go does not count.
        if depth > 6 * MAX_DEPTH {
            self.errors.report(None, "max recursion depth exceeded");
            return Err(Stop);
        }
        if self.ast.len() > MAX_NODES {
            self.errors.report(None, "expression is too large");
            return Err(Stop);
        }
        Ok(id)
    }

    fn level(&mut self, level: usize) -> Result<(), Stop> {
        if level > MAX_DEPTH {
            let message = format!("expression recursion limit exceeded: {MAX_DEPTH}");
            self.errors.report(None, message);
            return Err(Stop);
        }
        Ok(())
    }

    pub(crate) fn call(&mut self, function: &str, args: Vec<Id>, at: usize) -> Id {
        self.add(
            Expr::Call {
                function: function.into(),
                target: None,
                args,
            },
            at,
        )
    }

    fn expr(&mut self) -> Parsed {
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

    fn or(&mut self) -> Parsed {
        self.logic("||", "_||_", Self::and)
    }

    fn and(&mut self) -> Parsed {
        self.logic("&&", "_&&_", Self::relation)
    }

    /// Parses operands joined by `symbol` into a balanced tree.
    fn logic(&mut self, symbol: &str, function: &str, below: fn(&mut Self) -> Parsed) -> Parsed {
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

    fn balance(&mut self, function: &str, terms: &[Id], at: &[usize], lo: usize, hi: usize) -> Id {
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

    fn relation(&mut self) -> Parsed {
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
    fn calc(&mut self, level: usize) -> Parsed {
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

    fn unary(&mut self) -> Parsed {
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

    /// Parses selections, calls and indices that follow a primary expression.
    fn member(&mut self, first: Id) -> Parsed {
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

    fn selection(&mut self, operand: Id, dot: usize) -> Parsed {
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

    fn arguments(&mut self) -> Result<Vec<Id>, Stop> {
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

    fn starts_primary(token: &Token) -> bool {
        match token.kind {
            Kind::In | Kind::End | Kind::EscapedIdent => false,
            Kind::Symbol => matches!(token.text.as_str(), "[" | "{" | "(" | "." | "-" | "!"),
            _ => true,
        }
    }

    fn primary(&mut self) -> Parsed {
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

    fn primary_here(&mut self) -> Parsed {
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

    fn number(&mut self, minus: Option<usize>) -> Id {
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
    fn name(&mut self, dot: &str) -> Parsed {
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
    fn message_name(&self) -> Option<(usize, usize)> {
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

    fn message(&mut self, name: &str, at: usize) -> Parsed {
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

    /// Consumes a comma that another item follows.
    fn more(&mut self, closing: &str) -> bool {
        let last = self
            .tokens
            .get(self.next + 1)
            .is_some_and(|token| token.is(closing));
        self.is(",") && !last && self.eat(",").is_some()
    }

    fn list(&mut self) -> Parsed {
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

    fn map(&mut self) -> Parsed {
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

    /// Copies a subtree. Stops when the tree would become too large.
    pub(crate) fn copy(&mut self, id: Id) -> Parsed {
        self.bounded(id)?;
        let at = self.ast.at(id);
        let expr = match self.ast.expr(id).clone() {
            Expr::Select {
                operand,
                field,
                test,
            } => Expr::Select {
                operand: self.copy(operand)?,
                field,
                test,
            },
            Expr::Call {
                function,
                target,
                args,
            } => {
                let target = target.map(|target| self.copy(target)).transpose()?;
                let args = args.into_iter().map(|arg| self.copy(arg));
                let args = args.collect::<Result<_, Stop>>()?;
                Expr::Call {
                    function,
                    target,
                    args,
                }
            }
            Expr::List(items) => {
                let items = items.into_iter().map(|(item, o)| Ok((self.copy(item)?, o)));
                Expr::List(items.collect::<Result<_, Stop>>()?)
            }
            Expr::Map(entries) => {
                let mut copied = Vec::with_capacity(entries.len());
                for Entry {
                    key,
                    value,
                    optional,
                } in entries
                {
                    let (key, value) = (self.copy(key)?, self.copy(value)?);
                    copied.push(Entry {
                        key,
                        value,
                        optional,
                    });
                }
                Expr::Map(copied)
            }
            Expr::Struct { name, mut fields } => {
                for field in &mut fields {
                    field.value = self.copy(field.value)?;
                }
                Expr::Struct { name, fields }
            }
            Expr::Fold(mut fold) => {
                fold.range = self.copy(fold.range)?;
                fold.init = self.copy(fold.init)?;
                fold.condition = self.copy(fold.condition)?;
                fold.step = self.copy(fold.step)?;
                fold.result = self.copy(fold.result)?;
                Expr::Fold(fold)
            }
            leaf => leaf,
        };
        Ok(self.add(expr, at))
    }
}
