//! Service accounts: tokens and secrets of Pods.

use super::*;

/// Proves objects/admission.
#[tokio::test]
async fn pod_gets_the_token_of_its_account() {
    let server = server();
    let http = http(&server);
    let bare = created(&http, PODS, &pod("bare")).await;
    assert!(bare["spec"]["volumes"].is_null(), "no account, no token");
    let account = json!({"metadata": {"name": "default"}, "imagePullSecrets": [{"name": "pull"}]});
    created(&http, ACCOUNTS, &account).await;
    let full = created(&http, PODS, &pod("full")).await;
    let spec = &full["spec"];
    assert_eq!(spec["serviceAccountName"], "default");
    assert_eq!(spec["imagePullSecrets"], json!([{"name": "pull"}]));
    let volume = &spec["volumes"][0];
    let name = volume["name"].as_str().unwrap();
    assert!(name.starts_with("kube-api-access-"), "{name}");
    assert_eq!(
        volume["projected"]["sources"][0]["serviceAccountToken"]["path"],
        "token"
    );
    assert_eq!(
        spec["containers"][0]["volumeMounts"],
        json!([{"name": name, "readOnly": true,
            "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}])
    );
    let mut none = pod("none");
    none["spec"]["automountServiceAccountToken"] = false.into();
    let none = created(&http, PODS, &none).await;
    assert!(none["spec"]["volumes"].is_null());
    let mut missing = pod("missing");
    missing["spec"]["serviceAccountName"] = "robot".into();
    assert_eq!(
        refused(&http, PODS, &missing).await,
        "pods \"missing\" is forbidden: error looking up service account default/robot: serviceaccount \"robot\" not found"
    );
}

/// Proves objects/admission.
#[tokio::test]
async fn token_is_mounted_unless_its_path_is_taken() {
    let server = server();
    let http = http(&server);
    let account = json!({"metadata": {"name": "default"}, "imagePullSecrets": [{"name": "pull"}]});
    created(&http, ACCOUNTS, &account).await;
    let mount = "/var/run/secrets/kubernetes.io/serviceaccount";
    let mut custom = pod("custom");
    custom["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    custom["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": mount}]);
    custom["spec"]["imagePullSecrets"] = json!([{"name": "mine"}]);
    let stored = created(&http, PODS, &custom).await;
    assert_eq!(stored["spec"]["volumes"].as_array().unwrap().len(), 1);
    assert_eq!(
        stored["spec"]["imagePullSecrets"],
        json!([{"name": "mine"}])
    );
    custom["metadata"]["name"] = "init".into();
    custom["spec"]["initContainers"] = json!([{"name": "i", "image": "x"}]);
    let stored = created(&http, PODS, &custom).await;
    let mounts = &stored["spec"]["initContainers"][0]["volumeMounts"];
    assert_eq!(mounts[0]["mountPath"], mount);
    assert_eq!(stored["spec"]["volumes"].as_array().unwrap().len(), 2);
    // A volume that another server has added is reused.
    let mut again = pod("again");
    again["spec"]["volumes"] = json!([{"name": "kube-api-access-x", "emptyDir": {}}]);
    let stored = created(&http, PODS, &again).await;
    assert_eq!(stored["spec"]["volumes"].as_array().unwrap().len(), 1);
    let mounts = &stored["spec"]["containers"][0]["volumeMounts"];
    assert_eq!(mounts[0]["name"], "kube-api-access-x");
    // A mirror Pod has no account.
    let mut mirror = pod("mirror");
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    mirror["spec"]["nodeName"] = "n".into();
    let mirror = created(&http, PODS, &mirror).await;
    assert!(mirror["spec"]["volumes"].is_null(), "{mirror}");
    // An account can disable the token for Pods that do not specify it.
    let quiet = json!({"metadata": {"name": "quiet"}, "automountServiceAccountToken": false});
    created(&http, ACCOUNTS, &quiet).await;
    let mut plain = pod("plain");
    plain["spec"]["serviceAccountName"] = "quiet".into();
    let stored = created(&http, PODS, &plain).await;
    assert!(stored["spec"]["volumes"].is_null());
}

/// Proves objects/admission.
#[tokio::test]
async fn account_can_limit_the_secrets_of_its_pods() {
    let server = server();
    let http = http(&server);
    let account = json!({"metadata": {"name": "default", "annotations":
        {"kubernetes.io/enforce-mountable-secrets": "true"}},
        "secrets": [{"name": "known"}], "imagePullSecrets": [{"name": "pull"}]});
    created(&http, ACCOUNTS, &account).await;
    let env = json!([{"name": "V", "valueFrom": {"secretKeyRef": {"name": "other", "key": "k"}}}]);
    let end = "is not allowed because service account default does not reference that";
    for (field, value, why) in [
        (
            "/spec/volumes",
            json!([{"name": "v", "secret": {"secretName": "other"}}]),
            format!("volume with secret.secretName=\"other\" {end} secret"),
        ),
        (
            "/spec/containers/0/env",
            env,
            format!(
                "container c with envVar V referencing secret.secretName=\"other\" {end} secret"
            ),
        ),
        (
            "/spec/imagePullSecrets",
            json!([{"name": "other"}]),
            format!("imagePullSecrets[0].name=\"other\" {end} imagePullSecret"),
        ),
    ] {
        let mut wants = pod("p");
        let (parent, key) = field.rsplit_once('/').unwrap();
        wants.pointer_mut(parent).unwrap()[key] = value.clone();
        let message = refused(&http, PODS, &wants).await;
        assert_eq!(message, format!("pods \"p\" is forbidden: {why}"));
        let known = match key {
            "imagePullSecrets" => "pull",
            _ => "known",
        };
        let known = value.to_string().replace("other", known);
        wants.pointer_mut(parent).unwrap()[key] = serde_json::from_str(&known).unwrap();
        wants["metadata"]["name"] = key.to_lowercase().into();
        created(&http, PODS, &wants).await;
    }
}

/// Proves objects/admission.
#[tokio::test]
async fn mirror_pods_reference_neither_accounts_nor_secrets() {
    let server = server();
    let http = http(&server);
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    created(&http, accounts, &json!({"metadata": {"name": "s"}})).await;
    let mirror = |spec: Value| {
        let mut pod = pod("p");
        pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        for (field, value) in spec.as_object().unwrap() {
            pod["spec"][field] = value.clone();
        }
        pod
    };
    let token = json!({"sources": [{"serviceAccountToken": {"path": "token"}}]});
    let published = json!({"driver": "d", "nodePublishSecretRef": {"name": "x"}});
    let from = json!([{"name": "c", "image": "x", "envFrom": [{"secretRef": {"name": "x"}}]}]);
    for (spec, why) in [
        (
            json!({"serviceAccountName": "s"}),
            "may not reference service accounts",
        ),
        (
            json!({"imagePullSecrets": [{"name": "x"}]}),
            "may not reference secrets",
        ),
        (json!({"containers": from}), "may not reference secrets"),
        (
            json!({"volumes": [{"name": "v", "secret": {"secretName": "x"}}]}),
            "may not reference secrets",
        ),
        (
            json!({"volumes": [{"name": "v", "csi": published}]}),
            "may not reference secrets",
        ),
        (
            json!({"volumes": [{"name": "v", "projected": token}]}),
            "may not use ServiceAccountToken volume projections",
        ),
    ] {
        assert_eq!(
            refused(&http, PODS, &mirror(spec)).await,
            format!("pods \"p\" is forbidden: a mirror pod {why}")
        );
    }
    let made = created(&http, PODS, &mirror(json!({}))).await;
    assert_eq!(made["spec"].get("serviceAccountName"), None);
}

/// Proves objects/admission.
#[tokio::test(start_paused = true)]
async fn pods_use_only_the_secrets_of_an_enforcing_account() {
    let server = server();
    let http = http(&server);
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = json!({"metadata": {"name": "s", "annotations":
            {"kubernetes.io/enforce-mountable-secrets": "T"}},
        "secrets": [{"name": "own"}], "imagePullSecrets": [{"name": "pull"}],
        "automountServiceAccountToken": false});
    // The annotation accepts every spelling of true that Go's ParseBool does.
    for value in ["1", "t", "TRUE", "True", "true", "T"] {
        let mut account = account.clone();
        account["metadata"]["name"] = format!("s{}", value.to_lowercase()).into();
        account["metadata"]["annotations"]["kubernetes.io/enforce-mountable-secrets"] =
            value.into();
        http.post(accounts, &account).await;
    }
    created(&http, accounts, &account).await;
    let under = |account: &str, spec: Value| {
        let mut pod = pod("p");
        pod["spec"]["serviceAccountName"] = account.into();
        for (field, value) in spec.as_object().unwrap() {
            pod["spec"][field] = value.clone();
        }
        pod
    };
    let from = |secret: &str| json!([{"name": "c", "image": "x", "envFrom": [{"secretRef": {"name": secret}}]}]);
    let variable = |secret: &str| {
        json!([{"name": "c", "image": "x", "env": [{"name": "V",
            "valueFrom": {"secretKeyRef": {"name": secret, "key": "k"}}}]}])
    };
    let volume = |secret: &str| json!([{"name": "v", "secret": {"secretName": secret}}]);
    let main = json!([{"name": "m", "image": "x"}]);
    let with_init = |init: Value| json!({"initContainers": init, "containers": main.clone()});
    for (spec, what) in [
        (
            json!({"volumes": volume("x")}),
            "volume with secret.secretName=\"x\"",
        ),
        (
            json!({"containers": from("x")}),
            "container c with envFrom referencing secret.secretName=\"x\"",
        ),
        (
            with_init(from("x")),
            "init container c with envFrom referencing secret.secretName=\"x\"",
        ),
        (
            json!({"containers": variable("x")}),
            "container c with envVar V referencing secret.secretName=\"x\"",
        ),
        (
            with_init(variable("x")),
            "init container c with envVar V referencing secret.secretName=\"x\"",
        ),
    ] {
        for account in ["s", "s1", "st", "strue"] {
            assert_eq!(
                refused(&http, PODS, &under(account, spec.clone())).await,
                format!(
                    "pods \"p\" is forbidden: {what} is not allowed because service account {account} does not reference that secret"
                )
            );
        }
    }
    let pulls = json!({"imagePullSecrets": [{"name": "pull"}, {"name": "x"}]});
    assert_eq!(
        refused(&http, PODS, &under("s", pulls)).await,
        "pods \"p\" is forbidden: imagePullSecrets[1].name=\"x\" is not allowed because service account s does not reference that imagePullSecret"
    );
    let own = json!({"containers": from("own"), "volumes": volume("own")});
    created(&http, PODS, &under("s", own)).await;
    let debug = |secret: &str| {
        json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "x",
            "envFrom": [{"secretRef": {"name": secret}}]}]}})
    };
    let path = format!("{PODS}/p/ephemeralcontainers");
    let (code, status) = http.merge(&path, &debug("x")).await;
    assert_eq!(
        (code, status["message"].as_str().unwrap()),
        (
            500,
            "ephemeral container e with envFrom referencing secret.secretName=\"x\" is not allowed because service account s does not reference that secret"
        )
    );
    let (code, status) = http.merge(&path, &debug("own")).await;
    assert_eq!(code, 200, "{status}");
}

