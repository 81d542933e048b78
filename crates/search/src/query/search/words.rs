//! `text`, `phrase`, `autocomplete`, `wildcard`, `regex`.

use std::sync::Arc;

use mayfly_base::Result;

use super::options::{strings, word_paths};
use super::{CasedPattern, Criteria, Fuzzy, Node, Pattern, Reader, WordPath};
use crate::definition::{AnalyzerRule, FieldType};
use crate::fault::refused;
use crate::read::{Fields, UNBOUNDED};
use crate::text::glob::Glob;
use crate::text::lower_case;
use crate::text::regex::Regex;

/// Longest pattern of `wildcard` and `regex`, in bytes.
const MAX_PATTERN: usize = 4_096;

impl Reader<'_> {
    pub(super) fn text(&mut self, fields: &mut Fields<'_>) -> Result<Node> {
        refuse_options(fields, &["synonyms"])?;
        let choices = [("all", Criteria::All), ("any", Criteria::Any)];
        let criteria = fields.choice("matchCriteria", &choices)?.unwrap_or(Criteria::Any);
        let fuzzy = fuzzy(fields)?;
        let (paths, queries) = (word_paths(fields)?, strings(fields, "query")?);
        Ok(Node::Words { paths, queries, criteria, fuzzy })
    }

    pub(super) fn phrase(&mut self, fields: &mut Fields<'_>) -> Result<Node> {
        refuse_options(fields, &["synonyms"])?;
        let slop = fields.whole("slop", 0..=UNBOUNDED)?.unwrap_or(0) as u32;
        Ok(Node::Phrase { paths: word_paths(fields)?, queries: strings(fields, "query")?, slop })
    }

    pub(super) fn autocomplete(&mut self, fields: &mut Fields<'_>) -> Result<Node> {
        let fuzzy = fuzzy(fields)?;
        let choices = [("any", Criteria::Any), ("sequential", Criteria::Sequence)];
        let criteria = fields.choice("tokenOrder", &choices)?.unwrap_or(Criteria::Any);
        let path = fields.text("path")?;
        let path = fields.required("path", path)?.to_owned();
        let of = |field_type: &FieldType| match field_type {
            FieldType::Autocomplete(field) => Some(field.lengths.1),
            _ => None,
        };
        let Some(longest) = self.definition.types_at(&path).iter().find_map(of) else {
            let text = format!("autocomplete index field definition not present at path {path}");
            return Err(refused(text));
        };
        if fuzzy.is_some_and(|fuzzy| fuzzy.prefix > longest) {
            let text = "minimum fuzzy prefix length must be less than the maximum indexed token \
                        length";
            return Err(refused(text));
        }
        Ok(Node::Parts { path, queries: strings(fields, "query")?, criteria, fuzzy })
    }

    pub(super) fn wildcard(&mut self, fields: &mut Fields<'_>) -> Result<Node> {
        let (paths, patterns) = self.patterns(fields)?;
        let parse = |pattern: &str| Ok(Pattern::Glob(Glob::new(pattern)));
        let patterns = patterns.iter().map(|pattern| cased(pattern, parse));
        Ok(Node::Pattern { paths, patterns: patterns.collect::<Result<_>>()? })
    }

    pub(super) fn regex(&mut self, fields: &mut Fields<'_>) -> Result<Node> {
        let (paths, patterns) = self.patterns(fields)?;
        let path = fields.path_of("query");
        let parse = |pattern: &str| match Regex::new(pattern) {
            Ok(regex) => Ok(Pattern::Regex(Arc::new(regex))),
            Err(reason) => Err(path.refuse(format_args!("is not a regular expression: {reason}"))),
        };
        let patterns = patterns.iter().map(|pattern| cased(pattern, parse));
        Ok(Node::Pattern { paths, patterns: patterns.collect::<Result<_>>()? })
    }

    /// The paths and the patterns of an operator on whole terms.
    fn patterns(&self, fields: &mut Fields<'_>) -> Result<(Vec<WordPath>, Vec<String>)> {
        let is_allowed = fields.boolean("allowAnalyzedField")?.unwrap_or(false);
        let paths = word_paths(fields)?;
        let patterns = strings(fields, "query")?;
        if patterns.iter().any(|pattern| pattern.len() > MAX_PATTERN) {
            let text = format!("is longer than {MAX_PATTERN} bytes");
            return Err(fields.path_of("query").refuse(text));
        }
        for path in &paths {
            let WordPath::Path(path, multi) = path else { continue };
            let analyzer = self.definition.analyzer_at(path, multi);
            let is_whole = analyzer.is_none_or(|name| name.rule() == AnalyzerRule::Keyword);
            if !is_whole && !is_allowed {
                return Err(refused(format!(
                    "Field {path} is analyzed. Use a keyword analyzed field or set \
                     allowAnalyzedField to true."
                )));
            }
        }
        Ok((paths, patterns))
    }
}

/// A pattern as it was written and in lower case. A class like `\W` is in lower case then, too, as
/// in the reference.
fn cased(pattern: &str, parse: impl Fn(&str) -> Result<Pattern>) -> Result<CasedPattern> {
    let lower = lower_case(pattern);
    let is_same = lower == pattern;
    let lower = (!is_same).then(|| parse(&lower)).transpose()?;
    Ok(CasedPattern { written: parse(pattern)?, lower })
}

/// `fuzzy`.
fn fuzzy(fields: &mut Fields<'_>) -> Result<Option<Fuzzy>> {
    let Some(document) = fields.document("fuzzy")? else { return Ok(None) };
    let mut members = Fields::new(document, fields.path_of("fuzzy"))?;
    let max_edits = members.whole("maxEdits", i64::MIN..=i64::MAX)?.unwrap_or(2);
    if !(1..=2).contains(&max_edits) {
        return Err(members.path_of("maxEdits").refuse("must be either 1 or 2"));
    }
    let fuzzy = Fuzzy {
        max_edits: max_edits as usize,
        prefix: members.whole("prefixLength", 0..=UNBOUNDED)?.unwrap_or(0) as usize,
        max_expansions: members.whole("maxExpansions", 1..=1_000)?.unwrap_or(50) as usize,
    };
    members.finish()?;
    Ok(Some(fuzzy))
}

fn refuse_options(fields: &mut Fields<'_>, names: &[&str]) -> Result<()> {
    for name in names {
        if fields.has(name) {
            return Err(fields.path_of(name).not_supported(&format!("the option \"{name}\"")));
        }
    }
    Ok(())
}
