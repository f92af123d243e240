//! Parses tokens into a syntax tree, within cel-go's limits on size and nesting.
//!
//! Syntax errors use ANTLR's wording, because Kubernetes passes it on to users. After an error the
//! parser continues as long as that can find further errors that ANTLR would report too.

mod operators;
mod primary;

use crate::ast::{Ast, Entry, Expr, Id, MAX_NODES};
use crate::lexer::{self, Kind, Token};
use crate::source::Errors;

/// The longest expression, in code points.
const MAX_SIZE: usize = 100_000;

/// The deepest nesting of one grammar rule. The tree may be six times as deep.
const MAX_DEPTH: usize = 250;

/// The number of syntax errors after which parsing stops.
const MAX_SYNTAX_ERRORS: usize = 30;

const PRIMARY: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, \
                       NUM_UINT, STRING, BYTES, IDENTIFIER}";
const MAP_START: &str = "{'[', '{', '}', '(', '.', ',', '-', '!', '?', 'true', 'false', 'null', \
                         NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";

/// Words that are reserved for future use, besides the literals and `in`.
pub(crate) const RESERVED: [&str; 17] = [
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

/// Parsing stopped. The error has already been reported.
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
