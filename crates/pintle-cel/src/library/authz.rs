//! `authorizer`: asks the server whether a user may do something.
//!
//! An expression builds a check step by step and ends with `check`, which calls the [`Authorizer`]
//! that the server provides. Steps are immutable, so a prefix can be used more than once.

use std::fmt;
use std::sync::Arc;

use super::{Native, format};
use crate::eval::Context;
use crate::value::{Evaluated, Library, Value, fail, no_such_overload};

/// Decides the access checks of expressions. The server implements it.
pub trait Authorizer: fmt::Debug + Send + Sync {
    /// Decides whether the user of the request, or the service account of the check, has access.
    fn authorize(&self, check: &Checked) -> AccessDecision;
}

/// A check: a subject, a verb and a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// The namespace and name of a service account, if the check is not about the user of the
    /// request.
    pub service_account: Option<(String, String)>,
    /// The verb, such as `get`.
    pub verb: String,
    /// The target of the verb.
    pub access: Access,
}

/// The target of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// A path that is not a resource.
    Path(String),
    /// A resource.
    Resource(ResourceAccess),
}

/// A resource, or an object of it. Fields that do not apply are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceAccess {
    /// The API group.
    pub group: String,
    /// The plural name.
    pub resource: String,
    /// The subresource.
    pub subresource: String,
    /// The namespace.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// The field selector of a list or watch.
    pub field_selector: String,
    /// The label selector of a list or watch.
    pub label_selector: String,
}

/// The result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessDecision {
    /// Whether access is granted.
    pub allowed: bool,
    /// Why access is granted or denied; may be empty.
    pub reason: String,
    /// The error, if the check failed.
    pub error: Option<String>,
}

/// A step of a check.
#[derive(Debug, Clone)]
pub struct Step {
    authorizer: Arc<dyn Authorizer>,
    service_account: Option<(String, String)>,
    stage: Stage,
}

#[derive(Debug, Clone)]
enum Stage {
    Start,
    Group(String),
    Access(Access),
    Decided(AccessDecision),
}

impl Step {
    pub(crate) fn type_name(&self) -> &'static str {
        match &self.stage {
            Stage::Start => "kubernetes.authorization.Authorizer",
            Stage::Group(_) => "kubernetes.authorization.GroupCheck",
            Stage::Access(Access::Path(_)) => "kubernetes.authorization.PathCheck",
            Stage::Access(Access::Resource(_)) => "kubernetes.authorization.ResourceCheck",
            Stage::Decided(_) => "kubernetes.authorization.Decision",
        }
    }

    fn then(&self, stage: Stage) -> Value {
        Value::Library(Library::Authz(Arc::new(Self {
            stage,
            ..self.clone()
        })))
    }
}

impl Value {
    /// Returns the value of the variable `authorizer`, whose type is [`Type::authorizer`].
    ///
    /// [`Type::authorizer`]: crate::Type::authorizer
    ///
    /// ```
    /// use pintle_cel::{AccessDecision, Authorizer, Checked, Env, Type, Value};
    ///
    /// #[derive(Debug)]
    /// struct Readers;
    ///
    /// impl Authorizer for Readers {
    ///     fn authorize(&self, check: &Checked) -> AccessDecision {
    ///         AccessDecision { allowed: check.verb == "get", ..Default::default() }
    ///     }
    /// }
    ///
    /// let env = Env::new().variable("authorizer", Type::authorizer());
    /// let program = env.compile("authorizer.path('/healthz').check('get').allowed()").unwrap();
    /// let authorizer = Value::authorizer(std::sync::Arc::new(Readers));
    /// let done = program.eval(&[("authorizer", authorizer)], 1_000_000);
    /// assert!(matches!(done.result, Ok(Value::Bool(true))));
    /// ```
    #[must_use]
    pub fn authorizer(authorizer: Arc<dyn Authorizer>) -> Self {
        Self::Library(Library::Authz(Arc::new(Step {
            authorizer,
            service_account: None,
            stage: Stage::Start,
        })))
    }

    /// Returns the value of the variable `authorizer.requestResource`, whose type is
    /// [`Type::resource_check`](crate::Type::resource_check).
    #[must_use]
    pub fn resource_check(authorizer: Arc<dyn Authorizer>, resource: ResourceAccess) -> Self {
        Self::Library(Library::Authz(Arc::new(Step {
            authorizer,
            service_account: None,
            stage: Stage::Access(Access::Resource(resource)),
        })))
    }
}

