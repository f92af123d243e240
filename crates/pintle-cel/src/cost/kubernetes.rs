//! The cost of calls of Kubernetes' libraries.

use super::{CallCost, Coster, LIST_COST, ONE, PER_CHAR, PER_REGEX_CHAR, Range, STRUCT_COST, ZERO};
use crate::ast::{Expr, Id, Literal};
use crate::types::Type;

impl Coster<'_> {
    /// Returns the cost of a call of Kubernetes' own libraries, or `None` for other calls.
    pub(super) fn kubernetes(
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
            ("url" | "jsonpatch.escapeKey", _, &[arg]) => {
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

/// Returns the size of a string after replacing.
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
