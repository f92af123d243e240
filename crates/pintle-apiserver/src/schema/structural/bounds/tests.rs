use super::*;

#[test]
fn height_bounds_brackets_and_chains() {
    for (expression, expected) in [
        ("1", 1),
        ("1 + 1", 2),
        ("1+1+1 > 2", 4),
        ("- - -1", 1),
        ("1 - -1", 2),
        ("!!true", 1),
        ("self.a.b", 3),
        ("a.b && c.d.e || f", 3),
        ("((1))", 3),
        ("f(1, 2 + 2, 3)", 3),
        ("(1 + 1) + 1 + 1", 5),
        ("a ? b : c ? d : e", 3),
        ("a[0][0]", 4),
        ("x in [1, 2]", 3),
        ("self.all(x, x.y > 1)", 5),
        ("'((((' + r'\\' + \"\"\"]'\"]\"\"\"", 3),
        ("1 // + 1 + 1\n + 1", 2),
        ("self.`a-b`", 2),
    ] {
        assert_eq!(height(expression), Some(expected), "{expression}");
    }
}

#[test]
fn text_that_is_not_an_expression_counts_in_full() {
    for text in ["'\\q", "'a\nb'", "x'a'", "(", ")", "a & b", "#", "`a"] {
        assert_eq!(height(text), None, "{text}");
    }
    let hidden = format!("'\\q{}'", "+1".repeat(300));
    assert!(levels(&hidden).is_err());
    assert!(levels("'\\q' + 1").is_ok(), "left to the parser");
}
