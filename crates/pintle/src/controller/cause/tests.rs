use super::*;

fn described(cause: Cause, kinds: usize) -> String {
    let sources: Vec<String> = (0..kinds).map(|number| format!("Kind{number}")).collect();
    let described = Described {
        cause,
        sources: &sources,
    };
    described.to_string()
}

#[test]
fn causes_name_the_kind_and_the_change() {
    let cause = |number, change| described(Source::new(number).cause(change), 100);
    assert_eq!(cause(0, Change::Added), "Kind0 added");
    assert_eq!(cause(1, Change::Updated), "Kind1 updated");
    assert_eq!(cause(2, Change::Deleted), "Kind2 deleted");
    assert_eq!(cause(59, Change::Resync), "Kind59 resynced");
    assert_eq!(described(Cause::RETRIED, 1), "retried");
    assert_eq!(described(NEW_TERM, 1), "new term");
}

#[test]
fn kinds_beyond_the_limit_share_a_cause() {
    let last = usize::from(MAX_SOURCES) - 1;
    let cause = |number, kinds| described(Source::new(number).cause(Change::Deleted), kinds);
    assert_eq!(cause(last, last + 1), format!("Kind{last} deleted"));
    assert_eq!(cause(last, last + 2), "object deleted");
    assert_eq!(cause(10_000, 10_001), "object deleted");
}
