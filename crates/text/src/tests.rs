//! Rules of text search, one row for each.

use mayfly_value::extjson::parse_document;
use mayfly_value::{DocBuilder, RawDoc};
use proptest::prelude::*;

use super::*;

#[test]
fn no_letter_but_one_is_a_delimiter() {
    let letters = ('\u{80}'..=char::MAX).filter(|letter| letter.is_alphabetic());
    let both: Vec<char> =
        letters.filter(|letter| words::has_delimiting_property(*letter)).collect();
    assert_eq!(both, [words::VERTICAL_TILDE]);
}

fn language(name: &str) -> Language {
    Language::find(name).unwrap()
}

fn check_terms(name: &str, text: &str, expected: &[&str]) {
    let terms: Vec<String> = Analyzer::new(language(name)).terms(text).collect();
    assert_eq!(terms, expected, "{name}: {text}");
}

/// Manual: "Text Index Properties", "Tokenization Delimiters"; "$text", "Stop Words", "Stemmed
/// Words".
#[test]
fn words_become_terms() {
    check_terms("none", "Hello, world!", &["hello", "world"]);
    check_terms(
        "none",
        "a\u{2014}b c\u{a0}d \u{201c}e\u{201d} f_g h.i",
        &["a", "b", "c", "d", "e", "f_g", "h", "i"],
    );
    check_terms("none", "the it's running", &["the", "it", "s", "running"]);
    check_terms("english", "The dogs are running", &["dog", "run"]);
    check_terms("english", "it's John's", &["john"]);
    check_terms("english", "don't cannot wouldn't", &[]);
    check_terms("english", "c d m s t will now", &["c", "d", "m", "s", "t", "will", "now"]);
    check_terms("spanish", "Las bibliotecas públicas", &["bibliotec", "public"]);
    check_terms("de", "Die Häuser", &["haus"]);
    check_terms("russian", "и Книгами", &["книг"]);
    check_terms("en", "", &[]);
    check_terms("en", " -- ' ", &["'"]);
}

/// Manual: "Text Index Properties", "Case Insensitivity", "Diacritic Insensitivity".
#[test]
fn letters_are_folded() {
    check_terms("none", "É e\u{301} Ê Ñ ß Å ø", &["e", "e", "e", "n", "ß", "a", "ø"]);
    check_terms("none", "ΣΊΣΥΦΟΣ σίσυφος", &["σισυφοσ", "σισυφοσ"]);
    check_terms("none", "한국어", &["한국어"]);
    check_terms("none", "I İ", &["i", "i"]);
    check_terms("turkish", "ISI İZMİR", &["ıs", "izmir"]);
    let sensitive = |case, diacritics| {
        let analyzer = Analyzer::new(Language::NONE).sensitive(Sensitivity { case, diacritics });
        analyzer.terms("École").collect::<Vec<String>>()
    };
    assert_eq!(sensitive(true, false), ["Ecole"]);
    assert_eq!(sensitive(false, true), ["école"]);
    assert_eq!(sensitive(true, true), ["École"]);
}

#[test]
fn languages_have_names_and_codes() {
    assert_eq!(Language::find("English"), Some(Language::ENGLISH));
    assert_eq!(Language::find("nb"), Language::find("norwegian"));
    assert_eq!(Language::find("klingon"), None);
    assert_eq!(Language::all().count(), 16);
    for language in Language::all().filter(|language| *language != Language::NONE) {
        assert!(!stop_words::stop_words(language).is_empty(), "{}", language.name());
    }
}

fn spec(text: &str) -> TextSpec {
    TextSpec::parse(parse_document(text).unwrap().as_doc()).unwrap()
}

fn check_scores(index: &str, document: &str, expected: &[(&str, f64)]) {
    let document = parse_document(document).unwrap();
    let scores = spec(index).score(document.as_doc()).unwrap();
    let scores: Vec<(&str, f64)> = scores.iter().collect();
    assert_eq!(scores.len(), expected.len(), "{scores:?}");
    for (have, reference) in scores.iter().zip(expected) {
        assert_eq!(have.0, reference.0, "{scores:?}");
        assert!((have.1 - reference.1).abs() < 1e-9, "{scores:?}, expected {reference:?}");
    }
}

