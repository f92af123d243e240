use super::*;

#[test]
fn count_is_the_total_of_the_profile() {
    let profile = "version: 1\nevents: Ir\nfn=(1) a\n1 2\n\ntotals: 1234\n";
    assert!((collected(profile).unwrap() - 1234.0).abs() < f64::EPSILON);
}

#[test]
fn empty_profile_is_an_error() {
    let error = collected("totals: 0\n").unwrap_err().to_string();
    assert!(error.contains(MEASURED), "{error}");
    assert!(collected("events: Ir\n").is_err());
}

#[test]
fn two_runs_must_agree() {
    assert!((agreed("a", 1000.0, 1004.0).unwrap() - 1000.0).abs() < f64::EPSILON);
    let error = agreed("a", 1000.0, 1006.0).unwrap_err().to_string();
    assert!(error.contains("not deterministic"), "{error}");
}

#[test]
fn results_keep_the_order_of_their_items() {
    let items: Vec<u32> = (0..100).collect();
    let doubled = on_all_cores(&items, |n| Ok(n * 2)).unwrap();
    assert!(
        doubled
            .iter()
            .zip(&items)
            .all(|(double, n)| *double == n * 2)
    );
    assert!(on_all_cores(&items, |n| if *n == 7 { bail!("seven") } else { Ok(()) }).is_err());
}
