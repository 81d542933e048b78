//! Agreement of the engines on patterns that both support.

use proptest::prelude::*;

use super::*;

fn linear(pattern: &str, options: &str) -> Option<Linear> {
    let pattern = Pattern::compile(pattern, options).unwrap();
    Linear::compile(&pattern.0.pattern, pattern.0.options)
}

/// Compares the engines; returns whether both support the pattern.
fn same(pattern: &str, options: &str, text: &str) -> bool {
    let Ok(compiled) = Pattern::compile(pattern, options) else { return false };
    let Some(linear) = Linear::compile(&compiled.0.pattern, compiled.0.options) else {
        return false;
    };
    let (quick, linear) = (compiled.0.quick.is_match(text.as_bytes()), linear.is_match(text));
    match (quick, linear) {
        (Ok(quick), Some(linear)) => {
            assert_eq!(quick, linear, "/{pattern}/{options} on {text:?}");
            true
        }
        _ => false,
    }
}

/// Texts for constructs in which engines may differ: ends of lines, ends of words, letters with
/// several cases.
const TEXTS: &[&str] = &[
    "",
    "\n",
    "\n\n",
    "a",
    "a\n",
    "a\n\n",
    "\na",
    "a\nb",
    "a\nb\n",
    "a\r\n",
    "b\r",
    "ab",
    "aab",
    "a b",
    "a\tb",
    "a\u{B}b",
    "a\u{85}b",
    "a\u{2028}b",
    "a\u{A0}b",
    "k",
    "K",
    "\u{212A}",
    "s",
    "S",
    "\u{17F}",
    "\u{E9}",
    "\u{C9}",
    "e\u{301}",
    "\u{DF}",
    "\u{1E9E}",
    "\u{3C3}",
    "\u{3C2}",
    "\u{661}",
    "7",
    "_",
    "-",
    "]",
    "[",
    "{",
    "a{,2}",
    "a{2",
    "aa",
    "<a>",
    "\\",
    "\u{7}",
    "\u{C}",
    "\0",
    "\u{7F}",
    "\u{80}",
    "\u{10FFFF}",
    "&",
    "~",
    "a-c",
    "a&&b",
    "word",
    "two words",
    "\u{E9}a",
];

/// Patterns at the limits of the shared language. Some are outside it; for those only PCRE2 is
/// used.
const PATTERNS: &[&str] = &[
    "a$",
    "a$\\n",
    "$",
    "^$",
    "^",
    "a\\z",
    "a\\Z",
    "\\Aa",
    "(a|b$)",
    "(a$|b)c",
    "a$|b$",
    "(a$)*",
    "^a|^b",
    "\\n^",
    "^\\n",
    "^(?=a)",
    "^|x",
    "(^)*a",
    "(?:^|b)+a",
    ".",
    ".$",
    "..",
    "a.b",
    "[^a]",
    "[^\\n]",
    "\\d",
    "\\D",
    "\\w",
    "\\W",
    "\\s",
    "\\S",
    "[\\s]",
    "[^\\s]",
    "[\\W]",
    "[^\\W]",
    "[\\d-]",
    "[-\\d]",
    "\\ba",
    "a\\b",
    "\\b\\w+\\b",
    "\\B",
    "k",
    "s",
    "[a-z]",
    "[^k]",
    "[^a-r]",
    "[K-S]",
    "[Z-a]",
    "\u{E9}",
    "[\u{E0}-\u{FF}]",
    "\\x41",
    "\\x{E9}",
    "\\x{212a}",
    "\\t",
    "\\a",
    "\\f",
    "\\v",
    "[\\v]",
    "\\h",
    "\\R",
    "\\N",
    "\\e",
    "\\Qa.b\\E",
    "a{2}",
    "a{,2}",
    "a{2,}",
    "a{1,2}",
    "a{ 2}",
    "a{2",
    "{",
    "a{0}",
    "a+?",
    "a++",
    "(a+)+",
    "a*+",
    "(?:a{1,2}){2}",
    "(?>a)",
    "(?i)k",
    "a(?i)b|K",
    "(?i:k)s",
    "(?-i)k",
    "(?s).",
    "(?s:.)b",
    "(?m)^b",
    "(?m:a$)",
    "(?x) a",
    "(?<n>a)b",
    "(?P<n>a)",
    "(a)\\1",
    "(a|)+b",
    "(|a)+b",
    "[[:alpha:]]",
    "[[:^alpha:]]",
    "[[:space:]]",
    "[[:punct:]]",
    "[[:upper:]]",
    "[[:lower:]x]",
    "[[:word:]-]",
    "[]a]",
    "[^]a]",
    "[]-a]",
    "[--a]",
    "[+--]",
    "[a-]",
    "[-a]",
    "[a-c-e]",
    "[a&&b]",
    "[a~~b]",
    "[a--b]",
    "[[a]]",
    "[a[b]",
    "[\\[]",
    "[\\-a]",
    "\\<a\\>",
    "\\-",
    "\\_",
    "\\&",
    "\\p{L}",
    "\\pL",
    "(*UCP)\\w",
    "(*CRLF)a$",
    "(?|a|b)",
    "(?#x)a",
    "a|",
    "()",
    "(?:)",
    "x*",
    "\\b{start}a",
    "(?U)a+",
    "(?R)?a",
];

