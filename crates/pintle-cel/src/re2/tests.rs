//! Patterns whose errors and matches were taken from Go's `regexp`.

use std::sync::Arc;

use proptest::prelude::*;

use super::cache::{Cache, MAX_TOTAL, OVERHEAD, compile};
use super::class::{CATEGORIES, SCRIPTS};
use super::{MAX_SIZE, Pattern};

/// Proves cel/patterns.
#[test]
fn errors_are_worded_like_go() {
    for (pattern, error) in [
        (r"a**", r"invalid nested repetition operator: `**`"),
        (r"a{2}{3}", r"invalid nested repetition operator: `{2}{3}`"),
        (r"a+*", r"invalid nested repetition operator: `+*`"),
        (r"a*??", r"invalid nested repetition operator: `*??`"),
        (r"a{1001}", r"invalid repeat count: `{1001}`"),
        (r"a{2,1}", r"invalid repeat count: `{2,1}`"),
        (r"(a{100}){100}", r"invalid repeat count: `{100}`"),
        (r"(?x)a b", r"invalid or unsupported Perl syntax: `(?x`"),
        (r"(?u)a", r"invalid or unsupported Perl syntax: `(?u`"),
        (r"(?R)a", r"invalid or unsupported Perl syntax: `(?R`"),
        (r"\u0041", r"invalid escape sequence: `\u`"),
        (
            r"\p{Alphabetic}",
            r"invalid character class range: `\p{Alphabetic}`",
        ),
        (r"^(?!x)", r"invalid or unsupported Perl syntax: `(?!`"),
        (r"(?=x)", r"invalid or unsupported Perl syntax: `(?=`"),
        (r"(?<=x)", r"invalid named capture: `(?<=x)`"),
        (r"(?<!x)", r"invalid named capture: `(?<!x)`"),
        (r"*a", r"missing argument to repetition operator: `*`"),
        (r"a|*", r"missing argument to repetition operator: `*`"),
        (r"(*)", r"missing argument to repetition operator: `*`"),
        (r"(a", r"missing closing ): `(a`"),
        (r"a)", r"unexpected ): `a)`"),
        (r"[a", r"missing closing ]: `[a`"),
        (r"[]a", r"missing closing ]: `[]a`"),
        (r"[z-a]", r"invalid character class range: `z-a`"),
        (r"\", r"trailing backslash at end of expression: ``"),
        (r"\8", r"invalid escape sequence: `\8`"),
        (r"\1", r"invalid escape sequence: `\1`"),
        (r"\C", r"invalid escape sequence: `\C`"),
        (r"\q", r"invalid escape sequence: `\q`"),
        (r"\pX", r"invalid character class range: `\pX`"),
        (r"\p", r"invalid character class range: `\p`"),
        (r"\p{Greek", r"invalid character class range: `\p{Greek`"),
        (r"[[:foo:]]", r"invalid character class range: `[:foo:]`"),
        (r"(?P<n>a", r"missing closing ): `(?P<n>a`"),
        (r"(?P<n", r"invalid named capture: `(?P<n`"),
        (r"(?P<a-b>x)", r"invalid named capture: `(?P<a-b>`"),
        (r"(?i", r"invalid or unsupported Perl syntax: `(?i`"),
        (r"(?-)", r"invalid or unsupported Perl syntax: `(?-)`"),
        (r"(?i-)a", r"invalid or unsupported Perl syntax: `(?i-)`"),
        (r"\x", r"invalid escape sequence: `\x`"),
        (r"\x4", r"invalid escape sequence: `\x4`"),
        (r"\x{110000}", r"invalid escape sequence: `\x{110000`"),
        (r"\x{}", r"invalid escape sequence: `\x{}`"),
        (r"\xzz", r"invalid escape sequence: `\xzz`"),
        (r"[\b]", r"invalid escape sequence: `\b`"),
        (
            r"x{999999999999}",
            r"invalid repeat count: `{999999999999}`",
        ),
        (
            r"a{1000}{2}",
            r"invalid nested repetition operator: `{1000}{2}`",
        ),
        (r"(?--i)", r"invalid or unsupported Perl syntax: `(?--`"),
        (r"[a-\d]", r"invalid escape sequence: `\d`"),
        (r"(?#c)", r"invalid or unsupported Perl syntax: `(?#`"),
        (r"++", r"missing argument to repetition operator: `+`"),
        (r"\Z", r"invalid escape sequence: `\Z`"),
        (r"\G", r"invalid escape sequence: `\G`"),
        (r"\h", r"invalid escape sequence: `\h`"),
        (r"(?>a)", r"invalid or unsupported Perl syntax: `(?>`"),
        (r"a++", r"invalid nested repetition operator: `++`"),
        (r"(?P=n)", r"invalid or unsupported Perl syntax: `(?P`"),
        (r"(?(1)a)", r"invalid or unsupported Perl syntax: `(?(`"),
        (r"\p{^}", r"invalid character class range: `\p{^}`"),
        (r"[\", r"trailing backslash at end of expression: ``"),
        (r"[a-", r"missing closing ]: `[a-`"),
        (r"{2}", r"missing argument to repetition operator: `{2}`"),
        (r"^*{2}", r"invalid nested repetition operator: `*{2}`"),
        (r"(?i)*", r"missing argument to repetition operator: `*`"),
    ] {
        let found = Pattern::parse(pattern).map(|pattern| pattern.size());
        assert_eq!(
            found,
            Err(format!("error parsing regexp: {error}")),
            "{pattern}"
        );
    }
}

/// Proves cel/patterns.
#[test]
fn matches_agree_with_go() {
    for (pattern, text, matches) in [
        (r"^{{.*}}$", "{{x}}", true),
        (r"^${[A-Z_]+}$", "${A}", false),
        (r"^\${[A-Z_]+}$", "${A}", true),
        (r"a{,5}", "a{,5}", true),
        (r"a{,5}", "aaa", false),
        (r"^\<a\>$", "<a>", true),
        (r"^[!--]$", "*", true),
        (r"^[!--]$", "-", true),
        (r"^[a&&b]$", "&", true),
        (r"^[a~~b]$", "~", true),
        (r"^[[a]$", "[", true),
        (r"^[]a]$", "]", true),
        (r"^[^]a]$", "]", false),
        (r"^\0$", "\u{0}", true),
        (r"^[^\0]$", "a", true),
        (r"^\012$", "\u{a}", true),
        (r"\bé", "aé", true),
        (r"\Bé", "aé", false),
        (r"\Bé", " é", true),
        (r"^\w$", "é", false),
        (r"^\d$", "٣", false),
        (r"^\s$", "\u{b}", false),
        (r"^[[:space:]]$", "\u{b}", true),
        (r"^[[:^alpha:]]$", "1", true),
        (r"^[[:word:]-]+$", "a-_", true),
        (r"(?i)^k$", "K", true),
        (r"(?i)^\w$", "K", true),
        (r"(?i)^[^k]$", "K", false),
        (r"(?i)^\W$", "K", false),
        (r"^.$", "\u{a}", false),
        (r"(?s)^.$", "\u{a}", true),
        (r"^a$", "a\u{a}", false),
        (r"(?m)^a$", "b\u{a}a\u{a}c", true),
        (r"(?m)^a$", "b\u{d}\u{a}a\u{d}\u{a}c", false),
        (r"\Aa\z", "a", true),
        (r"^\Qa.b\E+$", "a.bbb", true),
        (r"^\Qa.b", "a.b", true),
        (r"a(?i)*$", "aaa", true),
        (r"^(?:a(?i)b)c$", "aBc", true),
        (r"^(?:a(?i)b)c$", "aBC", false),
        (r"^(?P<n>a)(?P<n>b)?$", "ab", true),
        (r"^(?<n>a)$", "a", true),
        (r"^\pL\PL$", "a1", true),
        (r"^\p{^Lu}$", "a", true),
        (r"^\p{greek}$", "α", true),
        (r"^\p{Letter}$", "α", true),
        (r"^\p{lowercase letter}$", "a", true),
        (r"^\p{Any}$", "a", true),
        (r"^\p{LC}$", "a", true),
        (r"^\p{Cs}$", "a", false),
        (r"^\P{Cs}$", "a", true),
        (r"(?i)^\p{Lu}$", "a", true),
        (r"(?i)^\P{Lu}$", "a", false),
        (r"^[\p{L}\p{N} ]{1,128}$", "größe 1", true),
        (r"^\x41\x{42}\103$", "ABC", true),
        (r"^\a\f\t\n\r\v$", "\u{7}\u{c}\u{9}\u{a}\u{d}\u{b}", true),
        (r"^[\x{d800}]$", "a", false),
        (r"\x{d800}|b", "b", true),
        (r"^[\x{d000}-\x{e000}]$", "힣", true),
        (r"^*a", "a", true),
        (r"$*a", "a", true),
        (r"(|a)*b", "b", true),
        (r"()", "", true),
        (r"", "", true),
        (r"a||b", "c", true),
        (r"^x{0}$", "", true),
        (r"^x{0,0}y$", "y", true),
        (r"^x{2,}$", "xx", true),
        (r"^(?U)a+?$", "aaa", true),
        (r"^a{01}$", "a{01}", true),
        (r"^a{1,2,3}$", "a{1,2,3}", true),
        (r"^{$", "{", true),
        (r"^}$", "}", true),
        (r"^]$", "]", true),
        (r"\_", "_", true),
        (r"^[\w.-]+@[\w-]+$", "a.b-c@d-e", true),
        (r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "a-b", true),
        (r"^[+-]$", "-", true),
        (r"^[--/]$", ".", true),
        (r"^[a-]$", "-", true),
        (r"^[\d-z]$", "-", true),
        (r"^[a\-z]$", "b", false),
        (r"^[ -~]+$", "aZ~", true),
        (r"^#a b$", "#a b", true),
        (r"^é{2}$", "éé", true),
        (r"^[à-ü]+$", "éö", true),
        (r"(?i)^É$", "é", true),
        (r"(?i)ß", "ẞ", true),
        (r"^[^\x00-\x{10FFFF}]$", "a", false),
        (r"^(?i:a)b$", "Ab", true),
        (r"^(?s-m:.)$", "\u{a}", true),
        (r"^(?im)b$", "a\u{a}B", false),
    ] {
        let found = Pattern::parse(pattern).and_then(|pattern| pattern.is_match(text));
        assert_eq!(found, Ok(matches), "{pattern} on {text:?}");
    }
    for pattern in ["(?:a{10}){100}", r"\b{start}", "a{,5}{2}"] {
        compile(pattern).unwrap();
    }
}

#[test]
fn every_category_and_script_compiles() {
    for name in CATEGORIES.split(' ').chain(SCRIPTS.split(' ')) {
        compile(&format!("\\p{{{name}}}")).unwrap();
    }
    for name in [
        "Any",
        "ASCII",
        "Assigned",
        "Cs",
        "LC",
        "cased letter",
        "cntrl",
        "Old-Turkic",
    ] {
        compile(&format!("[\\P{{{name}}}]")).unwrap();
    }
}

#[test]
fn large_patterns_are_bounded() {
    // kube-openapi's pattern for host names, which repeats Unicode classes.
    let host = r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$";
    let pattern = Pattern::parse(host).unwrap();
    assert!(pattern.is_match("bücher.example").unwrap());
    let error = Pattern::parse(r"\p{L}{1000}").unwrap_err();
    assert_eq!(
        error,
        r"error parsing regexp: expression too large: `\p{L}{1000}`"
    );
    let nested = format!("{}a{}", "(?:a|".repeat(400), ")*".repeat(400));
    assert!(
        Pattern::parse(nested)
            .unwrap_err()
            .contains("nests too deeply")
    );
    let captures = format!("{}a{}", "(".repeat(999), ")".repeat(999));
    assert!(Pattern::parse(captures).unwrap().is_match("a").unwrap());
}

/// Proves cel/patterns.
#[test]
fn cache_drops_the_least_recently_used_within_its_bound() {
    let mut cache = Cache::new();
    let regex = regex::Regex::new("a").unwrap();
    let name = |i: usize| -> Arc<str> { format!("p{i}").into() };
    for i in 0..100 {
        cache.insert(name(i), regex.clone(), 1024 * 1024);
        assert!(cache.find("p0").is_some(), "dropped while in use, at {i}");
        assert!(cache.total() <= MAX_TOTAL);
    }
    assert!(cache.find("p99").is_some() && cache.find("p1").is_none());
    cache.insert(name(0), regex.clone(), 0);
    let before = cache.total();
    cache.insert(name(0), regex, 0);
    assert_eq!(cache.total(), before);
    assert!(before >= OVERHEAD && MAX_SIZE + OVERHEAD < MAX_TOTAL);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// Every pattern that parses also compiles, so validation never meets a pattern that does
    /// not compile.
    #[test]
    fn any_valid_pattern_compiles(parts in prop::collection::vec(prop::sample::select(vec![
        "a", "é", "{", "}", "{2}", "{0,3}", "{2,}", "{,1}", "*", "+", "?", "(", ")", "(?:", "(?i)",
        "(?s-m:", "(?mU)", "|", "^", "$", ".", "[", "]", "[^", "-", "a-z", "[:alpha:]", "[:^word:]",
        r"\b", r"\B", r"\d", r"\W", r"\pL", r"\P{Greek}", r"\0", r"\12", r"\x{d800}", r"\<", r"\Q", r"\E",
        "&&", "~~", "--", r"\\", "#", " ", r"\A", r"\z",
    ]), 0..12)) {
        let text = parts.concat();
        if Pattern::parse(text.as_str()).is_ok() {
            let compiled = compile(&text);
            prop_assert!(compiled.is_ok(), "{text}: {compiled:?}");
        }
    }
}
