//! Estimates the worst-case cost of an expression, as cel-go and Kubernetes do.
//!
//! The estimate decides which rules a CRD may have, so it follows upstream exactly, including the
//! places where it is generous or strict by accident.

mod calls;
mod kubernetes;
mod range;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use self::range::Range;
pub(crate) use self::range::{
    LIST_COST, MAP_COST, PER_CHAR, PER_REGEX_CHAR, STRUCT_COST, UNKNOWN, scale,
};
use crate::ast::{Ast, Expr, Fold, Id, Literal};
use crate::checker::Checked;
use crate::decl::Decl;
use crate::macros::ACCU;
use crate::types::Type;

/// The sizes of a container's keys and values.
#[derive(Debug, Clone, Copy)]
struct EntrySize {
    list: bool,
    key: Range,
    value: Range,
}

#[derive(Debug, Clone)]
struct Local {
    name: Arc<str>,
    path: Vec<String>,
    size: Option<Range>,
    entry: Option<EntrySize>,
}

/// Estimates the cost of a checked expression. `root` declares the variables' sizes.
pub(crate) fn estimate(ast: &Ast, checked: &Checked, root: Option<&Decl>) -> Range {
    let mut coster = Coster {
        ast,
        checked,
        root,
        paths: BTreeMap::new(),
        sizes: BTreeMap::new(),
        entries: BTreeMap::new(),
        locals: Vec::new(),
    };
    coster.cost(ast.root)
}

struct Coster<'a> {
    ast: &'a Ast,
    checked: &'a Checked,
    root: Option<&'a Decl>,
    paths: BTreeMap<Id, Vec<String>>,
    sizes: BTreeMap<Id, Range>,
    entries: BTreeMap<Id, EntrySize>,
    locals: Vec<Local>,
}

/// The cost of a call, and the size of its result.
pub(crate) struct CallCost {
    cost: Range,
    size: Option<Range>,
}

impl CallCost {
    fn of(cost: Range) -> Self {
        Self { cost, size: None }
    }

    fn sized(cost: Range, size: Range) -> Self {
        Self {
            cost,
            size: Some(size),
        }
    }
}

const ONE: Range = Range { min: 1, max: 1 };
const ZERO: Range = Range { min: 0, max: 0 };

