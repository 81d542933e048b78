//! Suggests an index for the shape of an operation. Nothing is created: an operator decides.
//!
//! The fields of the index are those of the filter and of the sort, in this order:
//!
//! ```text
//! field of the index       so that a scan
//! equality   {a: 1}        reads one range, in which the next fields are in order
//! sort       sort: {t: -1} returns documents in order, without a sort
//! lists      {b: {$in}}    reads a few ranges (before the range; after the sort, whose order it
//!                          would break)
//! range      {n: {$gt}}    reads one part of that; only the first range counts
//!
//! find {a: 1, n: {$gt: 5}}, sort {t: -1}     suggests {a: 1, t: -1, n: 1}
//! ```
//!
//! Conditions that bound no scan (`$ne`, `$exists`, `$or`, `$expr`) are left out, and there is no
//! suggestion for a filter that needs a special index (`$text`, `$near`), or that `_id` serves.

use mayfly_value::{DocBuf, DocBuilder, Number, RawDoc, RawValue};

use crate::language::{ShapeOf, StageShape};

/// The most fields of a suggested index.
const MAX_FIELDS: usize = 8;

/// An index that would serve a shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Suggestion {
    /// The fields and their directions.
    key: Vec<(String, i32)>,
    /// The number of leading fields that are compared with one value; their order is free.
    equalities: usize,
    /// The number of fields after them that give the order of the sort.
    sorted: usize,
    collation: Option<DocBuf>,
}

/// The conditions of a filter that can bound a scan, by path.
#[derive(Default)]
struct Conditions {
    equal: Vec<String>,
    lists: Vec<String>,
    ranges: Vec<String>,
    /// The array of the filter's `$elemMatch`: an index has the items of one array only.
    array: Option<String>,
    needs_special_index: bool,
}

impl Suggestion {
    /// The index for a shape, as [`QueryShape`](crate::QueryShape) writes it. `shape_of` returns
    /// the shapes of stages: the filters before the first other stage count, and a sort after them.
    pub(crate) fn with_stages(shape: RawDoc<'_>, shape_of: ShapeOf) -> Option<Suggestion> {
        let document = |name: &str| shape.get(name).and_then(RawValue::as_document);
        let (mut conditions, mut sort) = (Conditions::default(), Vec::new());
        match shape.get("command")?.as_str()? {
            "aggregate" => {
                let RawValue::Array(stages) = shape.get("pipeline")? else { return None };
                for stage in stages.iter().filter_map(|stage| stage.value().as_document()) {
                    let stage = stage.iter().next()?;
                    match (shape_of(stage.name()), stage.value()) {
                        (StageShape::Filter, RawValue::Document(filter)) => {
                            conditions.collect("", filter);
                        }
                        (StageShape::Order, RawValue::Document(order)) => {
                            sort = sort_fields(order);
                            break;
                        }
                        _ => break,
                    }
                }
            }
            "distinct" => {
                conditions.collect("", document("query").unwrap_or(RawDoc::EMPTY));
                sort.extend(shape.get("key").and_then(RawValue::as_str).map(|key| (key.into(), 1)));
            }
            _ => {
                conditions.collect("", document("filter").unwrap_or(RawDoc::EMPTY));
                sort = document("sort").map(sort_fields).unwrap_or_default();
            }
        }
        let collation = document("collation").map(|collation| collation.to_owned());
        conditions.suggest(sort, collation)
    }

    /// Appends the fields `key` and, if the shape has one, `collation`, as `createIndexes` takes
    /// them.
    pub fn append_to(&self, out: &mut DocBuilder) {
        out.start_document("key");
        for (path, direction) in &self.key {
            out.append(path, *direction);
        }
        out.end();
        if let Some(collation) = &self.collation {
            out.append("collation", collation);
        }
    }

