//! Calls: which overloads fit the types of the arguments.

use super::Checker;
use crate::ast::{Expr, Id};
use crate::functions;
use crate::types::{Type, signature};
use crate::unify::instantiate;

impl Checker<'_> {
    pub(super) fn call(&mut self, id: Id, function: &str, target: Option<Id>, args: &[Id]) {
        if function == "_?._" {
            let field = args
                .get(1)
                .and_then(|&arg| self.ast.literal_string(arg))
                .cloned();
            let Some(field) = field else {
                self.report(id, "unsupported optional field selection");
                return;
            };
            let ty = self.field(id, args[0], &field, true);
            self.set(args[1], Type::String);
            let ty = self.mapping.substitute(&ty, false);
            self.set(id, ty);
            self.overloads[id as usize] = vec!["select_optional_field"];
            return;
        }
        for &arg in args {
            self.check(arg);
        }
        let Some(target) = target else {
            let plain = function.trim_start_matches('.');
            if self.function(plain).is_some() {
                if plain != function {
                    let call = Expr::Call {
                        function: plain.into(),
                        target: None,
                        args: args.to_vec(),
                    };
                    self.ast.replace(id, call);
                }
                self.resolve(id, plain, None, args);
            } else {
                self.undeclared(id, function);
                self.set(id, Type::Error);
            }
            return;
        };
        if let Some(prefix) = self.ast.qualified_name(target) {
            let name = format!("{}.{function}", prefix.trim_start_matches('.'));
            if self.function(&name).is_some() {
                let call = Expr::Call {
                    function: name.as_str().into(),
                    target: None,
                    args: args.to_vec(),
                };
                self.ast.replace(id, call);
                self.resolve(id, &name, None, args);
                return;
            }
        }
        self.check(target);
        if self.function(function).is_some() {
            self.resolve(id, function, Some(target), args);
        } else {
            self.set(id, Type::Error);
            self.undeclared(id, function);
        }
    }

    pub(super) fn resolve(&mut self, id: Id, function: &str, target: Option<Id>, args: &[Id]) {
        let all = target.iter().chain(args).map(|&arg| self.type_of(arg));
        let types: Vec<Type> = all.collect();
        let overloads = functions::find(function).unwrap_or_default();
        if matches!(function, "_&&_" | "_||_") {
            let mut fits = true;
            for (ty, &arg) in types.iter().zip(args) {
                if !self.mapping.assignable(ty, &Type::Bool) {
                    self.report(arg, format!("expected type 'bool' but found '{ty}'"));
                    fits = false;
                }
            }
            self.set(id, if fits { Type::Bool } else { Type::Error });
            self.overloads[id as usize] = overloads.iter().map(|overload| overload.id).collect();
            return;
        }
        let mut result: Option<Type> = None;
        let mut matched = Vec::new();
        for overload in overloads {
            if overload.member != target.is_some() || overload.params.len() != types.len() {
                continue;
            }
            let first = self.mapping.reserve(overload.vars);
            let params: Vec<Type> = overload
                .params
                .iter()
                .map(|param| instantiate(param, first))
                .collect();
            if !self.mapping.assignable_all(&types, &params) {
                continue;
            }
            matched.push(overload.id);
            let ty = self
                .mapping
                .substitute(&instantiate(&overload.result, first), false);
            result = Some(match result {
                None => ty,
                Some(known) if known.is_dyn() || ty.same(&known) => known,
                Some(_) => Type::Dyn,
            });
        }
        if let Some(ty) = result {
            self.set(id, ty);
            self.overloads[id as usize] = matched;
        } else {
            let shown = types.iter().map(|ty| self.mapping.substitute(ty, true));
            let shown: Vec<Type> = shown.collect();
            let applied = signature(&shown, target.is_some());
            let message =
                format!("found no matching overload for '{function}' applied to '{applied}'");
            self.report(id, message);
            self.set(id, Type::Error);
        }
    }
}
