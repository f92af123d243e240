use serde_json::json;

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn range(name: &str, cidrs: &[&str]) -> ServiceCIDR {
    serde_json::from_value(json!({
        "metadata": { "name": name, "uid": name, "finalizers": [FINALIZER] },
        "spec": { "cidrs": cidrs },
    }))
    .unwrap()
}

fn deleted(mut range: ServiceCIDR) -> ServiceCIDR {
    range.metadata.deletion_timestamp = Some(Time(at(0)));
    range
}

fn step(range: &ServiceCIDR, others: &[ServiceCIDR], used: &[&str], now: i64) -> RangeStep {
    let all = others.iter().cloned().map(Arc::new);
    let mut all: Vec<_> = all.collect();
    all.push(Arc::new(range.clone()));
    let used: Vec<IpAddr> = used.iter().map(|it| it.parse().unwrap()).collect();
    plan_range(range, &all, &used, at(now))
}

fn ready(step: RangeStep) -> (String, String) {
    let RangeStep::Report(status) = step else {
        panic!("{step:?}");
    };
    let ready = status.conditions.unwrap().remove(0);
    (ready.status, ready.reason)
}

/// Proves services/ranges.
#[test]
fn new_range_is_protected_and_ready() {
    let mut new = range("new", &["203.0.113.0/24"]);
    new.metadata.finalizers = None;
    assert_eq!(step(&new, &[], &[], 0), RangeStep::Protect);
    let mut new = range("new", &["203.0.113.0/24"]);
    let RangeStep::Report(status) = step(&new, &[], &[], 0) else {
        panic!()
    };
    new.status = Some(*status);
    assert_eq!(step(&new, &[], &[], 5), RangeStep::None);
}

/// Proves services/ranges.
#[test]
fn deleted_range_waits_for_its_addresses() {
    let gone = deleted(range("gone", &["203.0.113.0/24"]));
    let blocked = ready(step(&gone, &[], &["203.0.113.10"], 60));
    assert_eq!(blocked, ("False".to_owned(), "Terminating".to_owned()));
    for outside in ["10.0.0.1", "203.0.113.0", "203.0.113.255", "2001:db8::1"] {
        assert_eq!(
            step(&gone, &[], &[outside], 60),
            RangeStep::Release,
            "{outside}"
        );
    }
    let wait = RangeStep::Wait(Duration::from_secs(4));
    assert_eq!(step(&gone, &[], &[], 6), wait);
    for other in ["203.0.112.0/20", "203.0.113.0/24", "203.0.113.8/29"] {
        let others = [range("other", &[other])];
        let freed = step(&gone, &others, &["203.0.113.10"], 60);
        assert_eq!(freed, RangeStep::Release, "{other}");
    }
    let elsewhere = [range("other", &["203.0.113.128/25"])];
    ready(step(&gone, &elsewhere, &["203.0.113.10"], 60));
}

/// Proves services/addresses.
#[test]
fn each_address_of_a_service_has_one_object() {
    let address = "10.96.0.10".parse().unwrap();
    let service = |name: &str| -> Service {
        serde_json::from_value(json!({
            "metadata": { "name": name, "namespace": "default" },
            "spec": { "clusterIPs": ["10.96.0.10"] },
        }))
        .unwrap()
    };
    let web = service("web");
    assert_eq!(addresses(&web), [address]);
    let AddressStep::Create(made) = plan_address(address, Some(&web), None) else {
        panic!()
    };
    assert_eq!(
        plan_address(address, Some(&web), Some(&made)),
        AddressStep::None
    );
    let other = service("other");
    assert_eq!(
        plan_address(address, Some(&other), Some(&made)),
        AddressStep::Delete
    );
    assert_eq!(
        plan_address(address, None, Some(&made)),
        AddressStep::Delete
    );
    let mut foreign = *made;
    foreign.metadata.labels = None;
    assert_eq!(
        plan_address(address, None, Some(&foreign)),
        AddressStep::None
    );
    let headless: Service =
        serde_json::from_value(json!({ "spec": { "clusterIPs": ["None"] } })).unwrap();
    assert!(addresses(&headless).is_empty());
}