/// Known scores: 1.1 for a field that equals the word, 0.75 for one word of two, 0.625 for one of
/// four.
#[test]
fn terms_have_scores() {
    let index = "{weights: {a: 1, 'b.c': 10}, default_language: 'none', language_override: 'lang'}";
    check_scores(index, "{a: 'coffee'}", &[("coffee", 1.1)]);
    check_scores(index, "{a: 'Coffee'}", &[("coffee", 1.1)]);
    check_scores(index, "{a: 'coffee!'}", &[("coffee", 1.0)]);
    check_scores(index, "{a: 'x y'}", &[("x", 0.75), ("y", 0.75)]);
    check_scores(
        index,
        "{a: 'x y z w'}",
        &[("w", 0.625), ("x", 0.625), ("y", 0.625), ("z", 0.625)],
    );
    check_scores(index, "{a: 'x x y'}", &[("x", 1.5 * (1.0 / 3.0 + 0.5)), ("y", 1.0 / 6.0 + 0.5)]);
    check_scores(index, "{a: 'x x x'}", &[("x", 1.75)]);
    check_scores(index, "{a: ['x', 'y'], b: [{c: 'x'}, {c: ['x']}]}", &[("x", 23.1), ("y", 1.1)]);
    check_scores(index, "{a: [['x']], b: {c: 7, d: 'x'}, bb: {c: 'x'}}", &[]);
}

/// Manual: "Specify the Default Language for a Text Index", "Wildcard Text Indexes".
#[test]
fn documents_name_their_languages() {
    let index =
        "{weights: {a: 1, 'b.a': 1}, default_language: 'english', language_override: 'lang'}";
    check_scores(index, "{a: 'the dogs'}", &[("dog", 1.0)]);
    check_scores(
        index,
        "{lang: 'none', a: 'dogs', b: [{a: 'dogs'}, {lang: 'en', a: 'dogs'}]}",
        &[("dog", 1.0), ("dogs", 2.2)],
    );
    let failed = |document: &str| {
        let document = parse_document(document).unwrap();
        spec(index).score(document.as_doc()).unwrap_err().code().0
    };
    assert_eq!(failed("{lang: 5, a: 'x'}"), 17261);
    assert_eq!(failed("{lang: 'klingon', a: 'x'}"), 17262);
    let all = "{weights: {'$**': 1, b: 3}, default_language: 'none'}";
    let document = "{a: 'x', b: 'x', c: {d: [['y'], {e: 'z'}]}, language: 'none', n: 7}";
    check_scores(all, document, &[("x", 4.4), ("y", 1.1), ("z", 1.1)]);
}

fn matches(search: &str, sensitivity: Sensitivity, text: &str) -> bool {
    let spec = spec("{weights: {a: 1, b: 1}, default_language: 'english'}");
    let options = SearchOptions { search: search.to_owned(), language: None, sensitivity };
    let search = TextSearch::parse(&options, &spec).unwrap();
    let mut document = DocBuilder::new();
    document.append("a", text).append("b", "other words");
    search.matches(document.finish().as_doc(), &spec, FoundBy::Otherwise).unwrap()
}

/// Manual: "$text", "Search Field Behavior".
#[test]
fn searches_find() {
    let rows = [
        ("coffee", "Coffee Shopping", true),
        ("bake coffee cake", "Coffee Shopping", true),
        ("tea", "Coffee Shopping", false),
        ("shop", "Coffee Shopping", true),
        ("coffee -shop", "Coffee Shopping", false),
        ("coffee -shop", "Coffee and cream", true),
        ("-shop", "Coffee and cream", false),
        ("coffee - shop", "shop", true),
        ("pre-market", "market", true),
        ("coffee -pre-market", "coffee market", false),
        ("\"coffee shop\"", "Coffee Shopping", true),
        ("\"coffee shop\"", "shop coffee", false),
        ("\"coffee\" tea", "tea", false),
        ("\"coffee\" \"shop\"", "the shop has Coffee", true),
        ("\"coffee\" \"cake\"", "the shop has Coffee", false),
        ("words -\"coffee shop\"", "coffee shop", false),
        ("words -\"coffee shop\"", "shop coffee", true),
        ("\"other words\" coffee", "tea", true),
        ("the", "the", false),
        ("", "coffee", false),
        ("cafe", "Café", true),
        ("\"cafe con\"", "Café con Leche", true),
    ];
    for (search, text, expected) in rows {
        assert_eq!(matches(search, Sensitivity::default(), text), expected, "{search} in {text}");
    }
}

