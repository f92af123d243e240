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
