//! `cargo xtask generate`: generates the API server's tables of built-in kinds.
//!
//! There are two sources, both of one pinned Kubernetes version: a running kube-apiserver
//! (discovery and `/openapi/v3` for the served kinds, list and map types, merge keys and enums; and
//! the objects it creates at startup), and the Go types of its published modules (names, pointers,
//! `omitempty`, protobuf numbers). The tables contain names, numbers and types, but no prose.
//!
//! With `--check` nothing is written: the task fails if the tables differ from the committed ones.

mod go;
mod openapi;
mod seeds;
mod tables;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

/// The pinned Kubernetes version.
const VERSION: &str = "1.36.4";

/// Where the tables live.
const TABLES: &str = "crates/pintle-apiserver/src/schema/tables";

/// Options of `cargo xtask generate`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Kubeconfig of a kube-apiserver of the pinned version
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: PathBuf,
    /// The kubectl to query it with
    #[arg(long, default_value = "kubectl")]
    kubectl: PathBuf,
    /// The Go module cache holding the `k8s.io` modules [default: `go env GOMODCACHE`]
    #[arg(long)]
    modules: Option<PathBuf>,
    /// Compare with the committed tables instead of writing them
    #[arg(long)]
    check: bool,
}

/// Compares the committed tables with this server.
pub(crate) fn check(kubeconfig: PathBuf, kubectl: PathBuf) -> Result<()> {
    run(&Args {
        kubeconfig,
        kubectl,
        modules: None,
        check: true,
    })
}

/// Runs the task.
pub(crate) fn run(args: &Args) -> Result<()> {
    let server = Server { args };
    let version = server.get("/version")?;
    let found = version["gitVersion"].as_str().unwrap_or_default();
    ensure!(
        found == format!("v{VERSION}"),
        "the server is {found}, not v{VERSION}"
    );

    let documents = server.documents()?;
    let schemas = openapi::Schemas::of(&documents);
    let modules = match &args.modules {
        Some(path) => path.clone(),
        None => module_cache()?,
    };
    let api = modules.join(format!("k8s.io/api@v0.{}", &VERSION[2..]));
    if !api.is_dir() {
        download()?;
    }
    let mut source = go::Source::new(modules, format!("v0.{}", &VERSION[2..]));
    let types = tables::types(&mut source, &schemas)?;
    let resources = tables::resources(&server.discovery()?)?;
    let seeds = seeds::table(&server.seeds()?)?;
    put("types.txt", &types, args.check)?;
    put("resources.txt", &resources, args.check)?;
    put("seeds.txt", &seeds, args.check)
}

fn put(name: &str, text: &str, check: bool) -> Result<()> {
    let root = crate::workspace::root();
    let path = root.join(TABLES).join(name);
    if check {
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        ensure!(
            committed == text,
            "{} differs: run `cargo xtask generate`",
            path.display()
        );
        return Ok(());
    }
    std::fs::create_dir_all(root.join(TABLES))?;
    std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    println!("{} ({} bytes)", path.display(), text.len());
    Ok(())
}

fn module_cache() -> Result<PathBuf> {
    let out = Command::new("go")
        .args(["env", "GOMODCACHE"])
        .output()
        .context("running go")?;
    Ok(PathBuf::from(String::from_utf8(out.stdout)?.trim()))
}

/// Downloads the modules whose types are read.
fn download() -> Result<()> {
    let modules = [
        "api",
        "apimachinery",
        "apiextensions-apiserver",
        "kube-aggregator",
    ];
    let version = &VERSION[2..];
    let status = Command::new("go")
        .args(["mod", "download"])
        .args(modules.map(|module| format!("k8s.io/{module}@v0.{version}")))
        .status()
        .context("running go mod download")?;
    ensure!(status.success(), "go mod download failed");
    Ok(())
}

/// The running server, queried through kubectl so that every kind of kubeconfig works.
struct Server<'a> {
    args: &'a Args,
}

impl Server<'_> {
    fn get(&self, path: &str) -> Result<Value> {
        let out = Command::new(&self.args.kubectl)
            .arg("--kubeconfig")
            .arg(&self.args.kubeconfig)
            .args(["get", "--raw", path])
            .output()
            .context("running kubectl")?;
        if !out.status.success() {
            bail!(
                "GET {path}: {}",
                String::from_utf8_lossy(&out.stderr).trim()
            );
        }
        serde_json::from_slice(&out.stdout).with_context(|| format!("GET {path}: not JSON"))
    }

    /// Returns the OpenAPI document of every group and version.
    fn documents(&self) -> Result<Vec<Value>> {
        let index = self.get("/openapi/v3")?;
        let paths = index["paths"]
            .as_object()
            .context("/openapi/v3 has no paths")?;
        let mut documents = Vec::new();
        for (name, entry) in paths {
            let versioned = name == "api/v1" || name.matches('/').count() == 2;
            if versioned && name.starts_with("api") {
                let url = entry["serverRelativeURL"]
                    .as_str()
                    .context("no serverRelativeURL")?;
                documents.push(self.get(url)?);
            }
        }
        Ok(documents)
    }

    /// Returns the startup objects of each resource that has some.
    fn seeds(&self) -> Result<Vec<Value>> {
        let lists = seeds::RESOURCES.iter().map(|(group, plural, label)| {
            let label = label.replace('=', "%3D");
            self.get(&format!("/apis/{group}/v1/{plural}?labelSelector={label}"))
        });
        lists.collect()
    }

    /// Returns the resource list of every group and version, in the order they are served.
    fn discovery(&self) -> Result<Vec<Value>> {
        let mut lists = vec![self.get("/api/v1")?];
        let groups = self.get("/apis")?;
        for group in groups["groups"].as_array().context("/apis has no groups")? {
            for version in group["versions"].as_array().into_iter().flatten() {
                let name = version["groupVersion"]
                    .as_str()
                    .context("no groupVersion")?;
                lists.push(self.get(&format!("/apis/{name}"))?);
            }
        }
        Ok(lists)
    }
}
