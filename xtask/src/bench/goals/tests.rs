use super::*;

fn row(goal: Option<f64>, values: &[Option<f64>]) -> Row {
    super::row("a figure", goal, values.to_vec())
}

#[test]
fn ratios_are_relative_to_pintle() {
    let row = row(Some(5.0), &[Some(4.0), Some(40.0), None, Some(1.0)]);
    assert_eq!(row.cells(), ["4.00", "40.0 (10.0×)", "–", "1.00 (0.250×)"]);
    assert_eq!(row.reached(), Some(true));
}

#[test]
fn missed_and_unmeasured_goals_are_reported() {
    let mut text = String::new();
    let rows = [
        row(Some(5.0), &[Some(6.0)]),
        row(Some(5.0), &[None]),
        row(None, &[Some(1.0)]),
    ];
    one_table(&mut text, &["Pintle"], &rows);
    let lines: Vec<&str> = text.lines().skip(2).collect();
    assert_eq!(
        lines,
        [
            "| a figure | ≤ 5 | 6.00 | **missed** |",
            "| a figure | ≤ 5 | – | not measured |",
            "| a figure |  | 1.00 |  |",
        ]
    );
}

#[test]
fn extra_handler_cost_is_averaged() {
    let cost = further_handler(&[Some(1.0), None], &[Some(4.0), Some(1.0)]);
    assert_eq!(cost, [Some(1000.0), None]);
}

#[test]
fn negative_cost_is_shown() {
    let cost = further_handler(&[Some(4.0), Some(1.0)], &[Some(1.0), Some(4.0)]);
    assert_eq!(cost, [Some(-1000.0), Some(1000.0)]);
    let mut text = String::new();
    one_table(&mut text, &["Pintle", "peer"], &[row(Some(50.0), &cost)]);
    let line = "| a figure | ≤ 50 | -1,000 | 1,000 | met (within noise) |";
    assert!(text.ends_with(&format!("{line}\n")), "{text}");
}

#[test]
fn relative_goal_uses_the_peer_figure() {
    let row = |ours, theirs| Row {
        what: "a figure",
        goal: Some(Goal::PartOfPeer(4.0)),
        values: vec![ours, theirs],
    };
    assert_eq!(row(Some(10.0), Some(40.0)).reached(), Some(true));
    assert_eq!(row(Some(10.1), Some(40.0)).reached(), Some(false));
    assert_eq!(row(Some(10.0), None).reached(), None);
}

#[test]
fn goals_apply_to_like_for_like_rows_only() {
    let rows = libraries(&Results::default());
    let with_goal = |word: &str| {
        let rows = rows.iter().filter(|row| row.what.contains(word));
        rows.filter(|row| row.goal.is_some())
            .map(|row| row.what)
            .collect::<Vec<_>>()
    };
    assert!(with_goal("shipped").is_empty() && with_goal("stripped").is_empty());
    assert_eq!(with_goal("managedFields kept in all").len(), 4);
}
