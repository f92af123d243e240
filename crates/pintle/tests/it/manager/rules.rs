//! A program's rules grant exactly the permissions that its requests need.

use std::collections::BTreeSet;

use http::Response;
use http_body_util::Full;
use k8s_openapi::api::{core::v1::Secret, policy::v1::PodDisruptionBudget};
use kube::{
    ResourceExt,
    core::{ApiResource, DynamicObject},
};
use pintle::{
    conditions::Readiness,
    events::EventType,
    informer::{InformerFactory, WatchInput},
    rbac::{Permission, Rules, Verb},
};

use super::*;
use crate::support::{config_map, delete};

/// The permissions that requests needed, as [`Permission`] prints them.
#[derive(Clone, Default)]
struct Needed(Arc<Mutex<BTreeSet<String>>>);

impl Needed {
    /// Returns a client whose requests are recorded. `streams` tells whether the server supports
    /// streaming lists.
    fn client(&self, server: &ApiServer, streams: bool) -> Client {
        let (inner, needed) = (server.service(), self.0.clone());
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let refused = !streams && query.contains("sendInitialEvents");
            let permission = permission(&request, &query).filter(|_| !refused);
            needed.lock().unwrap().extend(permission.clone());
            let needed = Arc::clone(&needed);
            let answer = inner.clone().oneshot(request);
            async move {
                if refused {
                    let status = json!({
                        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 422,
                        "reason": "Invalid", "message": "sendInitialEvents is forbidden",
                    });
                    let body = Full::from(status.to_string()).boxed_unsync();
                    let response = Response::builder().status(422).body(body);
                    return Ok(response.unwrap());
                }
                let answer = answer.await?;
                // An apply that creates needs both permissions.
                if answer.status() == 201
                    && let Some(place) = permission
                        .as_ref()
                        .and_then(|permission| permission.strip_prefix("patch "))
                {
                    needed.lock().unwrap().insert(format!("create {place}"));
                }
                Ok::<_, tower::BoxError>(answer.map(|body| {
                    let frames = http_body_util::BodyStream::new(body);
                    http_body_util::StreamBody::new(StreamExt::boxed(frames)).boxed_unsync()
                }))
            }
        });
        Client::new(service, "default")
    }
}

/// Returns the permission that a request needs, or `None` for discovery.
fn permission(request: &http::Request<Body>, query: &str) -> Option<String> {
    let mut parts = request.uri().path().trim_matches('/').split('/');
    let group = match parts.next()? {
        "api" => "",
        _ => parts.next()?,
    };
    let _version = parts.next()?;
    let mut rest: Vec<&str> = parts.collect();
    let mut place = String::new();
    if rest.len() > 2 && rest[0] == "namespaces" {
        place = format!(" in {}", rest[1]);
        rest.drain(..2);
    }
    let mut resource = (*rest.first()?).to_owned();
    if let Some(subresource) = rest.get(2) {
        resource = format!("{resource}/{subresource}");
    }
    let watches = query.split('&').any(|part| part == "watch=true");
    let verb = match (request.method().as_str(), rest.len()) {
        ("GET", _) if watches => "watch",
        ("GET", 1) => "list",
        ("GET", _) => "get",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", _) => "delete",
        (other, _) => panic!("no verb for {other}"),
    };
    if !group.is_empty() {
        resource = format!("{resource}.{group}");
    }
    // A watch of one name is authorized for that name.
    let selected = query.contains("metadata.name%3Doperator");
    let name = rest.get(1).copied().or(selected.then_some("operator"));
    let name = name.filter(|_| group == "coordination.k8s.io" && verb != "create");
    let name = name.map(|name| format!(" {name}")).unwrap_or_default();
    Some(format!("{verb} {resource}{name}{place}"))
}

/// Applies the children that an annotation names.
async fn reconcile(
    budget: Arc<PodDisruptionBudget>,
    cx: Context,
) -> Result<Action, ReconcileError> {
    let maps = budget.annotations()["maps"].split(',');
    let maps = maps.map(|name| config_map(name, "1"));
    cx.apply_set().children(maps).await?;
    cx.event(EventType::Normal, "Applied", "applied the maps");
    cx.report(&*budget, Readiness::ready("UpToDate", ""))
        .await?;
    Ok(Action::await_change())
}

fn program(client: Client, identity: &'static str) -> Manager {
    let informers = InformerFactory::new(client.clone()).namespace("default");
    let mut manager = manager(client)
        .informers(informers)
        .leader_election_with(move |election| election.identity(identity))
        .build();
    let declared = Rules::new()
        .applies_sets::<ConfigMap>()
        .reports::<PodDisruptionBudget>();
    let controller = Controller::<PodDisruptionBudget>::new("budgets", manager.informers())
        .owns::<ConfigMap>()
        .finalizer("example.com/maps", |_, _| async {
            Ok::<_, ReconcileError>(())
        })
        .declares(declared)
        .build(reconcile);
    manager.add(controller);
    manager
}

