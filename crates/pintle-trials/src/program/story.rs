//! Reads a story from a directory of YAML files.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use pintle_apiserver::{ApiServer, User};
use serde_json::Value;
use tokio::runtime::Builder;
use tower::ServiceExt;

use crate::{
    gateway::request::ResourceName,
    story::{Desired, KindRef, Step},
};

/// The content of a story directory.
#[derive(Debug, Default)]
pub(super) struct Files {
    pub(super) crds: Vec<Value>,
    pub(super) given: Vec<Desired>,
    pub(super) steps: Vec<Step>,
}

/// Reads a story directory.
pub(super) fn load(folder: &Path) -> Result<Files, String> {
    let mut documents = Vec::new();
    for file in files(folder)? {
        let text = std::fs::read_to_string(&file)
            .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        let values: Vec<Value> = serde_saphyr::from_multiple(&text)
            .map_err(|error| format!("{}: {error}", file.display()))?;
        let values = values.into_iter().filter(|value| !value.is_null());
        documents.extend(values.map(|value| (file.clone(), value)));
    }
    let mut found = Files::default();
    let (crds, objects): (Vec<_>, Vec<_>) = documents
        .into_iter()
        .partition(|(_, value)| value["kind"] == "CustomResourceDefinition");
    found.crds = crds.into_iter().map(|(_, crd)| crd).collect();
    let server = ApiServer::builder().build();
    for (file, value) in objects {
        let wrong = |why: &str| format!("{}: {why}", file.display());
        let kind = kind_of(&server, &found.crds, &value).map_err(|why| wrong(&why))?;
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let object = desired(kind, value).map_err(|why| wrong(&why))?;
        let is_delete = [".delete.yaml", ".delete.yml"]
            .iter()
            .any(|end| name.ends_with(end));
        if name.starts_with("given") {
            found.given.push(object);
        } else if is_delete {
            found.steps.push(Step::Delete(object));
        } else {
            let what = format!("apply {} of {name}", object.title());
            found.steps.push(Step::Apply(object, what));
        }
    }
    if found.steps.is_empty() {
        let folder = folder.display();
        return Err(format!("{folder} has no YAML file with an object to apply"));
    }
    Ok(found)
}

/// Returns the YAML and JSON files of a directory, sorted by name.
fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let wrong = |error| format!("cannot read {}: {error}", folder.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        let extension = path.extension().unwrap_or_default();
        if ["yaml", "yml", "json"].iter().any(|it| extension == *it) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn desired(kind: KindRef, mut value: Value) -> Result<Desired, String> {
    let meta = &value["metadata"];
    let Some(name) = meta["name"].as_str().map(str::to_owned) else {
        return Err(format!("a {} has no metadata.name", kind.kind));
    };
    let namespace = meta["namespace"].as_str().unwrap_or("default").to_owned();
    if kind.namespaced {
        value["metadata"]["namespace"] = namespace.clone().into();
    }
    Ok(Desired {
        kind,
        namespace,
        name,
        value,
    })
}

/// Returns the resource of an object, from the CRDs or from discovery.
fn kind_of(server: &ApiServer, crds: &[Value], value: &Value) -> Result<KindRef, String> {
    let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = api_version
        .split_once('/')
        .unwrap_or(("", api_version.as_str()));
    let found = |plural: &Value, namespaced: bool| KindRef {
        resource: ResourceName {
            group: group.to_owned(),
            plural: plural.as_str().unwrap_or_default().to_owned(),
        },
        version: version.to_owned(),
        kind: kind.clone(),
        namespaced,
    };
    for crd in crds {
        let spec = &crd["spec"];
        if spec["group"] == group && spec["names"]["kind"] == kind.as_str() {
            return Ok(found(
                &spec["names"]["plural"],
                spec["scope"] == "Namespaced",
            ));
        }
    }
    let path = if group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{group}/{version}")
    };
    let list = get(server, &path)?;
    let resources = list["resources"].as_array().into_iter().flatten();
    for resource in resources {
        let name = resource["name"].as_str().unwrap_or_default();
        if resource["kind"] == kind.as_str() && !name.contains('/') {
            return Ok(found(&resource["name"], resource["namespaced"] == true));
        }
    }
    Err(format!(
        "unknown kind {kind:?} of {api_version:?}; add its CRD to the directory"
    ))
}

fn get(server: &ApiServer, path: &str) -> Result<Value, String> {
    let runtime = Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|error| error.to_string())?;
    let request = Request::get(path)
        .body(Full::new(Bytes::new()))
        .map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let Ok(response) = server.service_as(User::admin()).oneshot(request).await;
        let Ok(body) = response.into_body().collect().await;
        Ok(serde_json::from_slice(&body.to_bytes()).unwrap_or_default())
    })
}
