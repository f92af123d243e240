//! Estimates the worst-case cost of an expression, as cel-go and Kubernetes do.
//!
//! The estimate decides which rules a CRD may have, so it follows upstream exactly, including the
//! places where it is generous or strict by accident.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ast::{Ast, Expr, Fold, Id, Literal};
use crate::checker::Checked;
use crate::decl::Decl;
use crate::macros::ACCU;
use crate::types::Type;

/// The cost of one character of a string that is read.
pub(crate) const PER_CHAR: f64 = 0.1;
/// The cost of one character of a regular expression.
pub(crate) const PER_REGEX_CHAR: f64 = 0.25;
pub(crate) const LIST_COST: u64 = 10;
pub(crate) const MAP_COST: u64 = 30;
pub(crate) const STRUCT_COST: u64 = 40;

/// A range: what something costs, or how large it is, at least and at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// At least.
    pub min: u64,
    /// At most.
    pub max: u64,
}

pub(crate) const UNKNOWN: Range = Range {
    min: 0,
    max: u64::MAX,
};

impl Range {
    pub(crate) fn fixed(value: u64) -> Self {
        Self {
            min: value,
            max: value,
        }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }

    pub(crate) fn times(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    pub(crate) fn factor(self, factor: f64) -> Self {
        Self {
            min: scale(self.min, factor),
            max: scale(self.max, factor),
        }
    }

    fn union(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

/// Multiplies and rounds up, without overflow.
pub(crate) fn scale(value: u64, factor: f64) -> u64 {
    let wide = value as f64;
    if wide > 0.0 && factor > 0.0 && wide > u64::MAX as f64 / factor {
        return u64::MAX;
    }
    // The cast saturates.
    (wide * factor).ceil() as u64
}

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

    /// Returns true for what `optMap` and `sortBy` expand to: a binding without iteration.
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

    fn function(
        &mut self,
        id: Id,
        function: &str,
        overload: &str,
        target: Option<Id>,
        args: &[Id],
        costs: &[Range],
    ) -> CallCost {
        let arguments = costs.iter().fold(ZERO, |sum, &cost| sum.plus(cost));
        let known = self.list_extension(overload, target, args);
        let known = known.or_else(|| self.kubernetes(function, overload, target, args));
        if let Some(call) = known {
            return CallCost {
                cost: call.cost.plus(arguments),
                size: call.size,
            };
        }
        let cost = |cost: Range| CallCost::of(cost.plus(arguments));
        match (overload, target, args) {
            ("string_format", Some(target), _) => {
                cost(self.size_or_unknown(target).factor(PER_CHAR))
            }
            ("string_to_bytes", _, &[arg]) => {
                let size = self.size_or_unknown(arg);
                let result = Range {
                    min: size.min,
                    max: size.max.wrapping_mul(4),
                };
                CallCost::sized(size.factor(PER_CHAR).plus(arguments), result)
            }
            ("bytes_to_string", _, &[arg]) => {
                let size = self.size_or_unknown(arg);
                let result = Range {
                    min: size.min / 4,
                    max: size.max,
                };
                CallCost::sized(size.factor(PER_CHAR).plus(arguments), result)
            }
            ("strings_quote", _, &[arg]) => {
                let size = self.size_or_unknown(arg);
                let max = size.max.wrapping_mul(2).wrapping_add(2);
                let result = Range {
                    min: size.min.wrapping_add(2),
                    max,
                };
                CallCost::sized(size.factor(PER_CHAR).plus(arguments), result)
            }
            ("starts_with_string" | "ends_with_string", _, &[arg]) => {
                cost(self.size_or_unknown(arg).factor(PER_CHAR))
            }
            ("in_list", _, &[_, list]) => cost(self.size_or_unknown(list).factor(1.0)),
            ("matches_string", Some(target), &[pattern]) => {
                let text = self.size_or_unknown(target).plus(ONE).factor(PER_CHAR);
                let regex = self.size_or_unknown(pattern).factor(PER_REGEX_CHAR);
                cost(text.times(regex))
            }
            ("contains_string", Some(target), &[part]) => {
                let text = self.size_or_unknown(target).factor(PER_CHAR);
                let part = self.size_or_unknown(part).factor(PER_CHAR);
                cost(text.times(part))
            }
            ("logical_or" | "logical_and", _, _) => {
                let (left, right) = (costs[0], costs[1]);
                CallCost::of(Range {
                    min: left.min,
                    max: left.plus(right).max,
                })
            }
            ("conditional", _, &[_, yes, no]) => {
                let size = self.size_or_unknown(yes).union(self.size_or_unknown(no));
                if let Some(entry) = self.joined_entry(yes, no) {
                    self.entries.insert(id, entry);
                }
                CallCost::sized(costs[0].plus(costs[1].union(costs[2])), size)
            }
            ("add_string" | "add_bytes" | "add_list", _, &[left, right]) => {
                let size = self.size_or_unknown(left).plus(self.size_or_unknown(right));
                if let Some(entry) = self.joined_entry(left, right) {
                    self.entries.insert(id, entry);
                }
                let base = if overload == "add_list" {
                    ONE
                } else {
                    size.factor(PER_CHAR)
                };
                CallCost::sized(base.plus(arguments), size)
            }
            (
                "less_string"
                | "greater_string"
                | "less_equals_string"
                | "greater_equals_string"
                | "less_bytes"
                | "greater_bytes"
                | "less_equals_bytes"
                | "greater_equals_bytes"
                | "equals"
                | "not_equals",
                _,
                &[left, right],
            ) => {
                let left = self.size_or_unknown(left);
                let max = left.max.min(self.size_or_unknown(right).max);
                cost(
                    Range {
                        min: u64::from(max > 0),
                        max,
                    }
                    .factor(PER_CHAR),
                )
            }
            _ => cost(ONE),
        }
    }

    fn literal_int(&self, id: Id, default: u64) -> u64 {
        match self.ast.expr(id) {
            Expr::Literal(Literal::Int(value)) => u64::try_from(*value).unwrap_or_default(),
            _ => default,
        }
    }

    /// The extension libraries for lists and sets.
    fn list_extension(
        &mut self,
        overload: &str,
        target: Option<Id>,
        args: &[Id],
    ) -> Option<CallCost> {
        let allocating = |factor: f64, size: Range| {
            let cost = size.factor(factor).plus(ONE).plus(Range::fixed(LIST_COST));
            Some(CallCost::sized(cost, size))
        };
        match (overload, target, args) {
            (
                "list_sets_contains_list"
                | "list_sets_intersects_list"
                | "list_sets_equivalent_list",
                _,
                &[a, b],
            ) => {
                let factor = if overload == "list_sets_equivalent_list" {
                    2.0
                } else {
                    1.0
                };
                let size = self.size_or_unknown(a).times(self.size_or_unknown(b));
                Some(CallCost::of(size.factor(factor).plus(ONE)))
            }
            ("list_slice", Some(target), &[start, end]) => {
                let size = self.size_or_unknown(target);
                let start = self.literal_int(start, 0);
                let end = self.literal_int(end, size.max);
                allocating(1.0, Range::fixed(end.wrapping_sub(start)))
            }
            ("list_flatten_int", Some(target), &[depth]) => {
                let size = self.size_or_unknown(target);
                allocating(self.literal_int(depth, u64::MAX) as f64, size)
            }
            ("lists_range", None, &[count]) => {
                allocating(1.0, Range::fixed(self.literal_int(count, u64::MAX)))
            }
            ("list_flatten" | "list_reverse", Some(target), &[]) => {
                let size = self.size_or_unknown(target);
                allocating(1.0, size)
            }
            ("list_distinct", Some(target), &[]) => {
                let size = self.size_or_unknown(target);
                allocating(2.0, size.times(size))
            }
            (overload, Some(target), args) => {
                let (item, keys) = match (overload.strip_prefix("list_")?.rsplit_once('_')?, args) {
                    ((item, "sort"), []) => (item, target),
                    ((item, "sortByAssociatedKeys"), &[keys]) => (item, keys),
                    _ => return None,
                };
                let size = self.size_or_unknown(keys);
                let text = matches!(item, "string" | "bytes");
                allocating(if text { 2.0 + PER_CHAR } else { 2.0 }, size.times(size))
            }
            _ => None,
        }
    }

    /// Returns the size of a list's items.
    fn item_size(&mut self, list: Id) -> Range {
        let path = self.path(list);
        // Upstream passes no path below accumulators, which have none that is declared.
        let known = !path.is_empty() && path[0] != ACCU;
        let mut path = if known { path } else { Vec::new() };
        if known {
            path.push("@items".to_owned());
        }
        self.declared(&path).unwrap_or(UNKNOWN)
    }

    /// Kubernetes' own libraries.
    fn kubernetes(
        &mut self,
        function: &str,
        overload: &str,
        target: Option<Id>,
        args: &[Id],
    ) -> Option<CallCost> {
        let fixed = |cost| Some(CallCost::of(Range::fixed(cost)));
        match (function, target, args) {
            ("check", ..) => fixed(350_000),
            (
                "serviceAccount"
                | "path"
                | "group"
                | "resource"
                | "subresource"
                | "namespace"
                | "name"
                | "allowed"
                | "reason"
                | "error"
                | "errored"
                | "masked"
                | "prefixLength"
                | "family"
                | "isUnspecified"
                | "isLoopback"
                | "isLinkLocalMulticast"
                | "isLinkLocalUnicast"
                | "isGlobalUnicast"
                | "format.named"
                | "sign"
                | "asInteger"
                | "isInteger"
                | "asApproximateFloat"
                | "isGreaterThan"
                | "isLessThan"
                | "compareTo"
                | "add"
                | "sub"
                | "major"
                | "minor"
                | "patch"
                | "getScheme"
                | "getHostname"
                | "getHost"
                | "getPort"
                | "getEscapedPath"
                | "getQuery",
                ..,
            ) => fixed(1),
            ("fieldSelector" | "labelSelector", _, &[selector]) => {
                let size = self.size_or_unknown(selector);
                let each = (LIST_COST + STRUCT_COST) as f64;
                let cost = Range::fixed(LIST_COST)
                    .plus(size.factor(PER_CHAR))
                    .plus(size.factor(0.5).factor(each));
                Some(CallCost::of(cost))
            }
            ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(target), _) => {
                let size = self.size_or_unknown(target);
                match self.checked.type_of(target) {
                    Type::List(item) => {
                        let mut each = ONE;
                        if matches!(**item, Type::String | Type::Bytes) {
                            each = each.plus(self.item_size(target).factor(PER_CHAR));
                        }
                        Some(CallCost::of(size.times(each)))
                    }
                    _ => Some(CallCost::of(size.factor(PER_CHAR))),
                }
            }
            ("url", _, &[arg]) => {
                let size = self.size_or_unknown(arg);
                Some(CallCost::sized(size.factor(PER_CHAR), size))
            }
            ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(target), _) => {
                let size = self.size_or_unknown(target);
                Some(CallCost::sized(size.factor(PER_CHAR), size))
            }
            ("replace", Some(target), &[old, new, ..]) => {
                let size = self.size_or_unknown(target);
                let result = replaced(size, self.size_or_unknown(old), self.size_or_unknown(new));
                Some(CallCost::sized(size.factor(2.0 * PER_CHAR), result))
            }
            ("split", Some(target), args) => {
                let size = self.size_or_unknown(target);
                let max = match args.get(1).map(|&limit| self.ast.expr(limit)) {
                    // Like upstream, a negative limit becomes a huge one.
                    Some(Expr::Literal(Literal::Int(limit))) => *limit as u64,
                    _ => size.max,
                };
                Some(CallCost::sized(
                    size.factor(2.0 * PER_CHAR),
                    Range { min: 0, max },
                ))
            }
            ("join", Some(target), args) => {
                let count = self.size_or_unknown(target);
                let mut size = ZERO;
                if matches!(self.checked.type_of(target), Type::List(_)) {
                    size = count.times(self.item_size(target));
                }
                if let Some(&separator) = args.first() {
                    let between = Range {
                        min: count.min.saturating_sub(1),
                        max: count.max.saturating_sub(1),
                    };
                    size = size.plus(self.size_or_unknown(separator).times(between));
                }
                Some(CallCost::sized(size.factor(PER_CHAR), size))
            }
            ("find" | "findAll", Some(target), &[pattern, ..]) => {
                let size = self.size_or_unknown(target);
                let regex = self.size_or_unknown(pattern).factor(PER_REGEX_CHAR);
                let cost = size.plus(ONE).factor(PER_CHAR).times(regex);
                Some(CallCost::sized(
                    cost,
                    Range {
                        min: 0,
                        max: size.max,
                    },
                ))
            }
            ("ip", ..) if overload == "cidr_ip" => fixed(1),
            (
                "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver"
                | "isSemver",
                _,
                &[arg, ..],
            ) => Some(CallCost::of(self.size_or_unknown(arg).factor(PER_CHAR))),
            ("ip.isCanonical", _, &[arg]) => Some(CallCost::of(
                self.size_or_unknown(arg).factor(2.0 * PER_CHAR),
            )),
            ("containsIP" | "containsCIDR", _, &[arg]) => {
                let bytes = Range { min: 4, max: 16 };
                let mut cost = bytes.plus(bytes).factor(PER_CHAR);
                if function == "containsCIDR" {
                    cost = cost.plus(bytes.factor(PER_CHAR)).plus(ONE);
                }
                if matches!(
                    overload,
                    "cidr_contains_ip_string" | "cidr_contains_cidr_string"
                ) {
                    cost = cost.plus(self.size_or_unknown(arg).factor(PER_CHAR));
                }
                Some(CallCost::of(cost))
            }
            ("validate", _, &[arg]) => {
                let cost = self.size_or_unknown(arg).factor(PER_CHAR);
                Some(CallCost::of(cost.factor(128.0 * PER_REGEX_CHAR)))
            }
            ("_==_", _, &[left, right]) => {
                let ty = self.checked.type_of(left);
                if !ty.same(self.checked.type_of(right)) {
                    return None;
                }
                match ty {
                    Type::Struct("kubernetes.NamedFormat") => {
                        Some(CallCost::of(Range { min: 1, max: 64 }.factor(PER_CHAR)))
                    }
                    Type::Struct("kubernetes.URL") => {
                        let size = self.size(right).unwrap_or(ONE);
                        Some(CallCost::of(
                            Range {
                                min: 1,
                                max: size.max,
                            }
                            .factor(PER_CHAR),
                        ))
                    }
                    Type::Opaque(_) | Type::Struct(_) => fixed(1),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

/// The size of a string after replacing.
fn replaced(size: Range, old: Range, new: Range) -> Range {
    let count = |size: u64, part: u64| (size as f64 / part as f64).ceil() as u64;
    let (longest, kept_max) = if old.min == 0 {
        (size.max.saturating_add(1), size.max)
    } else if new.max <= old.min {
        (0, size.max)
    } else {
        (count(size.max, old.min), 0)
    };
    let (shortest, kept_min) = if old.max == 0 {
        (size.min.saturating_add(1), size.min)
    } else if old.max <= new.min {
        (0, size.min)
    } else {
        (count(size.min, old.max), 0)
    };
    Range {
        min: shortest,
        max: longest,
    }
    .times(new)
    .plus(Range {
        min: kept_min,
        max: kept_max,
    })
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
