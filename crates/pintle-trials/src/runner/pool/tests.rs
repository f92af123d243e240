use super::line;

#[test]
fn progress_is_a_bar() {
    let shown = format!("[{}{}]", "#".repeat(15), "-".repeat(15));
    let expected = format!("single faults {shown} 10 done, 1 failed, 10 left");
    assert_eq!(line("single faults", 10, 1, Some(20)), expected);
    assert!(line("x", 0, 0, Some(0)).contains("0 left"));
    let endless = line("random combinations", 7, 0, None);
    assert_eq!(endless, "random combinations: 7 done, 0 failed");
}
