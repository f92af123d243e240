use super::*;

fn lengths(collected: &Collected) -> Vec<usize> {
    collected
        .texts
        .iter()
        .map(|text| text.chars().count())
        .collect()
}

#[test]
fn warnings_that_fit_are_complete_and_unique() {
    let mut collected = Collected::default();
    for text in ["a", "", "b", "a"] {
        collected.add(text.to_owned());
    }
    assert_eq!(collected.texts, ["a", "b"]);
    collected.add("ä".repeat(MAX_TOTAL - 2));
    assert_eq!(lengths(&collected), [1, 1, MAX_TOTAL - 2]);
}

#[test]
fn warnings_that_do_not_fit_are_truncated() {
    let mut collected = Collected::default();
    collected.add("ä".repeat(MAX_TOTAL));
    collected.add("b".to_owned());
    assert_eq!(lengths(&collected), [MAX_TRUNCATED, 1]);
    for i in 0..MAX_WARNINGS {
        collected.add(format!("{i:04}{}", "c".repeat(MAX_TOTAL)));
    }
    // The last one was added while there was still room.
    assert_eq!(collected.texts.len(), MAX_TOTAL / MAX_TRUNCATED + 1);
    assert!(collected.length < MAX_TOTAL + MAX_TRUNCATED);
}

#[test]
fn number_of_warnings_is_bounded() {
    let mut collected = Collected::default();
    for i in 0..1000 {
        collected.add(format!("{i}"));
    }
    assert_eq!(collected.texts.len(), MAX_WARNINGS);
    assert_eq!(collected.seen.len(), MAX_WARNINGS);
}
