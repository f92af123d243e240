//! The page in a real browser, over the `DevTools` protocol.
//!
//! The program runs as a user starts it. Everything waits for conditions on the page; the page is
//! loaded once.

use std::{path::PathBuf, process::Stdio, time::Duration};

use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, Client, Config,
    api::{Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use sample_controller::foo::Foo;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::{sleep, timeout},
};

use crate::program::{Program, TIMEOUT};

/// Returns the path of Chromium. Panics with what to install if there is none.
fn chromium() -> PathBuf {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&folders)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|path| path.is_file())
        .expect("this test drives Chromium: apt-get install chromium, or run `bash .ci/run`")
}

/// A page in a headless Chromium, driven through a pipe.
struct Browser {
    _process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    session: String,
    next: u64,
    _profile: tempfile::TempDir,
}

impl Browser {
    async fn open(url: &str) -> Self {
        let profile = tempfile::tempdir().unwrap();
        // Chromium reads commands from descriptor 3 and writes responses to 4.
        let mut process = Command::new("sh")
            .args([
                "-c",
                r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#,
            ])
            .arg(chromium())
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
            ])
            .args(["--disable-dev-shm-usage", "--remote-debugging-pipe"])
            .arg("--window-size=1280,900")
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut browser = Self {
            input: process.stdin.take().unwrap(),
            output: BufReader::new(process.stdout.take().unwrap()),
            _process: process,
            session: String::new(),
            next: 0,
            _profile: profile,
        };
        let target = browser
            .call("Target.createTarget", json!({"url": url}))
            .await;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", attach).await;
        session["sessionId"]
            .as_str()
            .unwrap()
            .clone_into(&mut browser.session);
        browser
    }

    /// Calls a method of the protocol and returns its result.
    async fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let mut message = json!({"id": self.next, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let message = format!("{message}\0");
        self.input.write_all(message.as_bytes()).await.unwrap();
        loop {
            let mut answer = Vec::new();
            let read = self.output.read_until(0, &mut answer);
            let read = timeout(TIMEOUT, read)
                .await
                .expect("Chromium answers")
                .unwrap();
            assert!(read > 0, "Chromium has ended");
            answer.pop();
            let mut answer: Value = serde_json::from_slice(&answer).unwrap();
            // Events have no id.
            if answer["id"] == json!(self.next) {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].take();
            }
        }
    }

    /// Evaluates an expression on the page.
    async fn eval(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut answer = self.call("Runtime.evaluate", params).await;
        assert!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {answer}"
        );
        answer["result"]["value"].take()
    }

    /// Waits until an expression is true.
    async fn wait(&mut self, expression: &str) {
        let safe = format!(
            "(() => {{ try {{ return Boolean({expression}) }} catch {{ return false }} }})()"
        );
        let waited = timeout(TIMEOUT, async {
            while self.eval(&safe).await != json!(true) {
                sleep(Duration::from_millis(50)).await;
            }
        });
        if waited.await.is_err() {
            let text = self.eval("document.body.innerText").await;
            panic!(
                "{expression} did not become true on\n{}",
                text.as_str().unwrap()
            );
        }
    }

    /// Stores pictures of the page, light and dark, if `PINTLE_SCREENSHOTS` names a directory.
    async fn screenshot(&mut self, name: &str) {
        let Some(folder) = std::env::var_os("PINTLE_SCREENSHOTS") else {
            return;
        };
        for scheme in ["light", "dark"] {
            let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
            self.call("Emulation.setEmulatedMedia", features).await;
            let picture = self.call("Page.captureScreenshot", json!({})).await;
            let path = PathBuf::from(&folder).join(format!("{name}-{scheme}.png.base64"));
            std::fs::write(path, picture["data"].as_str().unwrap()).unwrap();
        }
    }
}