#[test]
fn edges_of_the_shared_language() {
    let mut compared = 0;
    for pattern in PATTERNS {
        for options in ["", "i", "m", "s", "im", "ms", "ims", "x"] {
            for text in TEXTS {
                compared += usize::from(same(pattern, options, text));
            }
        }
    }
    assert!(compared > 20_000, "{compared}");
}

#[test]
fn the_shared_language() {
    let inside = [
        ("(a+)+$|b$", ""),
        ("^abc", ""),
        ("^[a-z0-9._%+-]+@[a-z0-9.-]+\\.[a-z]{2,}$", "i"),
        ("^\\s*(\\w+\\s?)*$", ""),
        ("(?i)mayfly\\d+", ""),
        ("^a.*b$", "ms"),
        ("\u{E9}+", ""),
        ("(?<year>\\d{4})-(?<month>\\d\\d)", ""),
    ];
    for (pattern, options) in inside {
        assert!(linear(pattern, options).is_some(), "{pattern}");
    }
    let outside = [
        ("a$\\n", ""),
        ("a^", "m"),
        ("(a)\\1", ""),
        ("(?=a)b", ""),
        ("a++", ""),
        ("\u{E9}", "i"),
        ("a b", "x"),
        ("\\p{L}", ""),
        ("\\B", ""),
        ("(a|\\A){0}1", ""),
        ("[--a]", ""),
        ("[a&&b]", ""),
        ("(?:a{1000}){1000}", ""),
    ];
    for (pattern, options) in outside {
        assert!(linear(pattern, options).is_none(), "{pattern}");
    }
}

/// Searches on which the quick program gives up are completed by the second program or by the
/// third.
#[test]
fn answers_where_the_quick_program_gives_up() {
    let many = "a".repeat(40);
    let lines = format!("{}\n", "ab".repeat(50_000));
    let cases = [
        ("(a+)+$|b$", "", format!("{many}c"), false),
        ("(a+)+$|b$", "", format!("{many}cb"), true),
        ("(a+)+$|b$", "", format!("{many}c{many}\n"), true),
        ("^(a|b)*$", "", lines.clone(), true),
        ("^(a|b)*$", "", format!("{lines}c"), false),
        // Outside the shared language.
        ("^(?!c)(a|b)*$", "", lines.clone(), true),
        ("^(?!c)(a|b)*$", "", format!("{lines}c"), false),
    ];
    for (pattern, options, text, expected) in cases {
        let pattern = Pattern::compile(pattern, options).unwrap();
        assert!(pattern.0.quick.is_match(text.as_bytes()).is_err(), "{pattern:?}");
        // First after the quick program, then directly.
        assert_eq!(pattern.is_match(&text), Ok(expected), "{pattern:?}");
        assert_eq!(pattern.is_match(&text), Ok(expected), "{pattern:?}");
        assert_eq!(
            pattern.is_match("c"),
            pattern.0.quick.is_match(b"c").map_err(UnfinishedSearch::from)
        );
    }
}

#[test]
fn an_unfinished_search_is_an_error() {
    let text = format!("{}c", "a".repeat(40));
    for pattern in ["^(?!b)(a+)+$", "^(a+)+\\1$", "(*LIMIT_MATCH=4000000000)^(?=a)(a+)+$"] {
        let pattern = Pattern::compile(pattern, "").unwrap();
        assert_eq!(pattern.is_match(&text), Err(UnfinishedSearch(-47)), "{pattern:?}");
        assert_eq!(pattern.is_match("b"), Ok(false), "{pattern:?}");
        let mut groups = pattern.groups();
        assert_eq!(pattern.find_at(&mut groups, &text, 0).map(|_| ()), Err(UnfinishedSearch(-47)));
    }
    assert_eq!(UnfinishedSearch(-47).in_operator("$regex").code(), ErrorCode(51156));
}

