//! Options, errors, and the agreement of keys with comparison.

use crate::SortOrder;
use proptest::prelude::*;

use super::*;
use crate::compare::compare_values_in;
use crate::extjson::parse_document;
use crate::keys::{TypeBits, append_value_in};

fn parse(document: &str) -> Result<Option<Arc<Collation>>> {
    Collation::parse(parse_document(document).unwrap().as_doc(), "collation")
}

fn collation(document: &str) -> Arc<Collation> {
    parse(document).unwrap().unwrap()
}

/// Checks the order of strings; strings joined by `=` are equal.
fn check(document: &str, ladder: &str) {
    let collation = collation(document);
    let steps: Vec<Vec<&str>> =
        ladder.split(" < ").map(|step| step.split(" = ").collect()).collect();
    let all: Vec<(usize, &str)> = steps
        .iter()
        .enumerate()
        .flat_map(|(at, step)| step.iter().map(move |text| (at, *text)))
        .collect();
    for (i, a) in &all {
        for (j, b) in &all {
            assert_eq!(collation.compare(a, b), i.cmp(j), "{document}: {a} {b}");
            let key = |text: &str| {
                let mut key = Vec::new();
                collation.append_key(text, &mut key);
                key
            };
            assert_eq!(key(a).cmp(&key(b)), i.cmp(j), "{document}: keys of {a} {b}");
        }
    }
}

/// Manual: "Collation", the table of fields.
#[test]
fn options_order_strings() {
    check("{locale: 'en', strength: 1}", "cafe = café = CAFE < cafg");
    check("{locale: 'en', strength: 2}", "cafe = CAFE < café < cafg");
    check("{locale: 'en'}", "cafe < CAFE < café < cafg");
    check("{locale: 'en', strength: 1, caseLevel: true}", "cafe = café < Cafe < CAFE < cafg");
    check("{locale: 'en', caseFirst: 'upper'}", "CAFE < Cafe < cafe");
    check("{locale: 'en', caseFirst: 'lower'}", "cafe < Cafe < CAFE");
    check("{locale: 'en', numericOrdering: true}", "a < a2 < a10 < a100");
    check("{locale: 'en', numericOrdering: false}", "a < a10 < a100 < a2");
    check("{locale: 'en', alternate: 'shifted'}", "ab = a-b = a b < ac");
    check("{locale: 'en', alternate: 'shifted', maxVariable: 'space'}", "a-b < ab = a b < ac");
    check("{locale: 'en', alternate: 'shifted', strength: 4}", "a b < a-b < ab < ac");
    check("{locale: 'fr'}", "cote < coté < côte < côté");
    check("{locale: 'fr', backwards: true}", "cote < côte < coté < côté");
    check("{locale: 'fr_CA'}", "cote < côte < coté < côté");
    check("{locale: 'fr_CA', backwards: false}", "cote < coté < côte < côté");
}

#[test]
fn languages_have_their_own_order() {
    check("{locale: 'de'}", "a < ä < ad < af");
    check("{locale: 'de@collation=phonebook'}", "ad < ä < af");
    check("{locale: 'sv'}", "z < å < ä < ö");
    check("{locale: 'es@collation=traditional'}", "cz < ch < d");
    check("{locale: 'nb'}", "z < æ < ø < å");
    check("{locale: 'da'}", "A < a < B < b");
}

#[test]
fn all_options_are_listed() {
    let shown = "{locale: 'da', caseLevel: false, caseFirst: 'upper', strength: 3, numericOrdering: false, \
                 alternate: 'non-ignorable', maxVariable: 'punct', normalization: false, backwards: false, \
                 version: '57.1'}";
    let shown = parse_document(shown).unwrap();
    let parsed = collation("{locale: 'da'}");
    assert_eq!(parsed.document(), shown.as_doc());
    assert_eq!(Collation::parse(shown.as_doc(), "c").unwrap().unwrap(), parsed);
    assert!(parse("{locale: 'simple'}").unwrap().is_none());
}

#[test]
fn errors() {
    let cases = [
        ("{}", 40414),
        ("{strength: 1}", 40414),
        ("{locale: 'en', color: 1}", 40415),
        ("{locale: 1}", 14),
        ("{locale: 'en', caseLevel: 1}", 14),
        ("{locale: 'en', strength: 'x'}", 14),
        ("{locale: 'en', strength: 6}", 2),
        ("{locale: 'en', strength: 0}", 2),
        ("{locale: 'en', strength: 0.9}", 2),
        ("{locale: 'en', caseFirst: 'x'}", 2),
        ("{locale: 'en', alternate: 'x'}", 2),
        ("{locale: 'en', maxVariable: 'x'}", 2),
        ("{locale: 'en', strength: 1, backwards: true}", 2),
        ("{locale: 'en', strength: 2, caseFirst: 'upper'}", 2),
        ("{locale: 'en-US'}", 2),
        ("{locale: 'en', backwards: null}", 14),
        ("{}", 40414),
        ("{strength: 'x', locale: 1}", 14),
        ("{locale: 'en', version: '1'}", 161),
        ("{locale: 'de@collation=search'}", 238),
        ("{locale: 'sv', backwards: true}", 238),
    ];
    for (document, code) in cases {
        assert_eq!(parse(document).unwrap_err().code().0, code, "{document}");
    }
}

