//! Terms of analyzers. The expectations are those of the manual's page "Analyzers" and of Lucene's
//! documentation of the analyzer.

use super::analyze::Terms;
use crate::definition::{AnalyzerName, AutocompleteField, Grams, ScoreFunction};
use crate::fault::FieldPath;

#[track_caller]
fn gives(analyzer: &str, text: &str, terms: &[&str]) {
    let mut found = Terms::default();
    found.add(AnalyzerName::find(&FieldPath::root(), analyzer).unwrap(), text);
    let found: Vec<&str> = found.tokens.iter().map(|token| token.text.as_str()).collect();
    assert_eq!(found, terms, "{analyzer}");
}

#[test]
fn analyzers_find_terms() {
    let text = "Lion-hearted KING's 3.5 naïve_word";
    gives("lucene.standard", text, &["lion", "hearted", "king's", "3.5", "naïve_word"]);
    gives("lucene.simple", text, &["lion", "hearted", "king", "s", "naïve", "word"]);
    gives("lucene.whitespace", text, &["Lion-hearted", "KING's", "3.5", "naïve_word"]);
    gives("lucene.keyword", text, &[text]);
    gives("lucene.stop", "The lion AND a king", &["lion", "king"]);
    gives("lucene.english", "The runner's ponies were running", &["runner", "poni", "were", "run"]);
    gives("lucene.french", "l'avion et les amis", &["avion", "amis"]);
    gives("lucene.german", "die Häuser", &["haus"]);
    gives("lucene.standard", "", &[]);
    let long = "x".repeat(300);
    gives("lucene.standard", &long, &[&long[..255], &long[255..]]);
}

/// Wrong stems that are known: Lucene gives `apolog` and `yav`. The rules for `ying` and for two
/// equal letters meet other rules.
#[test]
fn some_made_up_words_have_other_stems_than_in_lucene() {
    gives("lucene.english", "apologyings yavving", &["apologi", "yavv"]);
}

#[test]
fn stop_words_leave_gaps_and_array_items_none() {
    let mut terms = Terms::default();
    let stop = AnalyzerName::find(&FieldPath::root(), "lucene.stop").unwrap();
    terms.add(stop, "king of lions");
    terms.add(stop, "x");
    let positions: Vec<usize> = terms.tokens.iter().map(|token| token.position).collect();
    assert_eq!(positions, [0, 2, 3]);
}

#[test]
fn parts_of_words() {
    let parts = |grams, text: &str| {
        let field = AutocompleteField {
            analyzer: None,
            lengths: (2, 3),
            folds_diacritics: true,
            grams,
            score: ScoreFunction::Bm25,
        };
        let mut terms = Terms::default();
        terms.add_parts(&field, text);
        terms.tokens.into_iter().map(|token| token.text).collect::<Vec<_>>()
    };
    assert_eq!(parts(Grams::Edge, "Élan x"), ["el", "ela"]);
    assert_eq!(parts(Grams::RightEdge, "lion"), ["on", "ion"]);
    assert_eq!(parts(Grams::Every, "lion"), ["li", "io", "on", "lio", "ion"]);
}

