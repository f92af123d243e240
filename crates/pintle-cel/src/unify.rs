//! Unification: which types of arguments fit the parameters of a function, and what its type
//! variables stand for.

use std::cell::Cell;
use std::sync::Arc;

use crate::types::Type;

/// The maximum number of parts of a type. `{x: x}` has twice as many as `x`, so without a limit a
/// short expression could have a type of exponential size.
const MAX_PARTS: usize = 1_000;

/// The maximum number of parts of types that are compared and copied for one expression.
const MAX_COMPARED: usize = 3_000_000;

/// Substitutions of type variables, found while expressions are checked.
#[derive(Debug, Default)]
pub(crate) struct Mapping {
    compared: Cell<usize>,
    too_large: Cell<bool>,
    vars: Vec<Option<Type>>,
    /// Changed variables and their former values, so that a failed attempt can be undone.
    trail: Vec<(usize, Option<Type>)>,
}

impl Mapping {
    /// Creates a variable.
    pub(crate) fn fresh(&mut self) -> Type {
        Type::Param(self.reserve(1))
    }

    /// Creates `count` variables and returns the number of the first.
    pub(crate) fn reserve(&mut self, count: usize) -> u32 {
        let first = self.vars.len();
        self.vars.resize(first + count, None);
        u32::try_from(first).unwrap_or(u32::MAX)
    }

    fn find(&self, ty: &Type) -> Option<&Type> {
        match ty {
            Type::Param(n) => self.vars.get(*n as usize)?.as_ref(),
            _ => None,
        }
    }

    fn bind(&mut self, var: &Type, to: Type) {
        if let Type::Param(n) = var
            && let Some(slot) = self.vars.get_mut(*n as usize)
        {
            self.trail.push((*n as usize, slot.take()));
            *slot = Some(to);
        }
    }

    fn undo(&mut self, mark: usize) {
        while self.trail.len() > mark {
            if let Some((n, was)) = self.trail.pop() {
                self.vars[n] = was;
            }
        }
    }

    /// Unifies two lists of types, or changes nothing.
    pub(crate) fn assignable_all(&mut self, a: &[Type], b: &[Type]) -> bool {
        let mark = self.trail.len();
        let fits = a.len() == b.len() && a.iter().zip(b).all(|(a, b)| self.unify(a, b));
        if fits {
            self.trail.clear();
        } else {
            self.undo(mark);
        }
        fits
    }

    /// Unifies two types, or changes nothing.
    pub(crate) fn assignable(&mut self, a: &Type, b: &Type) -> bool {
        let mark = self.trail.len();
        let fits = self.unify(a, b);
        if fits {
            self.trail.clear();
        } else {
            self.undo(mark);
        }
        fits
    }

