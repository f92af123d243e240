//! The cost of calls: operators, the standard library and the extensions for lists.

use super::{CallCost, Coster, LIST_COST, ONE, PER_CHAR, PER_REGEX_CHAR, Range, UNKNOWN, ZERO};
use crate::ast::{Expr, Id, Literal};
use crate::macros::ACCU;

impl Coster<'_> {
    pub(super) fn function(
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

    pub(super) fn literal_int(&self, id: Id, default: u64) -> u64 {
        match self.ast.expr(id) {
            Expr::Literal(Literal::Int(value)) => u64::try_from(*value).unwrap_or_default(),
            _ => default,
        }
    }

    /// Returns the cost of a call of the extension libraries for lists and sets, or `None` for
    /// other calls.
    pub(super) fn list_extension(
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
    pub(super) fn item_size(&mut self, list: Id) -> Range {
        let path = self.path(list);
        // As upstream, values below an accumulator have no path, because no schema declares them.
        let known = !path.is_empty() && path[0] != ACCU;
        let mut path = if known { path } else { Vec::new() };
        if known {
            path.push("@items".to_owned());
        }
        self.declared(&path).unwrap_or(UNKNOWN)
    }
}
