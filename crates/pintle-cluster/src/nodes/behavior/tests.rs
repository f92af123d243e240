use super::*;

/// Proves nodes/script.
#[test]
fn every_word_is_read_and_written() {
    let all = NodeBehavior::lost()
        .not_ready()
        .disk_full()
        .memory_pressure()
        .pid_pressure();
    for behavior in [NodeBehavior::healthy(), NodeBehavior::lost(), all] {
        assert_eq!(behavior.to_string().parse(), Ok(behavior));
    }
    let error = "lost aflame".parse::<NodeBehavior>().unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"invalid node behavior "lost aflame": unknown word "aflame""#
    );
}