    /// Returns true if types were too large to be checked.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.too_large.get()
    }

    /// Returns a type, or `Error` if it is too large.
    pub(crate) fn limited(&self, ty: Type) -> Type {
        if ty.has_at_most(&mut { MAX_PARTS }) {
            ty
        } else {
            self.too_large.set(true);
            Type::Error
        }
    }

    /// Counts a comparison. Returns false if there were too many.
    fn compares(&self) -> bool {
        let compared = self.compared.get() + 1;
        self.compared.set(compared);
        if compared > MAX_COMPARED {
            self.too_large.set(true);
        }
        compared <= MAX_COMPARED
    }

    fn unify(&mut self, a: &Type, b: &Type) -> bool {
        if !self.compares() {
            return false;
        }
        if matches!(b, Type::Param(_)) {
            let (valid, bound) = self.substitutes(a, b);
            if valid {
                return true;
            }
            if bound {
                return false;
            }
        }
        if matches!(a, Type::Param(_)) {
            return self.substitutes(b, a).0;
        }
        if a.is_dyn_or_error() || b.is_dyn_or_error() {
            return true;
        }
        match (a, b) {
            (Type::Null, other) | (other, Type::Null) => matches!(
                other,
                Type::Null
                    | Type::Optional(_)
                    | Type::Opaque(_)
                    | Type::Struct(_)
                    | Type::Object(..)
                    | Type::Record(_)
                    | Type::Duration
                    | Type::Timestamp
            ),
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => {
                self.unify(a, b)
            }
            (Type::Map(a, b), Type::Map(c, d)) => self.unify(a, c) && self.unify(b, d),
            _ => a.same(b),
        }
    }

    /// Returns whether variable `var` can stand for `ty`, and whether it was bound already.
    fn substitutes(&mut self, ty: &Type, var: &Type) -> (bool, bool) {
        if ty.same(var) {
            return (true, true);
        }
        if let Some(bound) = self.find(var).cloned() {
            if ty.same(&bound) {
                return (true, true);
            }
            if self.unify(ty, &bound) {
                let general = most_general(ty, &bound).clone();
                if self.not_within(var, &general) {
                    self.bind(var, general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.not_within(var, ty) {
            self.bind(var, ty.clone());
            return (true, false);
        }
        (false, false)
    }

    /// Returns true if a variable does not occur in a type.
    fn not_within(&self, var: &Type, ty: &Type) -> bool {
        if !self.compares() || var.same(ty) {
            return false;
        }
        match ty {
            Type::Param(_) => self
                .find(ty)
                .is_none_or(|bound| self.not_within(var, bound)),
            Type::List(a) | Type::Optional(a) | Type::Type(Some(a)) => self.not_within(var, a),
            Type::Map(a, b) => self.not_within(var, a) && self.not_within(var, b),
            _ => true,
        }
    }

    /// Replaces bound variables, and with `free_to_dyn` the free ones by `dyn`.
    pub(crate) fn substitute(&self, ty: &Type, free_to_dyn: bool) -> Type {
        let substituted = self.substituted(ty, free_to_dyn, &mut { MAX_PARTS });
        substituted.unwrap_or_else(|| {
            self.too_large.set(true);
            Type::Error
        })
    }

    /// Deducts the number of parts of the result from `left`. Returns `None` if there are too many.
    fn substituted(&self, ty: &Type, free_to_dyn: bool, left: &mut usize) -> Option<Type> {
        *left = left.checked_sub(1)?;
        if !self.compares() {
            return None;
        }
        let mut below = |ty: &Arc<Type>| {
            if ty.has_variables() {
                Some(Arc::new(self.substituted(ty, free_to_dyn, &mut *left)?))
            } else {
                // Shared, because many expressions can have the same large type.
                ty.has_at_most(left).then(|| Arc::clone(ty))
            }
        };
        Some(match ty {
            Type::Param(_) => match self.find(ty) {
                Some(bound) => self.substituted(bound, free_to_dyn, left)?,
                None if free_to_dyn => Type::Dyn,
                None => ty.clone(),
            },
            Type::List(a) => Type::List(below(a)?),
            Type::Optional(a) => Type::Optional(below(a)?),
            Type::Map(a, b) => Type::Map(below(a)?, below(b)?),
            Type::Type(Some(a)) => Type::Type(Some(below(a)?)),
            other => other.clone(),
        })
    }
}

/// Returns the more general of two types that unify.
pub(crate) fn most_general<'t>(a: &'t Type, b: &'t Type) -> &'t Type {
    if less_specific(a, b) { a } else { b }
}

fn less_specific(a: &Type, b: &Type) -> bool {
    if a.is_dyn() || matches!(a, Type::Param(_)) {
        return true;
    }
    if b.is_dyn() || matches!(b, Type::Param(_)) {
        return false;
    }
    match (a, b) {
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => {
            less_specific(a, b)
        }
        (Type::Map(a, b), Type::Map(c, d)) => less_specific(a, c) && less_specific(b, d),
        (Type::Type(_), Type::Type(_)) => true,
        _ => a.same(b),
    }
}

/// Renumbers the variables of a signature, so that each use has its own.
pub(crate) fn instantiate(ty: &Type, first: u32) -> Type {
    let below = |ty: &Arc<Type>| Arc::new(instantiate(ty, first));
    match ty {
        Type::Param(n) => Type::Param(first + n),
        Type::List(a) => Type::List(below(a)),
        Type::Optional(a) => Type::Optional(below(a)),
        Type::Map(a, b) => Type::Map(below(a), below(b)),
        Type::Type(Some(a)) => Type::Type(Some(below(a))),
        other => other.clone(),
    }
}
