//! CEL expressions of admission: match conditions of webhooks, and everything in policies.
//!
//! [`Compiler`] declares the variables and compiles an expression to an [`Expression`]. [`Scope`]
//! holds the values for one request and evaluates expressions under a budget. Nothing else in
//! admission depends on the CEL engine.

mod authorizer;
mod scope;

use std::{collections::BTreeMap, sync::LazyLock};

use pintle_cel::{Env, Program, Record, Type};

pub(super) use self::scope::{Inputs, Scope};

/// The maximum cost of one expression, in CEL's cost units.
pub(crate) const CALL_LIMIT: u64 = 1_000_000;

/// The maximum cost of the match conditions of a webhook or policy for one request.
pub(crate) const CONDITIONS_BUDGET: u64 = 2_500_000;

/// The maximum cost, for one request, binding and parameter, of a policy's validations and
/// messages, of its audit annotations, or of one mutation.
pub(crate) const BUDGET: u64 = 10_000_000;

/// A compiled expression, or why it cannot be compiled.
#[derive(Debug, Clone)]
pub(crate) struct Expression {
    pub(crate) source: String,
    pub(crate) program: Result<Program, String>,
}

/// Declarations that exist only in some expressions.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Optional {
    pub(crate) params: bool,
    pub(crate) authorizer: bool,
    /// The types that build patches, which only mutations use.
    pub(crate) patch_types: bool,
}

/// Compiles the expressions of one webhook or policy.
#[derive(Debug, Clone)]
pub(crate) struct Compiler {
    object: Type,
    params: Type,
    /// The composed variables so far; `None` if `variables` is not declared.
    variables: Option<BTreeMap<String, Type>>,
}

impl Compiler {
    /// A compiler without composed variables.
    pub(crate) fn new() -> Self {
        Self {
            object: Type::Dyn,
            params: Type::Dyn,
            variables: None,
        }
    }

    /// A compiler with composed variables.
    pub(crate) fn composed() -> Self {
        Self {
            variables: Some(BTreeMap::new()),
            ..Self::new()
        }
    }

    /// A compiler that knows the types of objects and parameters.
    pub(crate) fn typed(object: Type, params: Type) -> Self {
        Self {
            object,
            params,
            variables: Some(BTreeMap::new()),
        }
    }

    /// Compiles an expression. The error is kube-apiserver's.
    pub(crate) fn check(&self, source: &str, optional: Optional) -> Result<Program, String> {
        let mut env = Env::new()
            .variable("object", self.object.clone())
            .variable("oldObject", self.object.clone())
            .variable("namespaceObject", NAMESPACE.clone())
            .variable("request", REQUEST.clone());
        if optional.params {
            env = env.variable("params", self.params.clone());
        }
        if optional.authorizer {
            env = env
                .variable("authorizer", Type::authorizer())
                .variable("authorizer.requestResource", Type::resource_check());
        }
        if let Some(variables) = &self.variables {
            // Declaring only what the source mentions keeps many variables cheap.
            let words = source.split(|c: char| c != '_' && !c.is_ascii_alphanumeric());
            let fields = words.filter_map(|word| variables.get_key_value(word));
            let fields = fields.map(|(name, ty)| (name.as_str(), ty.clone()));
            let record = Record::new("kubernetes.variables", fields);
            env = env.variable("variables", record.into());
        }
        if optional.patch_types {
            env = env.patch_types();
        }
        env.compile(source).map_err(|error| error.to_string())
    }

    /// Compiles an expression that must have one of these types.
    pub(crate) fn compile(
        &self,
        source: &str,
        optional: Optional,
        returns: &[Type],
    ) -> Result<Program, String> {
        let program = self
            .check(source, optional)
            .map_err(|error| format!("compilation failed: {error}"))?;
        let found = program.output_type();
        if returns.iter().any(|ty| ty.is_exactly(found)) {
            return Ok(program);
        }
        let found = found.full_name();
        Err(match returns {
            [one] => format!("must evaluate to {} but got {found}", one.full_name()),
            many => {
                let names: Vec<String> = many.iter().map(Type::full_name).collect();
                format!(
                    "must evaluate to one of [{}] but got {found}",
                    names.join(" ")
                )
            }
        })
    }

