//! Owned Deployments with an environment from a `HashMap` (stackabletech/airflow-operator#372): its
//! order differs between processes, so every restart rolls the Pods.

#![allow(clippy::disallowed_types, reason = "the order of a HashMap is the bug")]

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, Client, CustomResource, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use kube_runtime::{
    Controller,
    controller::Action,
    finalizer::{self, finalizer},
    watcher,
};
use pintle_trials::Cx;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "stranger.example.com",
    version = "v1",
    kind = "App",
    namespaced
)]
pub(crate) struct AppSpec {
    image: String,
    env: HashMap<String, String>,
}

type Failure = finalizer::Error<kube::Error>;

async fn reconcile(app: Arc<App>, context: Arc<(Client, bool)>) -> Result<Action, Failure> {
    let (client, broken) = (context.0.clone(), context.1);
    let namespace = app.namespace().unwrap_or_else(|| "default".to_owned());
    let apps = Api::<App>::namespaced(client.clone(), &namespace);
    let deployments = Api::<Deployment>::namespaced(client, &namespace);
    finalizer(&apps, "stranger.example.com/app", app, |event| async move {
        match event {
            finalizer::Event::Apply(app) => {
                let mut env: Vec<_> = app
                    .spec
                    .env
                    .iter()
                    .map(|(name, value)| json!({"name": name, "value": value}))
                    .collect();
                if !broken {
                    env.sort_by_key(|it| it["name"].to_string());
                }
                let deployment = json!({
                    "apiVersion": "apps/v1", "kind": "Deployment",
                    "metadata": {"name": app.name_any(),
                        "ownerReferences": [app.controller_owner_ref(&())]},
                    "spec": {
                        "selector": {"matchLabels": {"app": app.name_any()}},
                        "template": {
                            "metadata": {"labels": {"app": app.name_any()}},
                            "spec": {"containers": [
                                {"name": "app", "image": app.spec.image, "env": env},
                            ]},
                        },
                    },
                });
                let params = PatchParams::apply("apps").force();
                let patch = Patch::Apply(&deployment);
                deployments.patch(&app.name_any(), &params, &patch).await?;
                Ok(Action::await_change())
            }
            finalizer::Event::Cleanup(app) => {
                match deployments
                    .delete(&app.name_any(), &DeleteParams::default())
                    .await
                {
                    Ok(_) => Ok(Action::await_change()),
                    Err(kube::Error::Api(status)) if status.code == 404 => {
                        Ok(Action::await_change())
                    }
                    Err(error) => Err(error),
                }
            }
        }
    })
    .await
}

async fn controller(cx: Cx, broken: bool) {
    let client = cx.client();
    Controller::new(Api::<App>::all(client.clone()), watcher::Config::default())
        .owns(
            Api::<Deployment>::all(client.clone()),
            watcher::Config::default(),
        )
        .run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_secs(3)),
            Arc::new((client, broken)),
        )
        .for_each(async |_| ())
        .await;
}

fn app() -> App {
    let env = ["A", "B", "C", "D", "E", "F"].map(|it| (it.to_owned(), it.to_lowercase()));
    let spec = AppSpec {
        image: "app:1".to_owned(),
        env: HashMap::from(env),
    };
    App::new("app", spec)
}

super::twins!(controller, app(), Idempotent);
