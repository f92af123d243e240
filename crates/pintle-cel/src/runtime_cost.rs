//! The cost of calls at run time, as cel-go and Kubernetes count it.

use crate::cost::{LIST_COST, PER_CHAR, PER_REGEX_CHAR, STRUCT_COST, scale};
use crate::value::{Library, Value};

/// How the cost of a call is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallKind {
    Fixed(u64),
    /// Reads the first argument.
    Reads,
    /// Reads the first argument and builds a result.
    ReadsTwice,
    /// The number of items in the second argument.
    InList,
    /// Reads the smaller of two arguments.
    Smaller,
    /// Reads both arguments.
    Both,
    Regex,
    Contains,
    Equality,
    Traversal,
    Selector,
    ContainsIp {
        parses: bool,
        cidr: bool,
    },
    Validate,
    /// All pairs of items of two lists, some number of times.
    Pairs(u64),
    Flatten,
    /// All pairs of items of one list, given by its argument.
    SelfCompare(usize),
    /// Depends on the result: joined strings.
    Joined,
    /// Depends on the result: a new list.
    NewList,
}

/// Returns how a call is charged.
pub(crate) fn kind(function: &str, overload: &str) -> CallKind {
    match function {
        "check" => return CallKind::Fixed(350_000),
        "ip" if overload == "cidr_ip" => return CallKind::Fixed(1),
        "fieldSelector" | "labelSelector" => return CallKind::Selector,
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
            return CallKind::Traversal;
        }
        "ip"
        | "url"
        | "lowerAscii"
        | "upperAscii"
        | "substring"
        | "trim"
        | "cidr"
        | "isIP"
        | "isCIDR"
        | "quantity"
        | "isQuantity"
        | "semver"
        | "isSemver"
        | "jsonpatch.escapeKey" => {
            return CallKind::Reads;
        }
        "replace" | "split" | "ip.isCanonical" => return CallKind::ReadsTwice,
        "join" => return CallKind::Joined,
        "find" | "findAll" => return CallKind::Regex,
        "containsIP" | "containsCIDR" => {
            let parses = matches!(
                overload,
                "cidr_contains_ip_string" | "cidr_contains_cidr_string"
            );
            return CallKind::ContainsIp {
                parses,
                cidr: function == "containsCIDR",
            };
        }
        "validate" => return CallKind::Validate,
        "_==_" => return CallKind::Equality,
        _ => {}
    }
    match overload {
        "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string"
        | "strings_quote" | "string_format" => CallKind::Reads,
        "in_list" => CallKind::InList,
        "less_string"
        | "greater_string"
        | "less_equals_string"
        | "greater_equals_string"
        | "less_bytes"
        | "greater_bytes"
        | "less_equals_bytes"
        | "greater_equals_bytes"
        | "not_equals" => CallKind::Smaller,
        "add_string" | "add_bytes" => CallKind::Both,
        "matches_string" => CallKind::Regex,
        "contains_string" => CallKind::Contains,
        "list_sets_contains_list" | "list_sets_intersects_list" => CallKind::Pairs(1),
        "list_sets_equivalent_list" => CallKind::Pairs(2),
        "list_slice" | "lists_range" | "list_reverse" => CallKind::NewList,
        "list_flatten" | "list_flatten_int" => CallKind::Flatten,
        "list_distinct" => CallKind::SelfCompare(0),
        other if other.ends_with("_sortByAssociatedKeys") => CallKind::SelfCompare(1),
        other if other.starts_with("list_") && other.ends_with("_sort") => CallKind::SelfCompare(0),
        _ => CallKind::Fixed(1),
    }
}

