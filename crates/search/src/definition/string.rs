//! The types `string` and `autocomplete`, and their options.

use std::collections::BTreeMap;

use mayfly_base::Result;
use mayfly_value::RawValue;

use super::AnalyzerName;
use crate::fault::FieldPath;
use crate::read::{Fields, UNBOUNDED};

/// What the postings of a field contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostingsDetail {
    /// Documents.
    Documents,
    /// Documents, and how often each contains a word.
    Frequencies,
    /// The same, and the positions of the words.
    Positions,
}

/// The function that scores words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScoreFunction {
    /// BM25.
    Bm25,
    /// One for every match.
    Boolean,
}

/// Options of `string`.
#[derive(Clone, Debug, PartialEq)]
pub struct StringField {
    /// The analyzer of documents; `None`: that of the index.
    pub analyzer: Option<AnalyzerName>,
    /// The analyzer of queries, if it is another one.
    pub search_analyzer: Option<AnalyzerName>,
    /// Strings with more characters are not indexed.
    pub ignore_above: Option<usize>,
    /// What postings contain.
    pub detail: PostingsDetail,
    /// Whether scores depend on the number of words in the field.
    pub has_norms: bool,
    /// Whether highlights may be made.
    pub is_stored: bool,
    /// The function that scores words.
    pub score: ScoreFunction,
    /// The same string with other options, by name.
    pub multi: BTreeMap<String, StringField>,
}

impl Default for StringField {
    fn default() -> StringField {
        StringField {
            analyzer: None,
            search_analyzer: None,
            ignore_above: None,
            detail: PostingsDetail::Positions,
            has_norms: true,
            is_stored: true,
            score: ScoreFunction::Bm25,
            multi: BTreeMap::new(),
        }
    }
}

/// The parts of words that `autocomplete` indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grams {
    /// The beginnings of each word.
    Edge,
    /// The ends of each word.
    RightEdge,
    /// All parts.
    Every,
}

/// Options of `autocomplete`.
#[derive(Clone, Debug, PartialEq)]
pub struct AutocompleteField {
    /// The analyzer that finds the words; `None`: `lucene.standard`.
    pub analyzer: Option<AnalyzerName>,
    /// The fewest and the most characters of a part.
    pub lengths: (usize, usize),
    /// Whether accents are removed.
    pub folds_diacritics: bool,
    /// The indexed parts.
    pub grams: Grams,
    /// The function that scores parts.
    pub score: ScoreFunction,
}

/// The most characters of a part.
const MAX_GRAM: i64 = 64;

fn analyzer(fields: &mut Fields<'_>, name: &str) -> Result<Option<AnalyzerName>> {
    let path = fields.path_of(name);
    fields.text(name)?.map(|text| AnalyzerName::find(&path, text)).transpose()
}

fn score_function(fields: &mut Fields<'_>) -> Result<ScoreFunction> {
    let Some(document) = fields.document("similarity")? else { return Ok(ScoreFunction::Bm25) };
    let mut members = Fields::new(document, fields.path_of("similarity"))?;
    let choices = [
        ("bm25", Some(ScoreFunction::Bm25)),
        ("boolean", Some(ScoreFunction::Boolean)),
        ("stableTfl", None),
    ];
    let choice = members.choice("type", &choices)?;
    let choice = members.required("type", choice)?;
    let path = members.path_of("type");
    members.finish()?;
    choice.ok_or_else(|| path.not_supported("the similarity \"stableTfl\""))
}

pub(super) fn parse_string(fields: &mut Fields<'_>) -> Result<StringField> {
    let mut field = parse_options(fields)?;
    let Some(document) = fields.document("multi")? else { return Ok(field) };
    let path = fields.path_of("multi");
    for element in document {
        let path = path.field(element.name());
        if element.name().contains('.') {
            return Err(path.refuse("multi path cannot contain \".\""));
        }
        let member = parse_multi(element.value(), &path)?;
        field.multi.insert(element.name().to_owned(), member);
    }
    Ok(field)
}

fn parse_multi(value: RawValue<'_>, path: &FieldPath) -> Result<StringField> {
    let RawValue::Document(document) = value else {
        return Err(path.wrong_type("document", value));
    };
    let mut members = Fields::new(document, path.clone())?;
    let kind = members.string("type")?;
    if members.required("type", kind)? != "string" {
        return Err(path.refuse("multi definition must be string field"));
    }
    if members.has("multi") {
        return Err(path.refuse("multi definition cannot contain nested multi definition"));
    }
    let field = parse_options(&mut members)?;
    members.finish()?;
    Ok(field)
}

fn parse_options(fields: &mut Fields<'_>) -> Result<StringField> {
    let details = [
        ("docs", PostingsDetail::Documents),
        ("freqs", PostingsDetail::Frequencies),
        ("offsets", PostingsDetail::Positions),
        ("positions", PostingsDetail::Positions),
    ];
    let norms = [("include", true), ("omit", false)];
    Ok(StringField {
        analyzer: analyzer(fields, "analyzer")?,
        search_analyzer: analyzer(fields, "searchAnalyzer")?,
        ignore_above: fields.whole("ignoreAbove", 1..=UNBOUNDED)?.map(|number| number as usize),
        detail: fields.choice("indexOptions", &details)?.unwrap_or(PostingsDetail::Positions),
        has_norms: fields.choice("norms", &norms)?.unwrap_or(true),
        is_stored: fields.boolean("store")?.unwrap_or(true),
        score: score_function(fields)?,
        multi: BTreeMap::new(),
    })
}

pub(super) fn parse_autocomplete(fields: &mut Fields<'_>) -> Result<AutocompleteField> {
    let least = fields.whole("minGrams", 1..=UNBOUNDED)?;
    let most = fields.whole("maxGrams", 1..=UNBOUNDED)?;
    let (given_least, given_most) = (least.is_some(), most.is_some());
    let (least, most) = (least.unwrap_or(2), most.unwrap_or(15));
    if least > most {
        return Err(fields.path().refuse(match (given_least, given_most) {
            (true, true) => "minGrams cannot be greater than maxGrams",
            (true, false) => {
                "minGrams must be less than or equal to the default maxGrams value of 15"
            }
            (false, _) => {
                "maxGrams must be greater than or equal to the default minGrams value of 2"
            }
        }));
    }
    if most > MAX_GRAM {
        let text = format!("greater than {MAX_GRAM}");
        return Err(fields.path_of("maxGrams").not_supported(&text));
    }
    let grams =
        [("edgeGram", Grams::Edge), ("nGram", Grams::Every), ("rightEdgeGram", Grams::RightEdge)];
    Ok(AutocompleteField {
        analyzer: analyzer(fields, "analyzer")?,
        lengths: (least as usize, most as usize),
        folds_diacritics: fields.boolean("foldDiacritics")?.unwrap_or(true),
        grams: fields.choice("tokenization", &grams)?.unwrap_or(Grams::Edge),
        score: score_function(fields)?,
    })
}