/// Proves objects/admission.
#[tokio::test(start_paused = true)]
async fn secrets_that_a_webhook_adds_are_checked() {
    let server = server();
    let http = http(&server);
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = json!({"metadata": {"name": "s", "annotations":
        {"kubernetes.io/enforce-mountable-secrets": "true"}}});
    created(&http, accounts, &account).await;
    // Changes the Pod in the second round only, after every other mutating plugin has run.
    let rounds = Arc::new(AtomicUsize::new(0));
    let sneaky = Webhook::mutating("a.example.com", move |_| {
        let round = rounds.fetch_add(1, Ordering::Relaxed);
        let patch = json!([{"op": "add", "path": "/spec/volumes",
            "value": [{"name": "v", "secret": {"secretName": "x"}}]}]);
        let patch = if round == 0 { json!([]) } else { patch };
        async move { AdmissionResponse::allow().patch(patch) }
    })
    .rule(["CREATE"], [""], ["v1"], ["pods"])
    .field("reinvocationPolicy", json!("IfNeeded"));
    let label = Webhook::mutating("b.example.com", |_| async {
        AdmissionResponse::allow()
            .patch(json!([{"op": "add", "path": "/metadata/labels", "value": {"b": "b"}}]))
    })
    .rule(["CREATE"], [""], ["v1"], ["pods"]);
    let _sneaky = server.register_webhook(&sneaky).unwrap();
    let _label = server.register_webhook(&label).unwrap();
    let mut wants = pod("p");
    wants["spec"]["serviceAccountName"] = "s".into();
    wants["spec"]["automountServiceAccountToken"] = false.into();
    assert_eq!(
        refused(&http, PODS, &wants).await,
        "pods \"p\" is forbidden: volume with secret.secretName=\"x\" is not allowed because service account s does not reference that secret"
    );
}