#[test]
fn groups_where_the_quick_program_gives_up() {
    let text = format!("{}c", "ab".repeat(5_000));
    let pattern = Pattern::compile("^((?:a|b)*)(c)", "").unwrap();
    assert!(pattern.0.quick.is_match(text.as_bytes()).is_err());
    let mut groups = pattern.groups();
    assert!(pattern.find_at(&mut groups, &text, 0).unwrap().is_some());
    assert_eq!((groups.count(), groups.get(2)), (3, Some((10_000, 10_001))));
    let pattern = Pattern::compile("(a+)+$|b$", "").unwrap();
    let text = format!("{}c", "a".repeat(40));
    assert!(pattern.find_at(&mut pattern.groups(), &text, 0).unwrap().is_none());
}

/// The automaton gives up on a text that needs ever new states.
#[test]
fn the_automaton_bounds_its_work() {
    let linear = linear("[ab]*a[ab]{800}c", "").unwrap();
    let mut bits = 1u32;
    let text: String = std::iter::repeat_with(|| {
        bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if bits >> 31 == 0 { 'a' } else { 'b' }
    })
    .take(1 << 20)
    .collect();
    assert_eq!(linear.is_match(&text), None);
}

#[test]
fn a_limit_of_steps_follows_those_of_the_pattern() {
    let cases = [
        ("a", "(*LIMIT_MATCH=7)a"),
        ("(*UCP)a", "(*LIMIT_MATCH=7)(*UCP)a"),
        ("(*UCP)(*LIMIT_MATCH=9)(*CR)a", "(*UCP)(*LIMIT_MATCH=9)(*LIMIT_MATCH=7)(*CR)a"),
        ("a(*LIMIT_MATCH=9)", "(*LIMIT_MATCH=7)a(*LIMIT_MATCH=9)"),
        ("(*LIMIT_", "(*LIMIT_MATCH=7)(*LIMIT_"),
    ];
    for (pattern, expected) in cases {
        assert_eq!(limited(pattern, 7), expected);
    }
    let wrong = Pattern::compile("(*UCP)a)", "").unwrap_err();
    let PatternFault::Invalid(reason) = wrong else { panic!("{wrong:?}") };
    assert!(reason.contains("at offset 7"), "{reason}");
}

/// Patterns with all shared constructs, and some others.
fn any_pattern() -> impl Strategy<Value = String> {
    let letters = prop::sample::select(vec![
        "a",
        "b",
        "k",
        "S",
        "\\n",
        " ",
        "-",
        "_",
        "1",
        ".",
        "\\d",
        "\\D",
        "\\w",
        "\\W",
        "\\s",
        "\\S",
        "\\x6b",
        "\\.",
        "\u{E9}",
        "\u{212A}",
        "[ab]",
        "[^a]",
        "[^k\\n]",
        "[a-s]",
        "[\\w-]",
        "[^\\W]",
        "[\\D]",
        "[[:alpha:]_]",
        "[^[:space:]]",
        "[k\u{E9}]",
        "[]b]",
    ]);
    let assertions = prop::sample::select(vec![
        "^", "$", "\\b", "\\A", "\\z", "\\Z", "\\B", "(?i)", "(?-i)", "(?m)", "(?s)", "(?-s)", "",
    ]);
    let leaf = prop_oneof![4 => letters, 2 => assertions].prop_map(str::to_owned);
    leaf.prop_recursive(5, 24, 4, |inner| {
        let several = || prop::collection::vec(inner.clone(), 1..4);
        let times = prop::sample::select(vec!["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?", "{0}"]);
        let open = prop::sample::select(vec!["(", "(?:", "(?i:", "(?s-i:", "(?m:", "(?-m:"]);
        prop_oneof![
            3 => several().prop_map(|parts| parts.concat()),
            2 => (open.clone(), several()).prop_map(|(open, parts)| format!("{open}{})", parts.join("|"))),
            2 => (open, inner.clone(), times.clone()).prop_map(|(open, part, times)| format!("{open}{part}){times}")),
            1 => (inner, times).prop_map(|(part, times)| format!("{part}{times}")),
        ]
    })
}

fn any_text() -> impl Strategy<Value = String> {
    let letter = prop::sample::select(vec![
        "a", "b", "k", "K", "s", "S", "\n", "\n", " ", "-", "_", "1", ".", "\r", "\u{B}", "\u{85}",
        "\u{E9}", "\u{C9}", "\u{212A}", "\u{17F}", "\u{2028}", "]",
    ]);
    prop::collection::vec(letter, 0..8).prop_map(|letters| letters.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(5000) })]

    #[test]
    fn engines_agree(
        pattern in any_pattern(),
        options in prop::sample::select(vec!["", "i", "m", "s", "im", "ims"]),
        texts in prop::collection::vec(any_text(), 8),
    ) {
        for text in &texts {
            same(&pattern, options, text);
        }
    }
}
