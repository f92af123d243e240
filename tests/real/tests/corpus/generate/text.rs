//! Strings that match a pattern or a format.

use regex::Regex;
use regex_syntax::hir::{Class, Hir, HirKind};
use serde_json::Value;

/// Strings to try if a derived one does not match.
const CANDIDATES: &[&str] = &[
    "a",
    "1",
    "1h",
    "1Gi",
    "abc",
    "example.com",
    "example.com/a",
    "https://example.com",
    "/a",
    "10.0.0.0/16",
    "10.0.0.1",
    "Abc",
    "v1",
    "a-b",
    "80",
    "1.2.3",
    "v1.2.3",
    "*",
    "",
];

/// Returns a string that satisfies `schema`, or one that nearly does.
pub(super) fn valid(schema: &Value) -> String {
    if let Some(text) = formatted(schema["format"].as_str().unwrap_or_default()) {
        return text.to_owned();
    }
    let least = usize::try_from(schema["minLength"].as_u64().unwrap_or(0)).unwrap_or(0);
    let most = schema["maxLength"].as_u64().unwrap_or(u64::MAX);
    let fits = |text: &str| {
        let length = text.chars().count();
        length >= least && (length as u64) <= most
    };
    let Some(pattern) = schema["pattern"].as_str() else {
        let plain = "a".repeat(least.clamp(1, 4096));
        return if fits(&plain) { plain } else { String::new() };
    };
    let regex = Regex::new(pattern);
    let matches = |text: &str| regex.as_ref().is_ok_and(|it| it.is_match(text));
    let derived = regex_syntax::parse(pattern).map(|hir| {
        [0, 1, 2].map(|more| {
            let mut text = String::new();
            derive(&hir, more, &mut text);
            text
        })
    });
    let derived: Vec<String> = derived.map(Vec::from).unwrap_or_default();
    let all = derived
        .iter()
        .map(String::as_str)
        .chain(CANDIDATES.iter().copied());
    let mut matching = all.filter(|text| matches(text));
    let first = matching.clone().next();
    matching
        .find(|text| fits(text))
        .or(first)
        .unwrap_or("a")
        .to_owned()
}

/// Appends a string that the expression matches, with `more` repetitions than necessary.
fn derive(hir: &Hir, more: u32, out: &mut String) {
    if out.len() > 4096 {
        return;
    }
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => out.push_str(&String::from_utf8_lossy(&literal.0)),
        HirKind::Class(Class::Unicode(class)) => {
            let plain = |c: char| {
                class
                    .iter()
                    .any(|range| range.start() <= c && c <= range.end())
            };
            let found = "a1A-/.".chars().find(|c| plain(*c));
            let found = found.or_else(|| {
                class
                    .iter()
                    .next()
                    .map(regex_syntax::hir::ClassUnicodeRange::start)
            });
            out.extend(found);
        }
        HirKind::Class(Class::Bytes(class)) => {
            out.extend(class.iter().next().map(|range| char::from(range.start())));
        }
        HirKind::Repetition(repetition) => {
            let most = repetition.max.unwrap_or(u32::MAX);
            for _ in 0..repetition.min.saturating_add(more).min(most).min(300) {
                derive(&repetition.sub, 0, out);
            }
        }
        HirKind::Capture(capture) => derive(&capture.sub, more, out),
        HirKind::Concat(parts) => parts.iter().for_each(|part| derive(part, more, out)),
        HirKind::Alternation(parts) => {
            if let Some(first) = parts.first() {
                derive(first, more, out);
            }
        }
    }
}

fn formatted(format: &str) -> Option<&'static str> {
    Some(match format {
        "date-time" | "datetime" => "2024-01-02T03:04:05Z",
        "date" => "2024-01-02",
        "byte" => "YWJj",
        "uuid" | "uuid4" => "123e4567-e89b-42d3-a456-426614174000",
        "uuid3" => "123e4567-e89b-32d3-a456-426614174000",
        "uuid5" => "123e4567-e89b-52d3-a456-426614174000",
        "email" => "a@example.com",
        "ipv4" => "10.0.0.1",
        "ipv6" => "2001:db8::1",
        "cidr" => "10.0.0.0/16",
        "uri" => "https://example.com/a",
        "hostname" => "example.com",
        "mac" => "00:00:5e:00:53:01",
        "duration" => "1h",
        _ => return None,
    })
}