/// Proves inspect/live, inspect/why.
#[tokio::test]
async fn page_says_why_a_foo_is_not_ready() {
    let mut program = Program::start(&[]);
    let beginning = "Inspector on ";
    let lines = program.until(beginning).await;
    let url = lines[lines.len() - 1][beginning.len()..].to_owned();
    let hints = program.until("  export KUBECONFIG=").await;
    let (_, kubeconfig) = hints[hints.len() - 1].split_once('=').unwrap();
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    let client = Client::try_from(config).unwrap();
    let foos = Api::<Foo>::namespaced(client.clone(), "default");

    // A Foo that is ready.
    let mut browser = Browser::open(&url).await;
    browser.eval("window.unloaded = false").await;
    browser
        .wait("document.querySelector('tr.fine a.key').innerText === 'default/example-foo'")
        .await;
    browser.eval("window.stays = true").await;
    browser.screenshot("now").await;
    browser
        .eval("document.querySelector('a.key').click()")
        .await;
    browser
        .wait("document.querySelector('#why.fine').innerText.includes('is ready')")
        .await;

    // Scaled: what woke it and what it wrote appear without a reload.
    let scaled = Patch::Merge(json!({"spec": {"replicas": 3}}));
    let params = PatchParams::default();
    foos.patch("example-foo", &params, &scaled).await.unwrap();
    let entry = |text: &str| {
        format!(
            "[...document.querySelectorAll('.life li')].some((one) => one.innerText.includes({text:?}))"
        )
    };
    browser
        .wait(&entry("Woken: Foo default/example-foo was updated"))
        .await;
    browser
        .wait(&entry("Wrote: patch Deployment default/example-foo"))
        .await;
    browser.wait(&entry("spec.replicas")).await;
    browser.screenshot("key").await;
    browser
        .eval("document.querySelector('nav [data-key=tree]').click()")
        .await;
    browser
        .wait("document.querySelectorAll('.graph .node.Current').length === 6")
        .await;
    browser
        .wait("document.querySelectorAll('#edges path').length === 5")
        .await;
    browser.screenshot("tree").await;

    // Broken by a Deployment with another owner.
    let foreign: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "foreign"},
        "spec": {
            "selector": {"matchLabels": {"app": "foreign"}},
            "template": {
                "metadata": {"labels": {"app": "foreign"}},
                "spec": {"containers": [{"name": "web", "image": "web"}]},
            },
        },
    }))
    .unwrap();
    let deployments = Api::<Deployment>::namespaced(client, "default");
    deployments
        .create(&PostParams::default(), &foreign)
        .await
        .unwrap();
    let broken = Patch::Merge(json!({"spec": {"deploymentName": "foreign"}}));
    foos.patch("example-foo", &params, &broken).await.unwrap();
    browser
        .wait("document.querySelector('#why.failing').innerText.includes('Deployment default/foreign exists and has no controller')")
        .await;
    browser.screenshot("foreign").await;

    // The loop, by keyboard.
    let key = json!({"type": "keyDown", "key": "4", "text": "4"});
    browser.call("Input.dispatchKeyEvent", key).await;
    browser
        .wait("document.querySelector('h1').innerText === 'The loop' && document.querySelectorAll('.stage').length === 10")
        .await;
    browser.screenshot("loop").await;

    // Every control has a name, and the page was never loaded again.
    let unnamed = "[...document.querySelectorAll('a, button, input')].filter((one) => !(one.innerText || one.ariaLabel || one.labels?.length)).length";
    assert_eq!(browser.eval(unnamed).await, json!(0));
    assert_eq!(browser.eval("window.stays").await, json!(true));
    let foreign = "performance.getEntriesByType('resource').filter((one) => !one.name.startsWith(location.origin)).length";
    assert_eq!(browser.eval(foreign).await, json!(0));
    drop(program);
}

/// Proves inspect/trace.
#[tokio::test]
async fn page_opens_a_trace() {
    let mut program = Program::start(&[]);
    let beginning = "Inspector on ";
    let lines = program.until(beginning).await;
    let url = lines[lines.len() - 1][beginning.len()..].to_owned();
    program.until("Press Ctrl-C to stop.").await;
    let mut browser = Browser::open(&url).await;
    browser.wait("document.querySelector('a.key')").await;
    // Save the trace and open it again, as a user would.
    let open = "fetch('api/v1/trace' + location.search).then((answer) => answer.text())\
        .then((text) => open(new File([text.replaceAll('example-foo', 'recorded')], 'trace.json')))";
    browser.eval(open).await;
    browser
        .wait("document.querySelector('#live').innerText === 'trace' && document.querySelector('a.key').innerText === 'default/recorded'")
        .await;
    browser
        .eval("document.querySelector('a.key').click()")
        .await;
    browser
        .wait("document.querySelectorAll('.life li').length > 3")
        .await;
    browser
        .eval("document.querySelector('#close').click()")
        .await;
    browser
        .wait("document.querySelector('a.key').innerText === 'default/example-foo'")
        .await;
}
