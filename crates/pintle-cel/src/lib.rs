//! The Common Expression Language as implemented by Kubernetes 1.36.
//!
//! An expression is compiled before it runs: parsed within limits on size and nesting, checked
//! against the declared types of its variables, and its worst-case cost estimated. Evaluation then
//! runs under a budget of the same cost units. No input can overflow the stack, and time and memory
//! are bounded by the budget.
//!
//! - [`Env`] declares variables and compiles an expression to a [`Program`].
//! - [`Decl`] reads types and sizes from an OpenAPI schema, such as that of a CRD.
//! - [`Value`] is data, converted from JSON with or without such a schema.
//! - [`Quantity`] and [`go`] read and write text as Kubernetes does.
//!
//! Error messages are those of cel-go and Kubernetes, with the source line and a caret.
//!
//! ```
//! use pintle_cel::{Decl, Env, Value};
//! use serde_json::json;
//!
//! let schema = json!({ "type": "object", "properties": { "replicas": { "type": "integer" } } });
//! let decl = Decl::from_schema(&schema, false).unwrap();
//! let env = Env::new().variable("self", decl.cel_type());
//!
//! let program = env.compile("self.replicas <= 5").unwrap();
//! let object = Value::declared(&json!({ "replicas": 9 }), &decl);
//! let done = program.eval(&[("self", object)], 1_000);
//! assert!(matches!(done.result, Ok(Value::Bool(false))));
//!
//! let error = env.compile("self.replcias <= 5").unwrap_err();
//! assert!(error.to_string().contains("undefined field 'replcias'"));
//! ```
#![deny(missing_docs)]
// Conversions between number types intentionally truncate or round as in Go.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss
)]

mod ast;
mod checker;
mod cost;
mod decl;
mod eval;
mod functions;
pub mod go;
mod lexer;
mod library;
mod macros;
mod message;
mod parser;
mod program;
mod quantity;
mod re2;
mod runtime_cost;
mod source;
mod types;
mod unify;
mod validators;
mod value;

pub use self::{
    cost::Range,
    decl::{Decl, Decls, escape, is_identifier},
    library::{
        authz::{Access, AccessDecision, Authorizer, Checked, ResourceAccess},
        format::Format,
        semver::Semver,
        url::{Url, check_request_uri},
    },
    program::{Env, Evaluation, Program},
    quantity::{Quantity, QuantityError},
    re2::Pattern,
    source::{CompileError, Issue},
    types::{Record, Type},
    value::{EvalError, Lazy, Library, List, Map, Message, Value},
};

#[cfg(test)]
mod tests;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
