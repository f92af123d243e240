//! Checks of well-typed expressions: literals that functions parse, and mixed lists and maps.

use crate::ast::{Ast, Entry, Expr, Id};
use crate::checker::Checked;
use crate::library::{time, timestamp::Timestamp};
use crate::re2::Pattern;
use crate::source::Errors;
use crate::types::Type;

/// Reports errors that type checking does not find.
pub(crate) fn validate(ast: &Ast, checked: &Checked, errors: &mut Errors) {
    let mut open = vec![(ast.root, false)];
    while let Some((id, in_format)) = open.pop() {
        match ast.expr(id) {
            Expr::Call {
                function,
                target,
                args,
            } => {
                call(ast, function, *target, args, errors);
                let in_format = in_format || &**function == "format";
                if &**function == "format" {
                    format(ast, checked, id, *target, args, errors);
                }
                open.extend(target.iter().chain(args).map(|&arg| (arg, in_format)));
            }
            Expr::Select { operand, .. } => open.push((*operand, in_format)),
            Expr::List(items) => {
                if !in_format {
                    list(ast, checked, items, errors);
                }
                open.extend(items.iter().map(|item| (item.0, in_format)));
            }
            Expr::Map(entries) => {
                if !in_format {
                    map(ast, checked, entries, errors);
                }
                let both = entries.iter().flat_map(|entry| [entry.key, entry.value]);
                open.extend(both.map(|id| (id, in_format)));
            }
            Expr::Struct { fields, .. } => {
                open.extend(fields.iter().map(|field| (field.value, in_format)));
            }
            Expr::Fold(fold) => {
                let parts = [
                    fold.range,
                    fold.init,
                    fold.condition,
                    fold.step,
                    fold.result,
                ];
                open.extend(parts.map(|id| (id, in_format)));
            }
            _ => {}
        }
    }
}

/// Checks the literal argument of a function that parses it.
fn call(ast: &Ast, function: &str, target: Option<Id>, args: &[Id], errors: &mut Errors) {
    let (arg, valid): (_, fn(&str) -> bool) = match (function, target, args) {
        ("duration", None, &[arg]) => (arg, |text| crate::go::parse_duration(text).is_ok()),
        ("timestamp", None, &[arg]) => (arg, |text| time::parse_timestamp(text).is_ok()),
        ("matches", Some(_), &[arg]) | ("matches", None, &[_, arg]) => {
            (arg, |text| Pattern::parse(text).is_ok())
        }
        _ => return,
    };
    let seconds = ast.literal_int(arg).filter(|_| function == "timestamp");
    let unknown_time = seconds.is_some_and(|seconds| Timestamp::new(seconds, 0).is_err());
    if unknown_time || ast.literal_string(arg).is_some_and(|text| !valid(text)) {
        errors.report(Some(ast.at(arg)), format!("invalid {function} argument"));
    }
}

fn mismatch(ast: &Ast, id: Id, wanted: &Type, found: &Type, errors: &mut Errors) {
    let message = format!("expected type '{wanted}' but found '{found}'");
    errors.report(Some(ast.at(id)), message);
}

fn list(ast: &Ast, checked: &Checked, items: &[(Id, bool)], errors: &mut Errors) {
    let item_type = |&(id, optional): &(Id, bool)| {
        let ty = checked.type_of(id);
        (id, if optional { ty.unwrap_optional().0 } else { ty })
    };
    let mut types = items.iter().map(item_type);
    let Some((_, wanted)) = types.next() else {
        return;
    };
    if let Some((id, found)) = types.find(|(_, found)| !found.same(wanted)) {
        mismatch(ast, id, wanted, found, errors);
    }
}

fn map(ast: &Ast, checked: &Checked, entries: &[Entry], errors: &mut Errors) {
    let value_type = |entry: &Entry| {
        let ty = checked.type_of(entry.value);
        if entry.optional {
            ty.unwrap_optional().0.clone()
        } else {
            ty.clone()
        }
    };
    let Some((first, rest)) = entries.split_first() else {
        return;
    };
    let (key, value) = (checked.type_of(first.key), value_type(first));
    for entry in rest {
        let found = checked.type_of(entry.key);
        if !found.same(key) {
            mismatch(ast, entry.key, key, found, errors);
        }
        let found = value_type(entry);
        if !found.same(&value) {
            mismatch(ast, entry.value, &value, &found, errors);
        }
    }
}

/// Checks the clauses of a literal format string against its arguments.
fn format(
    ast: &Ast,
    checked: &Checked,
    id: Id,
    target: Option<Id>,
    args: &[Id],
    errors: &mut Errors,
) {
    let (Some(text), &[list]) = (target.and_then(|id| ast.literal_string(id)), args) else {
        return;
    };
    let Expr::List(items) = ast.expr(list) else {
        return;
    };
    let mut used = 0;
    let mut rest: &str = text;
    while let Some(at) = rest.find('%') {
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            rest = after;
            continue;
        }
        let clause = rest.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
        let Some(clause) = clause.chars().next() else {
            errors.report(Some(ast.at(id)), "unexpected end of string");
            return;
        };
        let Some(&(item, _)) = items.get(used) else {
            errors.report(Some(ast.at(id)), format!("index {used} out of range"));
            return;
        };
        used += 1;
        let ty = checked.type_of(item);
        let fits = match clause {
            's' => true,
            'd' | 'o' => matches!(ty, Type::Int | Type::Uint),
            'f' | 'e' => matches!(ty, Type::Double | Type::String),
            'b' => matches!(ty, Type::Int | Type::Uint | Type::Bool),
            'x' | 'X' => matches!(ty, Type::Int | Type::Uint | Type::String | Type::Bytes),
            other => {
                let why = format!(
                    "could not parse formatting clause: unrecognized formatting clause \"{other}\""
                );
                errors.report(Some(ast.at(id)), why);
                return;
            }
        };
        if fits || ty.is_dyn() {
            continue;
        }
        let (name, wanted) = match clause {
            'd' => ("decimal", "integers"),
            'o' => ("octal", "integers"),
            'f' => ("fixed-point", "doubles"),
            'e' => ("scientific", "doubles"),
            'b' => ("binary", "integers and bools"),
            _ => ("hex", "integers, byte buffers, and strings"),
        };
        let found = ty.runtime_name();
        let why = format!(
            "error during formatting: {name} clause can only be used on {wanted}, was given {found}"
        );
        errors.report(Some(ast.at(item)), why);
        return;
    }
    if items.len() > used {
        let count = items.len();
        let why =
            format!("too many arguments supplied to string.format (expected {used}, got {count})");
        errors.report(Some(ast.at(id)), why);
    }
}