/// The syntax is that of Lucene's class `RegExp`.
#[test]
fn regular_expressions() {
    use super::regex::Regex;
    let matches =
        |pattern: &str, text: &str| Regex::new(pattern).unwrap().matcher().matches(text).unwrap();
    for (pattern, yes, no) in [
        ("", &[""][..], &["a"][..]),
        ("a.c", &["abc", "a\nc"], &["ac", "abcd"]),
        ("ab?c+d*", &["ac", "abccdd"], &["abd"]),
        ("(ab|c){2}", &["abc", "cc", "abab"], &["ab", "abcc"]),
        ("a{2,}", &["aa", "aaaa"], &["a"]),
        ("a{1,3}b", &["ab", "aaab"], &["b", "aaaab"]),
        ("[a-cx]", &["b", "x"], &["d", "-"]),
        ("[^a-c]", &["d", "ü"], &["a", "dd"]),
        ("[]a]", &["]", "a"], &["b"]),
        ("[a-]", &["-", "a"], &["b"]),
        ("\\d\\s\\w", &["1 a"], &["a a"]),
        ("\\D\\S\\W", &["a1-"], &["1a-"]),
        ("a\\.b", &["a.b"], &["axb"]),
        ("\"a.b\"", &["a.b"], &["axb"]),
        ("@b@", &["b", "abc"], &["ac"]),
        ("#|a", &["a"], &[""]),
        ("~(ab)", &["", "a", "abc"], &["ab"]),
        ("[a-z]*&.{3}", &["abc"], &["ab", "a1c"]),
        ("()", &[""], &["a"]),
        ("<1-25>", &["1", "9", "10", "25", "0007", "025"], &["0", "26", "", "100"]),
        ("<01-25>", &["01", "19", "25"], &["1", "00", "26", "001"]),
        ("a<305-298>b", &["a298b", "a300b", "a305b"], &["a297b", "a306b"]),
        ("<0-7>", &["0", "7"], &["8", "00"]),
        ("ü+", &["üü"], &["u"]),
    ] {
        yes.iter().for_each(|text| assert!(matches(pattern, text), "{pattern} {text:?}"));
        no.iter().for_each(|text| assert!(!matches(pattern, text), "{pattern} {text:?}"));
    }
    for pattern in [
        "(",
        "a)",
        "[a",
        "a{",
        "a{2",
        "a{3,1}",
        "*",
        "a||b",
        "|",
        "\\",
        "\\p",
        "<1-9",
        "<1>",
        "<a-b>",
        "<1-99999999999>",
        "\"a",
        "(a{1000}){1000}",
        "a{2000}",
        &"(".repeat(100),
        "[b-a]",
    ] {
        assert!(Regex::new(pattern).is_err(), "{pattern}");
    }
    // A pattern of which an automaton has very many states.
    let regex = Regex::new("(a|b)*a(a|b){300}").unwrap();
    let text: String = (0..4_000).map(|at| if at % 3 == 0 { 'a' } else { 'b' }).collect();
    let _ = regex.matcher().matches(&text);
    assert_eq!(Regex::new("ab[c]d").unwrap().prefix(), "abcd");
    assert_eq!(Regex::new("ab*").unwrap().prefix(), "a");
}

proptest::proptest! {
    #[test]
    fn an_interval_has_the_numbers_between_its_ends(
        left in 0..2_000_u64, right in 0..2_000_u64, number in 0..2_500_u64, zeros in 0..3_usize,
    ) {
        let regex = super::regex::Regex::new(&format!("<{left}-{right}>")).unwrap();
        let text = format!("{}{number}", "0".repeat(zeros));
        let (least, most) = (left.min(right), left.max(right));
        let len = least.to_string().len();
        let is_fixed = len == most.to_string().len();
        let fits = (least..=most).contains(&number) && (!is_fixed || text.len() == len);
        proptest::prop_assert_eq!(regex.matcher().matches(&text), Some(fits));
    }

    #[test]
    fn no_pattern_makes_the_parser_panic(
        pattern in "[ab().|*+?{}\\[\\]0-9,~&#@\"\\\\^-]{0,12}", text in "[ab0]{0,6}",
    ) {
        if let Ok(regex) = super::regex::Regex::new(&pattern) {
            let result = regex.matcher().matches(&text);
            if result == Some(true) {
                proptest::prop_assert!(text.starts_with(&regex.prefix()));
            }
        }
    }

    /// Random patterns against a plain evaluation, which tries all ways to match.
    #[test]
    fn patterns_match_what_a_plain_evaluation_matches(pattern in any_pattern(), text in "[ab]{0,6}") {
        let letters: Vec<char> = text.chars().collect();
        let expected = pattern.ends(&letters, 0).contains(&letters.len());
        let regex = super::regex::Regex::new(&pattern.to_string()).unwrap();
        proptest::prop_assert_eq!(regex.matcher().matches(&text), Some(expected), "{}", pattern);
    }
}

#[derive(Clone, Debug)]
enum Pattern {
    Letter(char),
    Any,
    Sequence(Vec<Pattern>),
    Choice(Vec<Pattern>),
    Repeat(Box<Pattern>, usize, Option<usize>),
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Pattern::Letter(letter) => write!(f, "{letter}"),
            Pattern::Any => write!(f, "."),
            Pattern::Sequence(parts) => parts.iter().try_for_each(|part| write!(f, "({part})")),
            Pattern::Choice(parts) => {
                let parts: Vec<String> = parts.iter().map(ToString::to_string).collect();
                write!(f, "({})", parts.join("|"))
            }
            Pattern::Repeat(inner, 0, Some(1)) => write!(f, "({inner})?"),
            Pattern::Repeat(inner, 0, None) => write!(f, "({inner})*"),
            Pattern::Repeat(inner, 1, None) => write!(f, "({inner})+"),
            Pattern::Repeat(inner, least, None) => write!(f, "({inner}){{{least},}}"),
            Pattern::Repeat(inner, least, Some(most)) => write!(f, "({inner}){{{least},{most}}}"),
        }
    }
}