/// Manual: "$text", "Case Insensitivity", "Diacritic Insensitivity".
#[test]
fn searches_may_be_sensitive_to_case_and_accents() {
    let case = Sensitivity { case: true, diacritics: false };
    let diacritics = Sensitivity { case: false, diacritics: true };
    let rows = [
        ("Coffee", case, "coffee", false),
        ("Coffee", case, "Coffee", true),
        ("\"Café Con Leche\"", case, "Café con Leche", false),
        ("\"Cafe con Leche\"", case, "Café con Leche", true),
        ("coffee -Shop", case, "coffee shop", true),
        ("cafe", diacritics, "Café", false),
        ("CAFÉ", diacritics, "Café", true),
        ("\"cafe\" leche", diacritics, "Café con Leche", false),
    ];
    for (search, sensitivity, text, expected) in rows {
        assert_eq!(matches(search, sensitivity, text), expected, "{search} in {text}");
    }
}

#[test]
fn endless_searches_are_refused() {
    let spec = spec("{weights: {a: 1}, default_language: 'none'}");
    let refused = |search: String| {
        let options = SearchOptions { search, ..SearchOptions::default() };
        TextSearch::parse(&options, &spec).map(|_| ()).map_err(|error| error.code().0)
    };
    let words = |count: usize| (0..count).map(|n| format!("w{n} ")).collect::<String>();
    assert_eq!(refused(words(10_000)), Ok(()));
    assert_eq!(refused(words(10_001)), Err(2));
    assert_eq!(refused("\"a\" ".repeat(101)), Err(2));
}

#[test]
fn long_terms_are_cut() {
    assert_eq!(stored_term("x"), "x");
    let (one, other) = (format!("{}a", "é".repeat(300)), format!("{}b", "é".repeat(300)));
    assert!(stored_term(&one).len() <= 256);
    assert_ne!(stored_term(&one), stored_term(&other));
}

proptest! {
    /// Every text can be analyzed, with at most as many terms as letters.
    #[test]
    fn every_text_has_terms(text in any::<String>(), word in "[a-zäöüßéèáşığåøçñőűа-я']{0,20}", place in 0..16usize) {
        let language = Language::all().nth(place).unwrap();
        for text in [&text, &word] {
            let terms: Vec<String> = Analyzer::new(language).terms(text).collect();
            prop_assert!(terms.len() <= text.chars().count());
            prop_assert!(terms.iter().all(|term| !term.is_empty()));
            let spec = TextSpec::parse(RawDoc::EMPTY).unwrap();
            let options = SearchOptions { search: text.clone(), ..SearchOptions::default() };
            let search = TextSearch::parse(&options, &spec).unwrap();
            prop_assert!(search.terms().len() <= text.chars().count());
        }
    }

    /// A search for the words of a text finds it, in every language.
    #[test]
    fn a_text_is_found_by_its_words(text in "[a-zA-Zäöéñşıİà ]{1,40}", place in 0..16usize) {
        let name = Language::all().nth(place).unwrap().name();
        let spec = spec(&format!("{{weights: {{a: 1}}, default_language: '{name}'}}"));
        let mut document = DocBuilder::new();
        document.append("a", text.as_str());
        let document = document.finish();
        let scores = spec.score(document.as_doc()).unwrap();
        let options = SearchOptions { search: text.clone(), ..SearchOptions::default() };
        let search = TextSearch::parse(&options, &spec).unwrap();
        prop_assert_eq!(search.terms().iter().map(String::as_str).collect::<Vec<_>>(), scores.iter().map(|it| it.0).collect::<Vec<_>>());
        let found = search.matches(document.as_doc(), &spec, FoundBy::Otherwise).unwrap();
        prop_assert_eq!(found, !scores.is_empty());
    }
}
