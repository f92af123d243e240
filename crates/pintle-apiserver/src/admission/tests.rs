use std::sync::Arc;

use futures::FutureExt;
use parking_lot::Mutex;
use serde_json::json;

use super::*;
use crate::{
    ApiServer,
    api::{User, WriteOptions},
};

/// Records its calls, adds a field to the object, and requests reinvocation or fails as configured.
#[derive(Debug)]
struct Probe {
    name: &'static str,
    calls: Arc<Mutex<Vec<String>>>,
    wants: bool,
    reinvokes: bool,
    fails: bool,
}

impl Probe {
    fn new(name: &'static str, calls: &Arc<Mutex<Vec<String>>>) -> Self {
        Self {
            name,
            calls: Arc::clone(calls),
            wants: true,
            reinvokes: false,
            fails: false,
        }
    }

    fn record(&self, phase: &str) {
        self.calls.lock().push(format!("{} {phase}", self.name));
    }
}

impl Plugin for Probe {
    fn name(&self) -> &'static str {
        self.name
    }

    fn admits(&self, _: &Api, _: &Request<'_>) -> bool {
        self.wants
    }

    fn admit<'a>(
        &'a self,
        _: &'a Api,
        request: &'a Request<'a>,
        object: Option<&'a mut Tree>,
    ) -> Verdict<'a> {
        async move {
            let round = request.with_state(self.name, |rounds: &mut u32| {
                *rounds += 1;
                *rounds
            });
            self.record(&format!("admits {round}"));
            if self.reinvokes {
                request.reinvoke();
            }
            if let Some(object) = object {
                object.insert(self.name.into(), json!(round));
            }
            if self.fails {
                return Err(request.forbidden(None, "no"));
            }
            Ok(())
        }
        .boxed()
    }

    fn validates(&self, _: &Api, _: &Request<'_>) -> bool {
        self.wants
    }

    fn validate<'a>(&'a self, _: &'a Api, _: &'a Request<'a>, _: Option<&'a Tree>) -> Verdict<'a> {
        self.record("validates");
        std::future::ready(Ok(())).boxed()
    }
}

/// Runs both phases of a chain on an empty object. Returns the calls, the object, and any error.
async fn run(
    make: impl FnOnce(&Arc<Mutex<Vec<String>>>) -> Vec<Probe>,
) -> (Vec<String>, Tree, Option<ApiError>) {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let plugins = make(&calls).into_iter();
    let chain = Chain::new(plugins.map(|probe| Box::new(probe) as _).collect());
    let service = ApiServer::builder().build().service();
    let api = service.api();
    let catalog = api.registry.catalog();
    let resource = catalog.find("", "v1", "configmaps").unwrap();
    let (user, options) = (User::new("jane"), WriteOptions::default());
    let mut request = Request {
        operation: Operation::Create,
        resource,
        sub: "",
        exchanged: None,
        namespace: Some("default"),
        name: "settings",
        user: &user,
        options: &options,
        old: None,
        reinvocation: Reinvocation::default(),
    };
    let mut object = Tree::new();
    let mut result = chain.admit(api, &mut request, Some(&mut object)).await;
    if result.is_ok() {
        result = chain.validate(api, &request, Some(&object)).await;
    }
    let calls = calls.lock().clone();
    (calls, object, result.err())
}

#[tokio::test]
async fn every_plugin_admits_before_any_validates() {
    let (calls, object, error) =
        run(|calls| vec![Probe::new("a", calls), Probe::new("b", calls)]).await;
    assert!(error.is_none());
    assert_eq!(
        calls,
        ["a admits 1", "b admits 1", "a validates", "b validates"]
    );
    assert_eq!(json!(object), json!({"a": 1, "b": 1}));
}

#[tokio::test]
async fn uninterested_plugin_is_skipped() {
    let (calls, ..) = run(|calls| {
        let idle = Probe {
            wants: false,
            ..Probe::new("a", calls)
        };
        vec![idle, Probe::new("b", calls)]
    })
    .await;
    assert_eq!(calls, ["b admits 1", "b validates"]);
}

#[tokio::test]
async fn reinvocation_repeats_the_admit_phase_once() {
    let (calls, ..) = run(|calls| {
        let changing = Probe {
            reinvokes: true,
            ..Probe::new("b", calls)
        };
        vec![Probe::new("a", calls), changing]
    })
    .await;
    assert_eq!(
        calls,
        [
            "a admits 1",
            "b admits 1",
            "a admits 2",
            "b admits 2",
            "a validates",
            "b validates"
        ]
    );
}

#[tokio::test]
async fn first_error_ends_the_chain() {
    let (calls, _, error) = run(|calls| {
        let failing = Probe {
            fails: true,
            ..Probe::new("a", calls)
        };
        vec![failing, Probe::new("b", calls)]
    })
    .await;
    assert_eq!(calls, ["a admits 1"]);
    let error = error.unwrap();
    assert_eq!(error.message(), "configmaps \"settings\" is forbidden: no");
}
