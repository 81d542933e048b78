//! `text`, `phrase`, `autocomplete`, `wildcard`.

use mayfly_base::Result;

use super::options::{strings, word_paths};
use super::{Criteria, Node, Reader, WordPath};
use crate::definition::{AnalyzerRule, FieldType};
use crate::fault::refused;
use crate::read::{Fields, UNBOUNDED};

/// Longest pattern of `wildcard`, in bytes.
const MAX_PATTERN: usize = 4_096;

impl Reader<'_> {
    pub(super) fn text(&mut self, fields: &mut Fields<'_>) -> Result<Node> {
        refuse_options(fields, &["fuzzy", "synonyms"])?;
        let choices = [("all", Criteria::All), ("any", Criteria::Any)];
        let criteria = fields.choice("matchCriteria", &choices)?.unwrap_or(Criteria::Any);
        Ok(Node::Words { paths: word_paths(fields)?, queries: strings(fields, "query")?, criteria })
    }

    pub(super) fn phrase(&mut self, fields: &mut Fields<'_>) -> Result<Node> {
        refuse_options(fields, &["synonyms"])?;
        let slop = fields.whole("slop", 0..=UNBOUNDED)?.unwrap_or(0) as u32;
        Ok(Node::Phrase { paths: word_paths(fields)?, queries: strings(fields, "query")?, slop })
    }

    pub(super) fn autocomplete(&mut self, fields: &mut Fields<'_>) -> Result<Node> {
        refuse_options(fields, &["fuzzy"])?;
        let choices = [("any", Criteria::Any), ("sequential", Criteria::Sequence)];
        let criteria = fields.choice("tokenOrder", &choices)?.unwrap_or(Criteria::Any);
        let path = fields.text("path")?;
        let path = fields.required("path", path)?.to_owned();
        let is_indexed = |field_type: &FieldType| matches!(field_type, FieldType::Autocomplete(_));
        if !self.definition.types_at(&path).iter().any(is_indexed) {
            let text = format!("autocomplete index field definition not present at path {path}");
            return Err(refused(text));
        }
        Ok(Node::Parts { path, queries: strings(fields, "query")?, criteria })
    }

    pub(super) fn wildcard(&mut self, fields: &mut Fields<'_>) -> Result<Node> {
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
                let text = format!("path {path} is analyzed: set allowAnalyzedField to search it");
                return Err(fields.path_of("path").refuse(text));
            }
        }
        Ok(Node::Pattern { paths, patterns })
    }
}

fn refuse_options(fields: &mut Fields<'_>, names: &[&str]) -> Result<()> {
    for name in names {
        if fields.has(name) {
            return Err(fields.path_of(name).not_supported(&format!("the option \"{name}\"")));
        }
    }
    Ok(())
}