/// Proves permissions/derived.
#[tokio::test(start_paused = true)]
async fn rules_match_the_requests_of_a_program() {
    let (server, needed) = (ApiServer::builder().build(), Needed::default());
    let leader = program(needed.client(&server, true), "a");
    let rules = leader.rules();
    let leader = Running::start(leader);
    settle().await;
    let standby = Running::start(program(needed.client(&server, false), "b"));
    settle().await;

    let budgets = Api::<PodDisruptionBudget>::namespaced(server.client(), "default");
    let budget = json!({
        "metadata": {"name": "web", "annotations": {"maps": "m1,m2"}},
        "spec": {"minAvailable": 1},
    });
    create(&budgets, &serde_json::from_value(budget).unwrap()).await;
    sleep(Duration::from_mins(1)).await;
    let fewer = json!({"metadata": {"annotations": {"maps": "m1"}}});
    patch(&budgets, "web", fewer).await;
    sleep(Duration::from_mins(10)).await;
    delete(&budgets, "web").await;
    sleep(Duration::from_mins(1)).await;
    assert!(budgets.get_opt("web").await.unwrap().is_none());
    leader.stop().await;
    settle().await;
    standby.stop().await;

    let mut needed = needed.0.lock().unwrap().clone();
    // Not a request: OwnerReferencesPermissionEnforcement requires it for `blockOwnerDeletion`.
    needed.insert("update poddisruptionbudgets/finalizers.policy in default".to_owned());
    let allowed: BTreeSet<String> = rules.permissions().map(Permission::to_string).collect();
    let missing: Vec<_> = needed.difference(&allowed).collect();
    let superfluous: Vec<_> = allowed.difference(&needed).collect();
    assert!(missing.is_empty(), "missing {missing:?}");
    assert!(superfluous.is_empty(), "superfluous {superfluous:?}");
}

/// Proves permissions/derived.
#[tokio::test(start_paused = true)]
async fn rules_need_no_cluster() {
    let nowhere = tower::service_fn(|_: http::Request<Body>| async {
        Err::<Response<Body>, _>(tower::BoxError::from("a request was sent"))
    });
    let client = Client::new(nowhere, "default");
    let informers = InformerFactory::new(client);
    let permissions = |rules: Rules| {
        rules
            .permissions()
            .map(Permission::to_string)
            .collect::<Vec<_>>()
    };
    let controller = Controller::<ServiceAccount>::new("accounts", &informers);
    assert_eq!(
        permissions(controller.rules()),
        [
            "list serviceaccounts",
            "watch serviceaccounts",
            "create events.events.k8s.io",
            "patch events.events.k8s.io",
        ]
    );
    let controller = controller
        .watches::<Lease>(|_, _| Vec::new())
        .owns::<ConfigMap>()
        .finalizer("example.com/f", |_, _| async {
            Ok::<_, ReconcileError>(())
        });
    assert_eq!(
        permissions(controller.rules()),
        [
            "list configmaps",
            "watch configmaps",
            "list serviceaccounts",
            "watch serviceaccounts",
            "patch serviceaccounts",
            "update serviceaccounts/finalizers",
            "list leases.coordination.k8s.io",
            "watch leases.coordination.k8s.io",
            "create events.events.k8s.io",
            "patch events.events.k8s.io",
        ]
    );
}

/// Proves permissions/derived, controller/inputs.
#[tokio::test(start_paused = true)]
async fn rules_follow_the_namespaces_of_inputs() {
    let client = ApiServer::builder().build().client();
    let informers = InformerFactory::new(client.clone()).namespace("home");
    let own = WatchInput::<ServiceAccount>::new().namespaces(["blue", "green"]);
    let secrets = ApiResource::erase::<Secret>(&());
    let secrets = WatchInput::<DynamicObject>::of(secrets).all_namespaces();
    let elsewhere = WatchInput::<Lease>::new().cluster("east", client);
    let controller = Controller::of("accounts", own, &informers)
        .watches::<ConfigMap>(|_, _| Vec::new())
        .watches_from(secrets, |_, _| Vec::new())
        .watches_from(elsewhere, |_, _| Vec::new())
        .declares(Rules::new().writes::<Secret>([Verb::Delete]));
    let permissions: BTreeSet<String> = controller
        .rules()
        .permissions()
        .map(Permission::to_string)
        .collect();
    let expected = [
        "create events.events.k8s.io in blue",
        "create events.events.k8s.io in green",
        "delete secrets in blue",
        "delete secrets in green",
        "list configmaps in home",
        "list secrets",
        "list serviceaccounts in blue",
        "list serviceaccounts in green",
        "patch events.events.k8s.io in blue",
        "patch events.events.k8s.io in green",
        "watch configmaps in home",
        "watch secrets",
        "watch serviceaccounts in blue",
        "watch serviceaccounts in green",
    ];
    assert_eq!(permissions.into_iter().collect::<Vec<_>>(), expected);
}
