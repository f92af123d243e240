//! Finds the type of every expression and the overloads of every call.

mod calls;

use std::sync::Arc;

use crate::ast::{Ast, Expr, Field, Fold, Id, Literal};
use crate::functions::{self, Overload};
use crate::source::Errors;
use crate::types::Type;
use crate::unify::{Mapping, most_general};

/// A variable that expressions may use.
#[derive(Debug, Clone)]
pub(crate) struct Variable {
    pub(crate) name: Arc<str>,
    pub(crate) ty: Type,
}

/// The results of type checking, by node.
#[derive(Debug, Clone, Default)]
pub(crate) struct Checked {
    types: Vec<Type>,
    /// The overloads that a call may use at run time.
    overloads: Vec<Vec<&'static str>>,
    /// The names of variables that the expression refers to.
    pub(crate) variables: Vec<Arc<str>>,
}

impl Checked {
    pub(crate) fn type_of(&self, id: Id) -> &Type {
        self.types.get(id as usize).unwrap_or(&Type::Dyn)
    }

    pub(crate) fn overloads(&self, id: Id) -> &[&'static str] {
        self.overloads.get(id as usize).map_or(&[], Vec::as_slice)
    }
}

/// Checks a tree. Selections and calls that turn out to be qualified names are rewritten.
pub(crate) fn check(
    ast: &mut Ast,
    variables: &[Variable],
    patch_types: bool,
    errors: &mut Errors,
) -> Checked {
    let size = ast.len();
    let root = ast.root;
    let mut checker = Checker {
        ast,
        scopes: variables.to_vec(),
        globals: variables.len(),
        patch_types,
        errors,
        mapping: Mapping::default(),
        types: vec![None; size],
        overloads: vec![Vec::new(); size],
        used: Vec::new(),
    };
    checker.check(root);
    let mapping = checker.mapping;
    let types = checker.types.into_iter();
    let types = types.map(|ty| ty.map_or(Type::Dyn, |ty| mapping.substitute(&ty, true)));
    let types = types.collect();
    if mapping.is_exhausted() {
        checker
            .errors
            .report(None, "types of the expression are too large");
    }
    Checked {
        types,
        overloads: checker.overloads,
        variables: checker.used,
    }
}

struct Checker<'a> {
    ast: &'a mut Ast,
    /// Variables, innermost last.
    scopes: Vec<Variable>,
    /// The number of variables that are not local.
    globals: usize,
    /// Whether the types of patches can be used.
    patch_types: bool,
    errors: &'a mut Errors,
    mapping: Mapping,
    types: Vec<Option<Type>>,
    overloads: Vec<Vec<&'static str>>,
    used: Vec<Arc<str>>,
}