    /// Whether an index with this definition serves the shape as well.
    pub fn is_served_by(&self, index: RawDoc<'_>) -> bool {
        let restricted = ["partialFilterExpression", "sparse", "hidden"];
        let is_set = |name: &&str| !matches!(index.get(name), None | Some(RawValue::Bool(false)));
        let Some(key) = index.get("key").and_then(RawValue::as_document) else { return false };
        let collation = index.get("collation").and_then(RawValue::as_document);
        let same_collation = match (&self.collation, collation) {
            (None, None) => true,
            (Some(wanted), Some(found)) => wanted.as_doc().get("locale") == found.get("locale"),
            _ => false,
        };
        if restricted.iter().any(is_set) || !same_collation || key.iter().count() < self.key.len() {
            return false;
        }
        let found: Vec<(&str, f64)> = key
            .iter()
            .map(|field| {
                let direction = Number::from_value(field.value()).map_or(0.0, Number::to_f64);
                (field.name(), direction)
            })
            .take(self.key.len())
            .collect();
        let (equal, rest) = self.key.split_at(self.equalities);
        let (sorted, others) = rest.split_at(self.sorted);
        let (found_equal, rest) = found.split_at(self.equalities);
        let (found_sorted, found_others) = rest.split_at(self.sorted);
        let has_all = |wanted: &[(String, i32)], found: &[(&str, f64)]| {
            wanted.iter().all(|(path, _)| {
                found.iter().any(|(name, direction)| name == path && *direction != 0.0)
            })
        };
        let turns = |sign: f64| {
            sorted.iter().zip(found_sorted).all(|((path, direction), (name, found))| {
                path == name && f64::from(*direction) * sign * found > 0.0
            })
        };
        has_all(equal, found_equal) && has_all(others, found_others) && (turns(1.0) || turns(-1.0))
    }
}

/// The fields of a sort; empty if it needs something else than values of fields.
fn sort_fields(sort: RawDoc<'_>) -> Vec<(String, i32)> {
    let field = |element: mayfly_value::RawElement<'_>| {
        let direction = Number::from_value(element.value())?.to_f64();
        let plain = !element.name().starts_with('$') && direction != 0.0;
        plain.then(|| (element.name().to_owned(), if direction < 0.0 { -1 } else { 1 }))
    };
    sort.iter().map(field).collect::<Option<Vec<_>>>().unwrap_or_default()
}

impl Conditions {
    /// Collects the conjuncts of a filter; `under` is the array of an enclosing `$elemMatch` with
    /// its dot.
    fn collect(&mut self, under: &str, filter: RawDoc<'_>) {
        for element in filter {
            match (element.name(), element.value()) {
                ("$and", RawValue::Array(parts)) => {
                    let parts = parts.iter().filter_map(|part| part.value().as_document());
                    parts.for_each(|part| self.collect(under, part));
                }
                ("$text", _) => self.needs_special_index = true,
                (name, RawValue::Document(operators)) if !name.starts_with('$') => {
                    self.collect_operators(&format!("{under}{name}"), operators);
                }
                _ => {}
            }
        }
    }

    fn collect_operators(&mut self, path: &str, operators: RawDoc<'_>) {
        // A position in an array is no field of an index that serves other positions, too.
        if path.split('.').any(|step| step.bytes().all(|byte| byte.is_ascii_digit())) {
            return;
        }
        for operator in operators {
            match (operator.name(), operator.value()) {
                ("$eq" | "$all", _) => add(&mut self.equal, path),
                ("$in", _) => add(&mut self.lists, path),
                ("$gt" | "$gte" | "$lt" | "$lte" | "$regex", _) => add(&mut self.ranges, path),
                ("$near" | "$nearSphere" | "$geoWithin" | "$geoIntersects" | "$within", _) => {
                    self.needs_special_index = true;
                }
                ("$elemMatch", RawValue::Document(inner)) => self.collect_items(path, inner),
                _ => {}
            }
        }
    }

    fn collect_items(&mut self, path: &str, inner: RawDoc<'_>) {
        if self.array.as_deref().is_some_and(|array| array != path) {
            return;
        }
        self.array = Some(path.to_owned());
        let first = inner.iter().next().map_or("", |first| first.name());
        match first.starts_with('$') && !matches!(first, "$and" | "$or" | "$nor") {
            true => self.collect_operators(path, inner),
            false => self.collect(&format!("{path}."), inner),
        }
    }

