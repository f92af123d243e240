use super::*;

#[test]
fn budgets_have_units() {
    assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
    assert_eq!(duration(" 2m "), Ok(Duration::from_secs(120)));
    assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
    assert_eq!(duration("2h"), Ok(Duration::from_secs(7200)));
}

fn options(variables: &[(&str, &str)]) -> Options {
    Options::from_variables(|name| {
        let found = variables.iter().find(|(it, _)| *it == name)?;
        Some(found.1.to_owned())
    })
}

fn errors(variables: &[(&str, &str)]) -> Vec<String> {
    options(variables).errors
}

/// Proves trials/settings.
#[test]
fn random_combinations_fill_an_explicit_budget() {
    let budget = ("PINTLE_TRIALS_BUDGET", "60s");
    let seeds = ("PINTLE_TRIALS_SEEDS", "20");
    assert_eq!(options(&[]).seeds, Some(0));
    assert_eq!(options(&[budget]).seeds, None);
    assert_eq!(options(&[budget, seeds]).seeds, Some(20));
}

/// Proves trials/settings.
#[test]
fn invalid_variables_are_errors_that_name_them() {
    for (name, value, why) in [
        ("PINTLE_TRIALS_BUDGET", "soon", "is not a duration"),
        ("PINTLE_TRIALS_BUDGET", "5d", "is not a duration"),
        ("PINTLE_TRIALS_BUDGET", "9999999999999999h", "is too long"),
        ("PINTLE_TRIALS_JOBS", "all", "is not a number"),
        ("PINTLE_TRIALS_JOBS", "0", "expected at least 1"),
        ("PINTLE_TRIALS_SEED", "-1", "is not a number"),
        ("PINTLE_TRIALS_SEEDS", "1e3", "is not a number"),
    ] {
        let found = errors(&[(name, value)]);
        assert_eq!(found.len(), 1, "{name}={value}: {found:?}");
        let is_named = found[0].starts_with(&format!("{name}: "));
        assert!(is_named && found[0].contains(why), "{found:?}");
    }
}

#[test]
fn valid_and_empty_variables_are_accepted() {
    let valid = [
        ("PINTLE_TRIALS_BUDGET", "10m"),
        ("PINTLE_TRIALS_JOBS", "3"),
        ("PINTLE_TRIALS_SEED", ""),
        ("PINTLE_TRIALS_SEEDS", " 20 "),
    ];
    assert_eq!(errors(&valid), [""; 0]);
}

#[test]
fn families_match_with_their_variants() {
    let mut options = Options::from_env();
    options.without.push(("delay".to_owned(), String::new()));
    assert!(!options.wants("delay-100ms"));
    assert!(options.wants("cut"));
    options.only = Some(["error".to_owned()].into());
    assert!(options.wants("error-500"));
    assert!(!options.wants("errors-503x4"));
}
