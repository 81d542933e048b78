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

#[test]
fn stop_words_and_array_items_leave_gaps() {
    let mut terms = Terms::default();
    let stop = AnalyzerName::find(&FieldPath::root(), "lucene.stop").unwrap();
    terms.add(stop, "king of lions");
    terms.add(stop, "x");
    let positions: Vec<usize> = terms.tokens.iter().map(|token| token.position).collect();
    assert_eq!(positions, [0, 2, 103]);
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
