//! Lists, maps and messages that an expression builds. As in cel-go, one that fails costs as much as
//! one that succeeds.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Evaluator;
use crate::ast::{Entry, Expr, Field, Id};
use crate::cost::{LIST_COST, MAP_COST, STRUCT_COST};
use crate::value::{EvalError, Evaluated, Key, Map, Message, Value, fail, no_such_overload};

impl<'a> Evaluator<'a> {
    pub(super) fn list(&mut self, items: &'a [(Id, bool)]) -> Evaluated {
        let values = self.items(items);
        self.context.charge(LIST_COST)?;
        Ok(Value::list(values?))
    }

    fn items(&mut self, items: &'a [(Id, bool)]) -> Result<Vec<Value>, EvalError> {
        let mut values = Vec::with_capacity(items.len());
        for &(item, optional) in items {
            match (self.eval(item)?, optional) {
                (Value::Optional(inner), true) => {
                    values.extend(inner.map(|value| (*value).clone()));
                }
                (_, true) => {
                    return Err(fail(
                        "cannot initialize optional list element from non-optional value",
                    ));
                }
                (value, false) => values.push(value),
            }
        }
        Ok(values)
    }

    pub(super) fn map(&mut self, id: Id) -> Evaluated {
        let Expr::Map(list) = self.ast.expr(id) else {
            return Err(no_such_overload());
        };
        let entries = self.entries(list);
        self.context.charge(MAP_COST)?;
        Ok(Value::Map(Arc::new(Map {
            entries: entries?,
            hidden: BTreeMap::new(),
        })))
    }

    fn entries(&mut self, list: &'a [Entry]) -> Result<BTreeMap<Key, Value>, EvalError> {
        let mut entries = BTreeMap::new();
        for entry in list {
            let key = self.eval(entry.key)?;
            let value = match (self.eval(entry.value)?, entry.optional) {
                (Value::Optional(None), true) => continue,
                (Value::Optional(Some(value)), true) => (*value).clone(),
                (_, true) => {
                    return Err(fail(
                        "cannot initialize optional entry from non-optional value",
                    ));
                }
                (value, false) => value,
            };
            entries.insert(Key::of(&key)?, value);
        }
        Ok(entries)
    }

    pub(super) fn message(&mut self, name: &Arc<str>, list: &'a [Field]) -> Evaluated {
        let fields = self.fields(list);
        self.context.charge(STRUCT_COST)?;
        let message = Message {
            name: name.trim_start_matches('.').into(),
            fields: fields?,
        };
        if let Some(field) = message.misfit() {
            return Err(fail(format!(
                "unexpected type for JSONPatchType '{field}' field"
            )));
        }
        Ok(Value::Message(Arc::new(message)))
    }

    fn fields(&mut self, list: &'a [Field]) -> Result<BTreeMap<Arc<str>, Value>, EvalError> {
        let mut fields = BTreeMap::new();
        for field in list {
            let value = match (self.eval(field.value)?, field.optional) {
                (Value::Optional(None), true) => continue,
                (Value::Optional(Some(value)), true) => (*value).clone(),
                (_, true) => {
                    return Err(fail(format!(
                        "cannot initialize optional entry '{}' from non-optional value",
                        field.name
                    )));
                }
                (value, false) => value,
            };
            fields.insert(field.name.clone(), value);
        }
        Ok(fields)
    }
}
