//! Searches that find nothing among many documents end by the caller's check, wherever the time is
//! spent.

use super::text::search_query;
use super::*;

/// Lets everything pass but the work inside of scorers.
struct EndsScorers;

impl Control for EndsScorers {
    fn check(&self) -> mayfly_base::Result<()> {
        Ok(())
    }

    fn shared_check(&self) -> SharedCheck {
        Arc::new(|| Err(Error::bad_value("ended")))
    }

    fn is_hidden(&self, _: &[u8]) -> bool {
        false
    }
}

/// Documents with two words that are never side by side, and one of two words that never meet.
fn filled() -> Index {
    let document = doc! {"mappings": {"fields": {
    "t": {"type": "string"}, "n": {"type": "number"}, "all": {"type": "boolean"}}}};
    let document = DocBuf::from_bson(&document);
    let definition = Definition::parse(document.as_doc(), IndexKind::Search).unwrap();
    let index = Index::in_memory(Arc::new(definition));
    for key in 0..1_000_i32 {
        let side = if key % 2 == 0 { "left" } else { "right" };
        let text = format!("red {side} pen");
        put(&index, &key.to_be_bytes(), &doc! {"t": text, "n": key, "all": true});
    }
    index
}

#[test]
fn scorers_without_hits_end() {
    let index = filled();
    let text = |query: &str, criteria: &str| doc! {"text": {"path": "t", "query": query, "matchCriteria": criteria}};
    let phrase =
        |query: &str, slop: i32| doc! {"phrase": {"path": "t", "query": query, "slop": slop}};
    let all = || doc! {"equals": {"path": "all", "value": true}};
    let some = doc! {"range": {"path": "n", "gte": 0}};
    let without = |operator: Document| doc! {"compound": {"must": [all()], "mustNot": [operator]}};
    let score = doc! {"function": {"multiply": [{"constant": -1}, {"path": "n"}]}};
    let mut scored = doc! {"equals": {"path": "all", "value": true}};
    scored.get_document_mut("equals").unwrap().insert("score", score);
    for (operator, is_empty) in [
        (phrase("pen red", 0), true),
        (phrase("pen pen pen red", 1), true),
        (text("left right", "all"), true),
        (doc! {"compound": {"must": [text("left", "any"), text("right", "any"), some]}}, true),
        (without(text("red", "any")), true),
        (without(all()), true),
        (text("left pen", "all"), false),
        (text("left right", "any"), false),
        (scored, false),
    ] {
        let query = search_query(&index, &operator);
        let found = index.search(&query, None, 10, &Unlimited).unwrap();
        assert_eq!(found.hits.is_empty(), is_empty, "{operator}");
        let name = operator.to_string();
        let ended = index.search(&query, None, 10, &EndsScorers).expect_err(&name);
        assert_eq!(ended.message(), "ended", "{operator}");
        let ended = index.count(&query, usize::MAX, &EndsScorers).expect_err(&name);
        assert_eq!(ended.message(), "ended", "{operator}");
    }
}