/// Returns the cost of a call, unless it depends on the result.
pub(crate) fn before(kind: CallKind, args: &[Value]) -> Option<u64> {
    let size = |i: usize| args.get(i).map_or(1, Value::cost_size);
    Some(match kind {
        CallKind::Fixed(cost) => cost,
        CallKind::Reads => scale(size(0), PER_CHAR),
        CallKind::ReadsTwice => scale(size(0), 2.0 * PER_CHAR),
        CallKind::InList => size(1),
        CallKind::Equality if matches!(args.first(), Some(Value::Library(_))) => 1,
        CallKind::Smaller | CallKind::Equality => scale(size(0).min(size(1)), PER_CHAR),
        CallKind::Both => scale(size(0).saturating_add(size(1)), PER_CHAR),
        CallKind::Regex => scale(size(0).saturating_add(1), PER_CHAR)
            .saturating_mul(scale(size(1), PER_REGEX_CHAR)),
        CallKind::Contains => scale(size(0), PER_CHAR).saturating_mul(scale(size(1), PER_CHAR)),
        CallKind::Traversal => args.first().map_or(0, |value| traversal(value, 64)),
        CallKind::Selector => {
            let length = size(1);
            let requirements = scale(length, 0.5);
            let each = (LIST_COST + STRUCT_COST) as f64;
            LIST_COST + scale(length, PER_CHAR) + scale(requirements, each)
        }
        CallKind::ContainsIp { parses, cidr } => {
            let mut cost = scale(size(0) * 2, PER_CHAR);
            if cidr {
                cost += scale(size(0), PER_CHAR) + 1;
            }
            if parses {
                cost += scale(size(1), PER_CHAR);
            }
            cost
        }
        CallKind::Validate => match args.first() {
            Some(Value::Library(Library::Format(format))) => scale(size(1) + 1, PER_CHAR)
                .saturating_mul(scale(format.regex_size, PER_REGEX_CHAR)),
            _ => 1,
        },
        CallKind::Pairs(factor) => size(0)
            .saturating_mul(size(1))
            .saturating_mul(factor)
            .saturating_add(1),
        CallKind::Flatten => {
            let depth = match args.get(1) {
                Some(Value::Int(depth)) => i128::from(*depth),
                _ => 1,
            };
            let cost = i128::from(size(0)).saturating_mul(depth) + i128::from(1 + LIST_COST);
            // A negative depth fails. In cel-go it lowers the cost, and one below zero wraps around.
            u64::try_from(cost).unwrap_or(u64::MAX)
        }
        CallKind::SelfCompare(i) => {
            let first = match args.get(i) {
                Some(Value::List(list)) => list.items.first(),
                _ => None,
            };
            let text = matches!(first, Some(Value::String(_) | Value::Bytes(_)));
            let factor = if text { 2.0 + PER_CHAR } else { 2.0 };
            let pairs = size(i).saturating_mul(size(i));
            ((pairs as f64 * factor) as u64).saturating_add(1 + LIST_COST)
        }
        CallKind::Joined | CallKind::NewList => return None,
    })
}

/// Returns the cost of a call that depends on its result.
pub(crate) fn after(kind: CallKind, result: &Value) -> u64 {
    match kind {
        CallKind::Joined => scale(result.cost_size(), 2.0 * PER_CHAR),
        _ => result.cost_size().saturating_add(1 + LIST_COST),
    }
}

/// Returns the cost of reading a value and everything in it.
fn traversal(value: &Value, depth: usize) -> u64 {
    if depth == 0 {
        return 1;
    }
    match value {
        Value::String(text) => (text.len() as f64 * PER_CHAR) as u64,
        Value::Bytes(bytes) => (bytes.len() as f64 * PER_CHAR) as u64,
        Value::List(list) => list.items.iter().fold(0, |sum: u64, item| {
            sum.saturating_add(traversal(item, depth - 1))
        }),
        Value::Map(map) => map.entries.iter().fold(0, |sum: u64, (key, value)| {
            sum.saturating_add(traversal(&key.value(), depth - 1))
                .saturating_add(traversal(value, depth - 1))
        }),
        _ => 1,
    }
}