/// Returns the implementation of a function of this library.
pub(crate) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "path" => |_, args| {
            let (step, path) = step_and_text(args)?;
            let Stage::Start = &step.stage else {
                return Err(no_such_overload());
            };
            if path.trim().is_empty() {
                return Err(fail("path must not be empty"));
            }
            Ok(step.then(Stage::Access(Access::Path(path.to_owned()))))
        },
        "group" => |_, args| {
            let (step, group) = step_and_text(args)?;
            let Stage::Start = &step.stage else {
                return Err(no_such_overload());
            };
            Ok(step.then(Stage::Group(group.to_owned())))
        },
        "serviceAccount" => service_account,
        "resource" => |_, args| {
            let (step, resource) = step_and_text(args)?;
            let Stage::Group(group) = &step.stage else {
                return Err(no_such_overload());
            };
            if resource.trim().is_empty() {
                return Err(fail("resource must not be empty"));
            }
            let access = ResourceAccess {
                group: group.clone(),
                resource: resource.to_owned(),
                ..ResourceAccess::default()
            };
            Ok(step.then(Stage::Access(Access::Resource(access))))
        },
        "subresource" => |_, args| set(args, |access| &mut access.subresource),
        "namespace" => |_, args| set(args, |access| &mut access.namespace),
        "name" => |_, args| set(args, |access| &mut access.name),
        "fieldSelector" => |_, args| set(args, |access| &mut access.field_selector),
        "labelSelector" => |_, args| set(args, |access| &mut access.label_selector),
        "check" => check,
        "allowed" => |_, args| decision(args, |decision| Value::Bool(decision.allowed)),
        "reason" => |_, args| decision(args, |decision| decision.reason.as_str().into()),
        "errored" => |_, args| decision(args, |decision| Value::Bool(decision.error.is_some())),
        "error" => |_, args| {
            decision(args, |decision| {
                decision.error.as_deref().unwrap_or_default().into()
            })
        },
        _ => return None,
    })
}

fn step(value: &Value) -> Result<&Arc<Step>, crate::value::EvalError> {
    match value {
        Value::Library(Library::Authz(step)) => Ok(step),
        _ => Err(no_such_overload()),
    }
}

fn step_and_text(args: &[Value]) -> Result<(&Arc<Step>, &str), crate::value::EvalError> {
    match args {
        [target, Value::String(text)] => Ok((step(target)?, text)),
        _ => Err(no_such_overload()),
    }
}

fn service_account(_: &mut Context, args: &[Value]) -> Evaluated {
    let [target, Value::String(namespace), Value::String(name)] = args else {
        return Err(no_such_overload());
    };
    let step = step(target)?;
    let Stage::Start = &step.stage else {
        return Err(no_such_overload());
    };
    if !format::subdomain(name).is_empty() {
        return Err(fail("Invalid service account name"));
    }
    if !format::label(namespace).is_empty() {
        return Err(fail("Invalid service account namespace"));
    }
    Ok(Value::Library(Library::Authz(Arc::new(Step {
        service_account: Some((namespace.to_string(), name.to_string())),
        ..(**step).clone()
    }))))
}

fn set(args: &[Value], field: fn(&mut ResourceAccess) -> &mut String) -> Evaluated {
    let (step, text) = step_and_text(args)?;
    let Stage::Access(Access::Resource(access)) = &step.stage else {
        return Err(no_such_overload());
    };
    let mut access = access.clone();
    text.clone_into(field(&mut access));
    Ok(step.then(Stage::Access(Access::Resource(access))))
}

fn check(_: &mut Context, args: &[Value]) -> Evaluated {
    let (step, verb) = step_and_text(args)?;
    let Stage::Access(access) = &step.stage else {
        return Err(no_such_overload());
    };
    let decision = step.authorizer.authorize(&Checked {
        service_account: step.service_account.clone(),
        verb: verb.to_owned(),
        access: access.clone(),
    });
    Ok(step.then(Stage::Decided(decision)))
}

fn decision(args: &[Value], read: fn(&AccessDecision) -> Value) -> Evaluated {
    let [target] = args else {
        return Err(no_such_overload());
    };
    match &step(target)?.stage {
        Stage::Decided(decision) => Ok(read(decision)),
        _ => Err(no_such_overload()),
    }
}