impl Pattern {
    /// The places at which a match from `at` on may end.
    fn ends(&self, text: &[char], at: usize) -> std::collections::BTreeSet<usize> {
        let mut ends = std::collections::BTreeSet::new();
        match self {
            Pattern::Letter(letter) => {
                ends.extend((text.get(at) == Some(letter)).then_some(at + 1))
            }
            Pattern::Any => ends.extend((at < text.len()).then_some(at + 1)),
            Pattern::Choice(parts) => {
                parts.iter().for_each(|part| ends.extend(part.ends(text, at)))
            }
            Pattern::Sequence(parts) => {
                ends.insert(at);
                for part in parts {
                    ends = ends.iter().flat_map(|end| part.ends(text, *end)).collect();
                }
            }
            Pattern::Repeat(inner, least, most) => {
                let mut reached = std::collections::BTreeSet::from([at]);
                for count in 0..=most.unwrap_or(text.len() + least) {
                    if count >= *least {
                        ends.extend(&reached);
                    }
                    reached = reached.iter().flat_map(|end| inner.ends(text, *end)).collect();
                }
            }
        }
        ends
    }
}

fn any_pattern() -> proptest::strategy::BoxedStrategy<Pattern> {
    use proptest::prelude::*;
    let leaf =
        prop_oneof![Just(Pattern::Letter('a')), Just(Pattern::Letter('b')), Just(Pattern::Any)];
    leaf.prop_recursive(3, 10, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(Pattern::Sequence),
            prop::collection::vec(inner.clone(), 1..4).prop_map(Pattern::Choice),
            (inner, 0..3_usize, prop::option::of(0..2_usize)).prop_map(|(inner, least, more)| {
                Pattern::Repeat(Box::new(inner), least, more.map(|more| least + more))
            }),
        ]
    })
    .boxed()
}

proptest::proptest! {
    #[test]
    fn encoded_terms_are_read_again(
        words in proptest::collection::vec((0..40_000_usize, ".{0,5}", 0..3_000_usize), 0..20),
    ) {
        use super::encoded::{EncodedTokenizer, TermEncoder};
        use tantivy::tokenizer::{TokenStream as _, Tokenizer as _};
        let (mut encoder, mut position) = (TermEncoder::default(), 0);
        let mut expected = Vec::new();
        for (step, text, more) in words {
            position += step;
            let text = text + &"x".repeat(more * 10);
            encoder.push(position, &text);
            expected.push((position, text));
        }
        let encoded = encoder.finish();
        proptest::prop_assert_eq!(encoded.is_empty(), expected.is_empty());
        let mut tokenizer = EncodedTokenizer;
        let mut stream = tokenizer.token_stream(encoded.as_str());
        let mut found = Vec::new();
        while stream.advance() {
            found.push((stream.token().position, stream.token().text.clone()));
        }
        proptest::prop_assert_eq!(found, expected);
    }
}

proptest::proptest! {
    #[test]
    fn documents_and_queries_have_the_same_terms(
        texts in proptest::collection::vec("[a-cA-C .é']{0,12}", 0..4),
        analyzer in 0..4_usize,
    ) {
        use super::encoded::{EncodedTokenizer, TermEncoder};
        use crate::definition::PostingsDetail;
        use tantivy::tokenizer::{TokenStream as _, Tokenizer as _};
        let names = ["lucene.standard", "lucene.keyword", "lucene.stop", "lucene.french"];
        let analyzer = AnalyzerName::find(&FieldPath::root(), names[analyzer]).unwrap();
        let mut terms = Terms::default();
        let mut all = TermEncoder::new(PostingsDetail::Positions);
        let mut once = TermEncoder::new(PostingsDetail::Documents);
        for text in &texts {
            terms.add(analyzer, text);
            all.add(analyzer, text, &mut String::new());
            once.add(analyzer, text, &mut String::new());
        }
        let read = |encoder: TermEncoder| {
            let (encoded, mut tokenizer) = (encoder.finish(), EncodedTokenizer);
            let mut stream = tokenizer.token_stream(encoded.as_str());
            let mut found = Vec::new();
            while stream.advance() {
                found.push((stream.token().text.clone(), stream.token().position));
            }
            found
        };
        let mut expected: Vec<(String, usize)> =
            terms.tokens.iter().map(|token| (token.text.clone(), token.position)).collect();
        proptest::prop_assert_eq!(read(all), expected.clone());
        let mut known = std::collections::HashSet::new();
        expected.retain(|(text, _)| known.insert(text.clone()));
        proptest::prop_assert_eq!(read(once), expected);
    }
}