/// Measured behaviour of the reference, rules 3 and 8.
#[test]
fn accepted_fields() {
    assert!(parse("{locale: 'simple', strength: 1, caseFirst: 'upper'}").unwrap().is_none());
    for strength in ["2.9", "{$numberDecimal: '2.5'}", "{$numberDecimal: '1.9'}"] {
        let found = parse(&format!("{{locale: 'en', strength: {strength}}}")).unwrap().unwrap();
        assert_eq!(found.document().get("strength"), Some(RawValue::Int32(2)), "{strength}");
    }
}

fn some_collation() -> impl Strategy<Value = Arc<Collation>> {
    let locales = ["en", "fr", "fr_CA", "de@collation=phonebook", "sv", "th", "ja", "da", "zh"];
    (proptest::sample::select(locales.to_vec()), 1..6, any::<[bool; 3]>()).prop_map(
        |(locale, strength, [case_level, numeric, shifted])| {
            let backwards = if strength == 1 { ", backwards: false" } else { "" };
            let alternate = if shifted { "shifted" } else { "non-ignorable" };
            collation(&format!(
                "{{locale: '{locale}', strength: {strength}, caseLevel: {case_level}, caseFirst: 'off', \
                 numericOrdering: {numeric}, alternate: '{alternate}'{backwards}}}"
            ))
        },
    )
}

proptest! {
    #[test]
    fn keys_order_as_comparison_does(
        collation in some_collation(),
        a in "[aAbBéÉä.\\- 019ßöคา日\u{0}\u{1}]{0,6}",
        b in "[aAbBéÉä.\\- 019ßöคา日\u{0}\u{1}]{0,6}",
    ) {
        let (left, right) = (RawValue::String(&a), RawValue::String(&b));
        let order = compare_values_in(left, right, Some(&collation));
        let key = |value, order| {
            let mut key = Vec::new();
            append_value_in(&mut key, &mut TypeBits::default(), value, order, Some(&collation));
            key
        };
        prop_assert_eq!(key(left, SortOrder::Ascending).cmp(&key(right, SortOrder::Ascending)), order);
        prop_assert_eq!(key(left, SortOrder::Descending).cmp(&key(right, SortOrder::Descending)), order.reverse());
    }

    #[test]
    fn any_text_has_a_key(collation in some_collation(), a in any::<String>(), b in any::<String>()) {
        let key = |text: &str| {
            let mut key = Vec::new();
            collation.append_key(text, &mut key);
            key
        };
        prop_assert_eq!(key(&a).cmp(&key(&b)), collation.compare(&a, &b));
        let (longer, other) = (format!("{a}{b}"), format!("{a}{b}\u{301}"));
        prop_assert_eq!(key(&longer).cmp(&key(&other)), collation.compare(&longer, &other));
    }
}

#[test]
fn marks_are_put_into_their_order_before_code_points_are_compared() {
    // In the normal form U+0301 precedes U+1DFC.
    let (shorter, longer) = ("\u{1E5FF}\u{1DFC}", "\u{1E5FF}\u{1DFC}\u{301}");
    let collation = collation("{locale: 'en', strength: 5, alternate: 'shifted'}");
    let key = |text: &str| {
        let mut key = Vec::new();
        collation.append_key(text, &mut key);
        key
    };
    assert_eq!(key(shorter).cmp(&key(longer)), collation.compare(shorter, longer));
    assert_eq!(collation.compare(shorter, shorter), std::cmp::Ordering::Equal);
}

/// Keys are stored: if they change, existing indexes become unreadable.
#[test]
fn keys_stay_as_they_are() {
    let shown = |document: &str, text: &str| collation(document).key_hex(text);
    assert_eq!(shown("{locale: 'en', strength: 1}", "Résumé 10"), "0x4D334F534333041412");
    assert_eq!(shown("{locale: 'fr_CA'}", "Côte"), "0x2F47513301448E0601DC08");
    assert_eq!(shown("{locale: 'sv', numericOrdering: true}", "å 10"), "0x5E7F0204100C01070107");
}
