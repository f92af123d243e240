use serde_json::json;

use super::*;

fn sample(peer: &str, cpu: f64) -> Sample {
    let line = json!({
        "peer": peer, "version": "1", "work": "sync", "streaming": false, "objects": 10, "count": 10,
        "user_s": cpu, "system_s": 0.5, "base_kib": 100, "steady_kib": 150, "peak_kib": 300,
        "extra": {"steady_before_kib": 200, "peak_kib": 1},
    });
    Sample::new("a case", 1, &line).unwrap()
}

#[test]
fn figures_are_computed_from_the_result() {
    let sample = sample("pintle", 1.5);
    let close = |figure: Figure, value: f64| (figure.of(&sample).unwrap() - value).abs() < 1e-9;
    assert!(close(Figure::CpuPerCount, 200_000.0));
    assert!(close(Figure::MemoryPerObject, 5.12));
    assert_eq!(Figure::LeastPerObject.of(&sample), None);
    for name in ["steady_gc_kib", "steady_trim_kib"] {
        let mut sample = sample.clone();
        sample.numbers.insert(name.into(), 125.0);
        let least = Figure::LeastPerObject.of(&sample).unwrap();
        assert!((least - 2.56).abs() < 1e-9, "{name}: {least}");
    }
    assert!(close(Figure::PeakOverSteady, 2.0));
    assert!(
        close(Figure::RelistPeak, 1.5),
        "expected the peak of the phase"
    );
    assert!(close(Figure::Raw("base_kib", 2.0), 200.0));
    assert_eq!(Figure::Raw("server_cpu_s", 1.0).of(&sample), None);
}

#[test]
fn medians_are_taken_per_case_and_peer() {
    let work = WorkResults {
        samples: vec![
            sample("pintle", 0.5),
            sample("pintle", 1.5),
            sample("kube-rs", 9.5),
        ],
        ..WorkResults::default()
    };
    let of = |case, peer| work.spread(case, peer, Figure::CpuPerCount);
    assert!((of("a case", "pintle").unwrap().median - 150_000.0).abs() < 1e-6);
    assert!(of("another", "pintle").is_none());
    assert_eq!(work.version("kube-rs"), Some("1"));
}

#[test]
fn results_round_trip_and_replace_one_benchmark() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("results.json");
    let mut results = Results::read(&file).unwrap();
    let work = |rounds| WorkResults {
        rounds,
        samples: vec![sample("pintle", 1.0)],
        ..WorkResults::default()
    };
    results.works.insert("sync".into(), work(1));
    results.works.insert("queue".into(), work(1));
    results.write(&file).unwrap();
    let mut results = Results::read(&file).unwrap();
    results.works.insert("queue".into(), work(2));
    results.write(&file).unwrap();
    let results = Results::read(&file).unwrap();
    assert_eq!(
        (results.works["sync"].rounds, results.works["queue"].rounds),
        (1, 2)
    );
    assert_eq!(results.works["sync"].samples.len(), 1);
}