    fn suggest(self, sort: Vec<(String, i32)>, collation: Option<DocBuf>) -> Option<Suggestion> {
        let mut key: Vec<(String, i32)> = Vec::new();
        let mut push = |path: String, direction: i32| {
            let is_new = key.iter().all(|(known, _)| *known != path) && key.len() < MAX_FIELDS;
            if is_new {
                key.push((path, direction));
            }
            key.len()
        };
        let mut equalities = 0;
        self.equal.into_iter().for_each(|path| equalities = push(path, 1));
        let mut end_of_sort = equalities;
        sort.into_iter().for_each(|(path, direction)| end_of_sort = push(path, direction));
        self.lists.into_iter().chain(self.ranges.into_iter().take(1)).for_each(|path| {
            push(path, 1);
        });
        let is_by_id = key.first().is_none_or(|(path, _)| path == "_id");
        let sorted = end_of_sort - equalities;
        let useful = !self.needs_special_index && !is_by_id;
        useful.then_some(Suggestion { key, equalities, sorted, collation })
    }
}

fn add(paths: &mut Vec<String>, path: &str) {
    if !paths.iter().any(|known| known == path) {
        paths.push(path.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use mayfly_base::Namespace;
    use mayfly_value::extjson::parse_document;
    use mayfly_value::shell::Shell;

    use super::*;
    use crate::QueryShape;

    fn suggestion(command: &str, body: &str) -> Option<Suggestion> {
        let ns = Namespace::new("test", "c").unwrap();
        let body = parse_document(body).unwrap();
        let shape = QueryShape::of(command, &ns, body.as_doc()).unwrap();
        Suggestion::of(shape.as_doc())
    }

    fn check(command: &str, body: &str, expected: &str) {
        let shown = suggestion(command, body).map(|suggestion| {
            let mut out = DocBuilder::new();
            suggestion.append_to(&mut out);
            Shell(out.finish().as_doc()).to_string()
        });
        let shown = shown.as_deref().unwrap_or("nothing");
        let shown = shown.strip_prefix("{ key: ").map_or(shown, |rest| &rest[..rest.len() - 2]);
        assert_eq!(shown, expected, "{command} {body}");
    }

    #[test]
    fn equality_sort_range() {
        let cases = [
            ("{filter: {a: 1}}", "{ a: 1 }"),
            ("{filter: {a: 1, n: {$gt: 5, $lt: 9}}, sort: {t: -1}}", "{ a: 1, t: -1, n: 1 }"),
            ("{filter: {n: {$gt: 5}, a: 1, b: 'x'}}", "{ a: 1, b: 1, n: 1 }"),
            ("{filter: {}, sort: {t: -1, u: 1}}", "{ t: -1, u: 1 }"),
            ("{filter: {a: 1}, sort: {a: -1, t: 1}}", "{ a: 1, t: 1 }"),
            ("{filter: {t: {$gte: 1}}, sort: {t: 1}}", "{ t: 1 }"),
            ("{filter: {a: 1, b: {$in: [1, 2]}, n: {$gt: 1}}}", "{ a: 1, b: 1, n: 1 }"),
            ("{filter: {b: {$in: [1, 2]}, a: 1}, sort: {t: 1}}", "{ a: 1, t: 1, b: 1 }"),
            ("{filter: {m: {$gt: 1}, n: {$gt: 1}}}", "{ m: 1 }"),
            ("{filter: {a: {$regex: '^x'}, b: 1}}", "{ b: 1, a: 1 }"),
            (
                "{filter: {$and: [{a: 1}, {$and: [{b: 2}]}], c: {$all: [1]}}}",
                "{ a: 1, b: 1, c: 1 }",
            ),
        ];
        cases.into_iter().for_each(|(body, expected)| check("find", body, expected));
    }

    #[test]
    fn conditions_that_bound_no_scan_are_left_out() {
        let cases = [
            ("{filter: {a: {$ne: 1}, b: 2}}", "{ b: 1 }"),
            ("{filter: {a: {$exists: true}, b: {$not: {$gt: 1}}, c: {$nin: [1]}}}", "nothing"),
            ("{filter: {$or: [{a: 1}, {b: 2}]}}", "nothing"),
            ("{filter: {$or: [{a: 1}, {b: 2}], c: 1}}", "{ c: 1 }"),
            ("{filter: {$expr: {$eq: ['$a', 1]}}}", "nothing"),
            ("{filter: {'a.0': 1, b: 1}}", "{ b: 1 }"),
            ("{filter: {_id: 1}}", "nothing"),
            ("{filter: {_id: {$gt: 1}}}", "nothing"),
            ("{filter: {_id: {$gt: 1}, a: 1}}", "{ a: 1, _id: 1 }"),
            ("{filter: {$text: {$search: 'x'}, a: 1}}", "nothing"),
            ("{filter: {g: {$near: [1, 2]}, a: 1}}", "nothing"),
            ("{filter: {a: 1}, sort: {s: {$meta: 'textScore'}}}", "{ a: 1 }"),
            ("{filter: {}, sort: {$natural: 1}}", "nothing"),
        ];
        cases.into_iter().for_each(|(body, expected)| check("find", body, expected));
    }

    #[test]
    fn one_array_gives_fields_of_its_items() {
        let cases = [
            ("{filter: {i: {$elemMatch: {a: 1, n: {$gt: 2}}}}}", "{ i.a: 1, i.n: 1 }"),
            ("{filter: {i: {$elemMatch: {$gt: 2, $lt: 5}}}}", "{ i: 1 }"),
            ("{filter: {i: {$elemMatch: {a: 1}}, j: {$elemMatch: {b: 1}}}}", "{ i.a: 1 }"),
        ];
        cases.into_iter().for_each(|(body, expected)| check("find", body, expected));
    }

    #[test]
    fn other_commands() {
        let pipeline = "{pipeline: [{$match: {a: 1}}, {$match: {n: {$gt: 1}}}, {$sort: {t: -1}}, \
                        {$match: {z: 1}}]}";
        check("aggregate", pipeline, "{ a: 1, t: -1, n: 1 }");
        check("aggregate", "{pipeline: [{$group: {_id: '$a'}}, {$match: {b: 1}}]}", "nothing");
        check("distinct", "{key: 'k', query: {a: 1}}", "{ a: 1, k: 1 }");
        let collated = "{filter: {a: 'x'}, collation: {locale: 'fr'}}";
        check("find", collated, "{ a: 1 }, collation: { locale: \"fr\" }");
        let many: Vec<String> = (0..20).map(|n| format!("f{n}: 1")).collect();
        let many = suggestion("find", &format!("{{filter: {{{}}}}}", many.join(", "))).unwrap();
        assert_eq!(many.key.len(), MAX_FIELDS);
    }

    #[test]
    fn an_index_that_is_there_is_recognized() {
        let body = "{filter: {a: 1, b: 2, n: {$gt: 3}}, sort: {t: -1}}";
        let suggestion = suggestion("find", body).unwrap();
        let cases = [
            ("{key: {a: 1, b: 1, t: -1, n: 1}}", true),
            ("{key: {b: -1, a: 1, t: 1, n: -1, more: 1}}", true),
            ("{key: {a: 1, t: -1, b: 1, n: 1}}", false),
            ("{key: {a: 1, b: 1, t: -1}}", false),
            ("{key: {a: 1, b: 'hashed', t: -1, n: 1}}", false),
            ("{key: {a: 1, b: 1, t: -1, n: 1}, sparse: true}", false),
            ("{key: {a: 1, b: 1, t: -1, n: 1}, hidden: true}", false),
            ("{key: {a: 1, b: 1, t: -1, n: 1}, partialFilterExpression: {a: 1}}", false),
            ("{key: {a: 1, b: 1, t: -1, n: 1}, collation: {locale: 'fr'}}", false),
            ("{}", false),
        ];
        for (index, expected) in cases {
            let index = parse_document(index).unwrap();
            assert_eq!(suggestion.is_served_by(index.as_doc()), expected, "{index:?}");
        }
    }
}