impl Coster<'_> {
    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|local| &*local.name == name)
    }

    fn path(&self, id: Id) -> Vec<String> {
        if let Expr::Ident(name) = self.ast.expr(id)
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&id).cloned().unwrap_or_default()
    }

    fn below(&self, id: Id, name: &str) -> Vec<String> {
        let mut path = self.path(id);
        path.push(name.to_owned());
        path
    }

    /// Returns the declared size at a path. The first name is the variable.
    fn declared(&self, path: &[String]) -> Option<Range> {
        let (_, rest) = path.split_first()?;
        Some(Range {
            min: 0,
            max: self.root?.size_at(rest)?,
        })
    }

    fn size(&mut self, id: Id) -> Option<Range> {
        if let Some(known) = self.sizes.get(&id) {
            return Some(*known);
        }
        if let Some(size) = literal_size(self.ast.expr(id)) {
            return Some(size);
        }
        if let Some(size) = self.declared(&self.path(id)) {
            self.sizes.insert(id, size);
            return Some(size);
        }
        if self.checked.type_of(id).is_scalar() {
            return Some(ONE);
        }
        match self.ast.expr(id) {
            Expr::Ident(name) => self.local(name)?.size,
            _ => None,
        }
    }

    fn size_or_unknown(&mut self, id: Id) -> Range {
        self.size(id).unwrap_or(UNKNOWN)
    }

    fn entry(&self, id: Id) -> Option<EntrySize> {
        if let Some(known) = self.entries.get(&id) {
            return Some(*known);
        }
        match self.ast.expr(id) {
            Expr::Ident(name) => self.local(name)?.entry,
            _ => None,
        }
    }

    fn joined_entry(&self, a: Id, b: Id) -> Option<EntrySize> {
        let (a, b) = (self.entry(a)?, self.entry(b)?);
        Some(EntrySize {
            list: a.list,
            key: a.key.union(b.key),
            value: a.value.union(b.value),
        })
    }

    fn cost(&mut self, id: Id) -> Range {
        match self.ast.expr(id) {
            Expr::Literal(_) | Expr::Invalid => ZERO,
            Expr::Ident(name) => {
                let path = match self.local(name) {
                    Some(local) => local.path.clone(),
                    None => vec![name.to_string()],
                };
                self.paths.insert(id, path);
                ONE
            }
            Expr::Select {
                operand,
                test: true,
                ..
            } => self.cost(*operand),
            Expr::Select { operand, field, .. } => {
                let mut sum = self.cost(*operand);
                let ty = self.checked.type_of(*operand);
                if matches!(
                    ty,
                    Type::Map(..) | Type::Object(..) | Type::Struct(_) | Type::Param(_)
                ) {
                    sum = sum.plus(ONE);
                }
                let path = self.below(*operand, field);
                self.paths.insert(id, path);
                sum
            }
            Expr::Call {
                function,
                target,
                args,
            } => self.call(id, function, *target, args),
            Expr::List(items) => {
                let mut sum = ZERO;
                let mut size = Range {
                    min: if items.is_empty() { 0 } else { u64::MAX },
                    max: 0,
                };
                for &(item, _) in items {
                    sum = sum.plus(self.cost(item));
                    size = size.union(self.size_or_unknown(item));
                }
                self.entries.insert(
                    id,
                    EntrySize {
                        list: true,
                        key: ONE,
                        value: size,
                    },
                );
                sum.plus(Range::fixed(LIST_COST))
            }
            Expr::Map(entries) => {
                let mut sum = ZERO;
                let start = Range {
                    min: if entries.is_empty() { 0 } else { u64::MAX },
                    max: 0,
                };
                let (mut key, mut value) = (start, start);
                for entry in entries {
                    sum = sum.plus(self.cost(entry.key)).plus(self.cost(entry.value));
                    key = key.union(self.size_or_unknown(entry.key));
                    value = value.union(self.size_or_unknown(entry.value));
                }
                self.entries.insert(
                    id,
                    EntrySize {
                        list: false,
                        key,
                        value,
                    },
                );
                sum.plus(Range::fixed(MAP_COST))
            }
            Expr::Struct { fields, .. } => {
                let mut sum = ZERO;
                for field in fields {
                    sum = sum.plus(self.cost(field.value));
                }
                sum.plus(Range::fixed(STRUCT_COST))
            }
            Expr::Fold(fold) => self.fold(id, fold),
        }
    }

    /// Returns true for the expansion of `optMap` and `sortBy`: a binding without iteration.
    fn is_bind(&self, fold: &Fold) -> bool {
        matches!(self.ast.expr(fold.range), Expr::List(items) if items.is_empty())
            && matches!(
                self.ast.expr(fold.condition),
                Expr::Literal(Literal::Bool(false))
            )
            && &*fold.accu != ACCU
    }

    fn push_accu(&mut self, fold: &Fold) {
        let path = self.path(fold.init);
        let size = self.size(fold.init);
        let entry = self.entry(fold.init);
        self.locals.push(Local {
            name: fold.accu.clone(),
            path,
            size,
            entry,
        });
    }

    fn fold(&mut self, id: Id, fold: &Fold) -> Range {
        let mut sum = self.cost(fold.range).plus(self.cost(fold.init));
        self.push_accu(fold);
        if self.is_bind(fold) {
            sum = sum.plus(self.cost(fold.result));
            self.locals.pop();
            if let Some(size) = self.size(fold.result) {
                self.sizes.insert(id, size);
            }
            if let Some(entry) = self.entry(fold.result) {
                self.entries.insert(id, entry);
            }
            return sum;
        }
        let entry = self.entry(fold.range);
        let is_list = match entry {
            Some(entry) => entry.list,
            None => matches!(self.checked.type_of(fold.range), Type::List(_)),
        };
        let key_size = entry.map(|entry| entry.key);
        let value_size = entry.map(|entry| entry.value);
        let push = |coster: &mut Self, name: &Arc<str>, part: &str, size: Option<Range>| {
            let path = coster.below(fold.range, part);
            coster.locals.push(Local {
                name: name.clone(),
                path,
                size,
                entry: None,
            });
        };
        let locals = self.locals.len();
        if let Some(second) = &fold.var2 {
            push(
                self,
                &fold.var,
                if is_list { "@indices" } else { "@keys" },
                key_size,
            );
            push(
                self,
                second,
                if is_list { "@items" } else { "@values" },
                value_size,
            );
        } else if is_list {
            push(self, &fold.var, "@items", value_size);
        } else {
            push(self, &fold.var, "@keys", key_size);
        }
        let condition = self.cost(fold.condition);
        let step = self.cost(fold.step);
        self.locals.truncate(locals);
        sum = sum.plus(self.cost(fold.result));
        self.locals.pop();
        let count = self.size_or_unknown(fold.range);
        sum = sum.plus(count.times(step.plus(condition)));
        match self.ast.expr(fold.init) {
            Expr::Literal(_) => {
                if let Some(size) = self.size(fold.init) {
                    self.sizes.insert(id, size);
                }
            }
            Expr::List(_) | Expr::Map(_) => {
                self.sizes.insert(id, count);
                if let Some(entry) = self.entry(fold.step) {
                    self.entries.insert(id, entry);
                }
            }
            _ => {}
        }
        sum
    }

    fn call(&mut self, id: Id, function: &str, target: Option<Id>, args: &[Id]) -> Range {
        if function == "dyn" && args.len() == 1 {
            let cost = ONE.plus(self.cost(args[0]));
            if let Some(size) = self.size(args[0]) {
                self.sizes.insert(id, size);
            }
            if let Some(entry) = self.entry(args[0]) {
                self.entries.insert(id, entry);
            }
            return cost;
        }
        let mut costs = Vec::with_capacity(args.len());
        for &arg in args {
            costs.push(self.cost(arg));
            // Upstream computes and remembers sizes in this order.
            self.size(arg);
        }
        let overloads = self.checked.overloads(id);
        if overloads.is_empty() {
            return ZERO;
        }
        let mut sum = ZERO;
        if let Some(target) = target {
            sum = self.cost(target);
            self.size(target);
        }
        let mut total = Range {
            min: u64::MAX,
            max: 0,
        };
        let mut result: Option<Range> = None;
        for &overload in overloads {
            let call = self.function(id, function, overload, target, args, &costs);
            total = total.union(call.cost);
            if let Some(size) = call.size {
                result = Some(result.map_or(size, |known| known.union(size)));
            }
            let part = match overload {
                "index_list" => Some("@items"),
                "index_map" => Some("@values"),
                _ => None,
            };
            if let (Some(part), Some(&first)) = (part, args.first()) {
                result = self.entry(first).map(|entry| entry.value);
                let path = self.below(first, part);
                self.paths.insert(id, path);
            }
            if result.is_none() {
                result = self.size(id);
            }
        }
        if let Some(size) = result {
            self.sizes.insert(id, size);
        }
        sum.plus(total)
    }
}

fn literal_size(expr: &Expr) -> Option<Range> {
    let size = match expr {
        Expr::Literal(Literal::String(text)) => text.chars().count(),
        Expr::Literal(Literal::Bytes(bytes)) => bytes.len(),
        Expr::Literal(_) => 1,
        Expr::List(items) => items.len(),
        Expr::Map(entries) => entries.len(),
        _ => return None,
    };
    Some(Range::fixed(size as u64))
}
