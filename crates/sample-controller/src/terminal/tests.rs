use super::*;

/// Removes escape codes.
fn plain(line: &str) -> String {
    let mut parts = line.split('\x1b');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str(part.split_once('m').map_or("", |(_, text)| text));
    }
    text
}

#[test]
fn lines_are_cut_at_the_width_without_escape_codes() {
    assert_eq!(cut("short", 10), "short");
    assert_eq!(plain(&cut("a line that is too long", 10)), "a line th…");
    let painted = format!("\x1b[31mred{RESET}");
    assert_eq!(cut(&painted, 5), painted);
}

#[test]
fn control_characters_are_replaced() {
    assert_eq!(printable("ready: größe 😀"), "ready: größe 😀");
    assert_eq!(printable("a\nb\r\tc"), "a b  c");
    assert_eq!(
        printable("\x1b[2Ja\x07\u{9b}31m\x7f\u{202e}"),
        "\u{fffd}[2Ja\u{fffd}\u{fffd}31m\u{fffd}\u{fffd}"
    );
}
