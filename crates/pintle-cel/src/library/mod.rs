//! The functions that expressions may call, one file per library.

pub(crate) mod authz;
pub(crate) mod format;
mod lists;
mod net;
mod quantity;
mod regex;
pub(crate) mod semver;
mod standard;
mod strings;
pub(crate) mod time;
pub(crate) mod timestamp;
pub(crate) mod url;

pub(crate) use self::standard::{MAX_STRING, insert};
use crate::eval::{self, Context};
use crate::value::{Evaluated, Value};

/// The implementation of a function. The target of a member call is its first argument.
pub(crate) type Native = fn(&mut Context, &[Value]) -> Evaluated;

/// Returns the implementation of a function.
pub(crate) fn native(name: &str) -> Option<Native> {
    let native: Native = match name {
        "_[_]" => eval::index,
        "_[?_]" | "_?._" => eval::optional_index,
        "@in" => eval::contains,
        _ => {
            return standard::native(name)
                .or_else(|| strings::native(name))
                .or_else(|| lists::native(name))
                .or_else(|| regex::native(name))
                .or_else(|| net::native(name))
                .or_else(|| url::native(name))
                .or_else(|| format::native(name))
                .or_else(|| authz::native(name))
                .or_else(|| either(name));
        }
    };
    Some(native)
}

/// Returns the implementation of an overload, for the few functions whose result depends on it.
pub(crate) fn native_for(name: &str, overload: &str) -> Option<Native> {
    match name {
        "sum" => Some(lists::sum(overload)),
        _ => native(name),
    }
}

/// Functions that quantities and versions share.
fn either(name: &str) -> Option<Native> {
    fn dispatch(name: &'static str, context: &mut Context, args: &[Value]) -> Evaluated {
        use crate::value::{Library, no_such_overload};
        let native = match args.first() {
            Some(Value::Library(Library::Semver(_))) => semver::native(name),
            _ => quantity::native(name),
        };
        native.map_or_else(|| Err(no_such_overload()), |native| native(context, args))
    }
    Some(match name {
        "isGreaterThan" => |context, args| dispatch("isGreaterThan", context, args),
        "isLessThan" => |context, args| dispatch("isLessThan", context, args),
        "compareTo" => |context, args| dispatch("compareTo", context, args),
        _ => return quantity::native(name).or_else(|| semver::native(name)),
    })
}