impl Checker<'_> {
    fn report(&mut self, id: Id, message: impl Into<String>) {
        let at = self.ast.at(id);
        self.errors.report(Some(at), message);
    }

    fn type_of(&self, id: Id) -> Type {
        self.types
            .get(id as usize)
            .cloned()
            .flatten()
            .unwrap_or(Type::Error)
    }

    fn set(&mut self, id: Id, ty: Type) {
        let ty = self.mapping.limited(ty);
        if let Some(slot) = self.types.get_mut(id as usize) {
            *slot = Some(ty);
        }
    }

    fn check(&mut self, id: Id) {
        match self.ast.expr(id).clone() {
            Expr::Literal(literal) => self.set(id, literal_type(&literal)),
            Expr::Ident(name) => self.ident(id, &name),
            Expr::Select {
                operand,
                field,
                test,
            } => self.select(id, operand, &field, test),
            Expr::Call {
                function,
                target,
                args,
            } => self.call(id, &function, target, &args),
            Expr::List(items) => self.list(id, &items),
            Expr::Map(entries) => {
                let mut key_type = None;
                let mut value_type = None;
                for entry in &entries {
                    self.check(entry.key);
                    let ty = self.type_of(entry.key);
                    key_type = Some(self.join(key_type, ty));
                    self.check(entry.value);
                    let ty = self.element_type(entry.value, entry.optional);
                    value_type = Some(self.join(value_type, ty));
                }
                let key = key_type.unwrap_or_else(|| self.mapping.fresh());
                let value = value_type.unwrap_or_else(|| self.mapping.fresh());
                self.set(id, Type::map(key, value));
            }
            Expr::Struct { name, fields } => self.message(id, &name, &fields),
            Expr::Fold(fold) => self.fold(id, &fold),
            Expr::Invalid => self.set(id, Type::Error),
        }
    }

    fn message(&mut self, id: Id, name: &str, fields: &[Field]) {
        let plain = name.trim_start_matches('.');
        let ty = self.type_name(plain);
        match &ty {
            None => self.undeclared(id, name),
            Some(Type::Record(_)) => {}
            Some(ty) => {
                self.report(id, format!("'{}' is not a message type", ty.runtime_name()));
            }
        }
        for field in fields {
            self.check(field.value);
            let Some(Type::Record(record)) = &ty else {
                continue;
            };
            let found = self.element_type(field.value, field.optional);
            let message = match record.field(&field.name) {
                None => format!("undefined field '{}'", field.name),
                Some(wanted) if !self.mapping.assignable(&wanted, &found) => {
                    let found = self.mapping.substitute(&found, true);
                    format!(
                        "expected type of field '{}' is '{wanted}' but provided type is '{found}'",
                        field.name
                    )
                }
                Some(_) => continue,
            };
            self.errors.report(Some(field.at), message);
        }
        let ty = ty.filter(|ty| matches!(ty, Type::Record(_)));
        self.set(id, ty.unwrap_or(Type::Error));
    }

    /// Returns the type of a name.
    fn type_name(&self, name: &str) -> Option<Type> {
        if self.patch_types
            && let Some(record) = functions::patch_type(name)
        {
            return Some(record.into());
        }
        functions::type_name(name)
    }

    /// Returns the overloads of a function.
    fn function(&self, name: &str) -> Option<&'static [Overload]> {
        functions::find(name).filter(|_| self.patch_types || name != functions::ESCAPE_KEY)
    }

    fn undeclared(&mut self, id: Id, name: &str) {
        self.report(
            id,
            format!("undeclared reference to '{name}' (in container '')"),
        );
    }

    /// Finds a variable or a type name.
    fn lookup(&mut self, name: &str) -> Option<Type> {
        let (plain, from) = match name.strip_prefix('.') {
            Some(plain) => (plain, self.globals),
            None => (name, self.scopes.len()),
        };
        let found = self.scopes[..from]
            .iter()
            .rposition(|var| &*var.name == plain);
        if let Some(i) = found {
            let Variable { name, ty } = self.scopes[i].clone();
            if i < self.globals && !self.used.contains(&name) {
                self.used.push(name);
            }
            return Some(ty);
        }
        let named = self.type_name(plain)?;
        let of = match named {
            // `list` and `map` stand for lists and maps of anything.
            Type::List(_) => Type::list(self.mapping.fresh()),
            Type::Map(..) => Type::map(self.mapping.fresh(), self.mapping.fresh()),
            other => other,
        };
        Some(Type::Type(Some(Arc::new(of))))
    }

    fn ident(&mut self, id: Id, name: &str) {
        if let Some(ty) = self.lookup(name) {
            if let Some(plain) = name.strip_prefix('.') {
                self.ast.replace(id, Expr::Ident(plain.into()));
            }
            self.set(id, ty);
        } else {
            self.set(id, Type::Error);
            self.undeclared(id, name);
        }
    }

    fn select(&mut self, id: Id, operand: Id, field: &str, test: bool) {
        if !test
            && let Some(name) = self.ast.qualified_name(id)
            && name.contains('.')
            && let Some(ty) = self.lookup(&name)
        {
            self.ast
                .replace(id, Expr::Ident(name.trim_start_matches('.').into()));
            self.set(id, ty);
            return;
        }
        let ty = self.field(id, operand, field, false);
        let ty = if test {
            Type::Bool
        } else {
            self.mapping.substitute(&ty, false)
        };
        self.set(id, ty);
    }

    fn field(&mut self, id: Id, operand: Id, field: &str, optional: bool) -> Type {
        self.check(operand);
        let ty = self.mapping.substitute(&self.type_of(operand), false);
        let (target, was_optional) = ty.unwrap_optional();
        let result = match target {
            Type::Map(_, value) => (**value).clone(),
            Type::Object(name, decl) => {
                if let Some(ty) = decl.field_type(name, field) {
                    ty
                } else {
                    self.report(id, format!("undefined field '{field}'"));
                    Type::Error
                }
            }
            Type::Record(record) => record.field(field).unwrap_or_else(|| {
                self.report(id, format!("undefined field '{field}'"));
                Type::Error
            }),
            Type::Struct(name) => {
                self.report(id, format!("unexpected failed resolution of '{name}'"));
                Type::Error
            }
            Type::Param(_) => {
                self.mapping.assignable(&Type::Dyn, target);
                Type::Dyn
            }
            other => {
                if !other.is_dyn_or_error() {
                    self.report(
                        id,
                        format!("type '{other}' does not support field selection"),
                    );
                }
                Type::Dyn
            }
        };
        if was_optional || optional {
            Type::optional(result)
        } else {
            result
        }
    }

    /// Returns the type of an item or, for an optional item, of the value inside.
    fn element_type(&mut self, id: Id, optional: bool) -> Type {
        let ty = self.type_of(id);
        if !optional {
            return ty;
        }
        let (inner, was_optional) = ty.unwrap_optional();
        if !was_optional && !inner.is_dyn() {
            let wanted = Type::optional(inner.clone());
            self.report(id, format!("expected type '{wanted}' but found '{inner}'"));
        }
        inner.clone()
    }

    fn list(&mut self, id: Id, items: &[(Id, bool)]) {
        let mut item_type = None;
        for &(item, optional) in items {
            self.check(item);
            let ty = self.element_type(item, optional);
            item_type = Some(self.join(item_type, ty));
        }
        let item = item_type.unwrap_or_else(|| self.mapping.fresh());
        self.set(id, Type::list(item));
    }

    /// Returns the common type of items.
    fn join(&mut self, previous: Option<Type>, current: Type) -> Type {
        match previous {
            None => current,
            Some(previous) if self.mapping.assignable(&previous, &current) => {
                most_general(&previous, &current).clone()
            }
            Some(_) => Type::Dyn,
        }
    }

    fn fold(&mut self, id: Id, fold: &Fold) {
        self.check(fold.range);
        self.check(fold.init);
        let range = self.mapping.substitute(&self.type_of(fold.range), false);
        let accu = self.type_of(fold.init);
        let outer = self.scopes.len();
        self.scopes.push(Variable {
            name: fold.accu.clone(),
            ty: accu.clone(),
        });
        let two = fold.var2.is_some();
        let (first, second) = match &range {
            Type::List(item) if two => (Type::Int, (**item).clone()),
            Type::List(item) => ((**item).clone(), Type::Dyn),
            Type::Map(key, value) => ((**key).clone(), (**value).clone()),
            Type::Dyn | Type::Error | Type::Param(_) => {
                self.mapping.assignable(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                self.report(
                    fold.range,
                    format!(
                        "expression of type '{other}' cannot be range of a comprehension (must be \
                         list, map, or dynamic)"
                    ),
                );
                (Type::Error, Type::Error)
            }
        };
        let inner = self.scopes.len();
        self.scopes.push(Variable {
            name: fold.var.clone(),
            ty: first,
        });
        if let Some(name) = &fold.var2 {
            self.scopes.push(Variable {
                name: name.clone(),
                ty: second,
            });
        }
        self.check(fold.condition);
        self.assert(fold.condition, &Type::Bool);
        self.check(fold.step);
        self.assert(fold.step, &accu);
        self.scopes.truncate(inner);
        self.check(fold.result);
        self.scopes.truncate(outer);
        let ty = self.mapping.substitute(&self.type_of(fold.result), false);
        self.set(id, ty);
    }

    fn assert(&mut self, id: Id, wanted: &Type) {
        let found = self.type_of(id);
        if !self.mapping.assignable(wanted, &found) {
            self.report(id, format!("expected type '{wanted}' but found '{found}'"));
        }
    }
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}
