use super::*;

fn code(source: &str) -> String {
    mask(source, Keep::Code)
}

#[test]
fn literals_and_comments_are_blanked() {
    assert_eq!(code("a // b\nc"), "a     \nc");
    assert_eq!(code("a /* b /* c */\nd */ e"), "a             \n     e");
    assert_eq!(code(r#"f("x\"y", z)"#), "f(      , z)");
    assert_eq!(code("r#\"a\"b\"#;"), "        ;");
    assert_eq!(code(r"let b = b'\'' ;"), "let b = b     ;");
}

#[test]
fn lifetimes_and_names_ending_in_r_are_kept() {
    assert_eq!(code("fn f<'a>(x: &'a str) {}"), "fn f<'a>(x: &'a str) {}");
    assert_eq!(code("for\"x\""), "for   ");
    assert_eq!(code("('\"', \"b\")"), "(   ,    )");
}

#[test]
fn comments_can_be_kept() {
    assert_eq!(
        mask("// a \"b\n\"c\"", Keep::CodeAndComments),
        "// a \"b\n   "
    );
}