    /// Compiles an expression and remembers an error.
    pub(crate) fn expression(
        &self,
        source: &str,
        optional: Optional,
        returns: &[Type],
    ) -> Expression {
        Expression {
            source: source.to_owned(),
            program: self.compile(source, optional, returns),
        }
    }

    /// Compiles a variable, and declares it for the expressions that follow.
    pub(crate) fn variable(
        &mut self,
        name: &str,
        source: &str,
        optional: Optional,
    ) -> Result<Program, String> {
        let program = self
            .check(source, optional)
            .map_err(|error| format!("compilation failed: {error}"));
        let ty = match &program {
            Ok(program) => field_type(program.output_type()),
            Err(_) => Type::Dyn,
        };
        let variables = self.variables.get_or_insert_default();
        variables.insert(name.to_owned(), ty);
        program
    }
}

/// Returns the type of a variable as other expressions see it. Objects and library types become
/// `dyn`.
fn field_type(ty: &Type) -> Type {
    match ty {
        Type::Bool
        | Type::Int
        | Type::Uint
        | Type::Double
        | Type::String
        | Type::Bytes
        | Type::Null
        | Type::Duration
        | Type::Timestamp => ty.clone(),
        Type::List(item) => Type::list(field_type(item)),
        Type::Map(key, value) => Type::map(field_type(key), field_type(value)),
        _ => Type::Dyn,
    }
}

/// The type of `request`.
static REQUEST: LazyLock<Type> = LazyLock::new(|| {
    let texts = |name: &str, fields: &[&'static str]| -> Type {
        Record::new(name, fields.iter().map(|field| (*field, Type::String))).into()
    };
    let kind = texts("kubernetes.GroupVersionKind", &["group", "version", "kind"]);
    let resource = texts(
        "kubernetes.GroupVersionResource",
        &["group", "version", "resource"],
    );
    let user = Record::new(
        "kubernetes.UserInfo",
        [
            ("username", Type::String),
            ("uid", Type::String),
            ("groups", Type::list(Type::String)),
            ("extra", Type::map(Type::String, Type::list(Type::String))),
        ],
    );
    let request = Record::new(
        "kubernetes.AdmissionRequest",
        [
            ("kind", kind.clone()),
            ("resource", resource.clone()),
            ("subResource", Type::String),
            ("requestKind", kind),
            ("requestResource", resource),
            ("requestSubResource", Type::String),
            ("name", Type::String),
            ("namespace", Type::String),
            ("operation", Type::String),
            ("userInfo", user.into()),
            ("dryRun", Type::Bool),
            ("options", Type::Dyn),
        ],
    );
    request.into()
});

/// The type of `namespaceObject`.
static NAMESPACE: LazyLock<Type> = LazyLock::new(|| {
    let texts = || Type::map(Type::String, Type::String);
    let metadata = Record::new(
        "kubernetes.NamespaceMetadata",
        [
            ("name", Type::String),
            ("generateName", Type::String),
            ("namespace", Type::String),
            ("labels", texts()),
            ("annotations", texts()),
            ("UID", Type::String),
            ("creationTimestamp", Type::Timestamp),
            ("deletionGracePeriodSeconds", Type::Int),
            ("deletionTimestamp", Type::Timestamp),
            ("generation", Type::Int),
            ("resourceVersion", Type::String),
            ("finalizers", Type::list(Type::String)),
        ],
    );
    let spec = Record::new(
        "kubernetes.NamespaceSpec",
        [("finalizers", Type::list(Type::String))],
    );
    let condition = Record::new(
        "kubernetes.NamespaceCondition",
        [
            ("status", Type::String),
            ("type", Type::String),
            ("lastTransitionTime", Type::Timestamp),
            ("message", Type::String),
            ("reason", Type::String),
        ],
    );
    let status = Record::new(
        "kubernetes.NamespaceStatus",
        [
            ("conditions", Type::list(condition.into())),
            ("phase", Type::String),
        ],
    );
    let namespace = Record::new(
        "kubernetes.Namespace",
        [
            ("metadata", metadata.into()),
            ("spec", spec.into()),
            ("status", status.into()),
        ],
    );
    namespace.into()
});
