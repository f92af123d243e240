//! The syntax tree: an arena of nodes that refer to each other by index.

use std::sync::Arc;

/// The index of a node.
pub(crate) type Id = u32;

/// A literal.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
}

/// An expression.
#[derive(Debug, Clone)]
pub(crate) enum Expr {
    Literal(Literal),
    Ident(Arc<str>),
    /// `operand.field`, or `has(operand.field)`.
    Select {
        operand: Id,
        field: Arc<str>,
        test: bool,
    },
    Call {
        function: Arc<str>,
        target: Option<Id>,
        args: Vec<Id>,
    },
    /// Items, and which of them are optional.
    List(Vec<(Id, bool)>),
    Map(Vec<Entry>),
    Struct {
        name: Arc<str>,
        fields: Vec<Field>,
    },
    Fold(Box<Fold>),
    /// Stands for an expression that has a syntax error.
    Invalid,
}

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) key: Id,
    pub(crate) value: Id,
    pub(crate) optional: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub(crate) name: Arc<str>,
    pub(crate) value: Id,
    pub(crate) optional: bool,
    /// The code point of the colon, at which errors about the field are reported.
    pub(crate) at: usize,
}

/// A comprehension: the expansion of macros such as `all` and `map`.
#[derive(Debug, Clone)]
pub(crate) struct Fold {
    pub(crate) range: Id,
    pub(crate) var: Arc<str>,
    pub(crate) var2: Option<Arc<str>>,
    pub(crate) accu: Arc<str>,
    pub(crate) init: Id,
    pub(crate) condition: Id,
    pub(crate) step: Id,
    pub(crate) result: Id,
}

/// All nodes of an expression. The parser limits their depth, so walks may recurse.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ast {
    nodes: Vec<(Expr, usize)>,
    pub(crate) root: Id,
}

/// The maximum number of nodes. Macros that copy their target could otherwise grow exponentially.
pub(crate) const MAX_NODES: usize = 400_000;

impl Ast {
    /// Adds a node at a code point.
    pub(crate) fn add(&mut self, expr: Expr, at: usize) -> Id {
        self.nodes.push((expr, at));
        Id::try_from(self.nodes.len() - 1).unwrap_or(Id::MAX)
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn expr(&self, id: Id) -> &Expr {
        static INVALID: Expr = Expr::Invalid;
        self.nodes.get(id as usize).map_or(&INVALID, |node| &node.0)
    }

    pub(crate) fn at(&self, id: Id) -> usize {
        self.nodes.get(id as usize).map_or(0, |node| node.1)
    }

    pub(crate) fn replace(&mut self, id: Id, expr: Expr) {
        if let Some(node) = self.nodes.get_mut(id as usize) {
            node.0 = expr;
        }
    }

    /// Returns `a.b.c` for an identifier or a chain of selections.
    pub(crate) fn qualified_name(&self, id: Id) -> Option<String> {
        match self.expr(id) {
            Expr::Ident(name) => Some(name.to_string()),
            Expr::Select {
                operand,
                field,
                test: false,
            } => {
                let mut name = self.qualified_name(*operand)?;
                name.push('.');
                name.push_str(field);
                Some(name)
            }
            _ => None,
        }
    }

    pub(crate) fn literal_string(&self, id: Id) -> Option<&Arc<str>> {
        match self.expr(id) {
            Expr::Literal(Literal::String(text)) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn literal_int(&self, id: Id) -> Option<i64> {
        match self.expr(id) {
            Expr::Literal(Literal::Int(number)) => Some(*number),
            _ => None,
        }
    }
}
