//! What an expression may name beside fields: variables of the command and of the system.

use std::collections::BTreeMap;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_scripts::ScriptLimits;
use mayfly_value::{Collation, RawDoc, RawValue};

use crate::accum::AccumulatorLimits;
use crate::parse::Parser;
use crate::{Expression, Frame};

/// Where scripts may stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scripts {
    /// In expressions: `$function`.
    #[default]
    InExpressions,
    /// Beside fields too: `$where`, in the filter of a command on a collection.
    InFilters,
    /// Nowhere: in a validator.
    Nowhere,
}

/// Variables whose values are known before any document is.
#[derive(Clone, Debug)]
pub struct Scope {
    now_ms: Option<i64>,
    collation: Option<Arc<Collation>>,
    variables: BTreeMap<String, Expression>,
    scripts: Scripts,
    script_limits: ScriptLimits,
    metadata: Vec<String>,
    text_index: bool,
    accumulators: AccumulatorLimits,
}

impl Default for Scope {
    /// A scope that names nothing and runs no scripts.
    fn default() -> Scope {
        Scope {
            now_ms: None,
            collation: None,
            variables: BTreeMap::new(),
            scripts: Scripts::default(),
            script_limits: ScriptLimits::NONE,
            metadata: Vec::new(),
            text_index: false,
            accumulators: AccumulatorLimits::default(),
        }
    }
}

impl Scope {
    /// A scope in which `$$NOW` is this time, in milliseconds.
    pub fn at(now_ms: i64) -> Scope {
        Scope { now_ms: Some(now_ms), ..Scope::default() }
    }

    /// Adds a variable of the system, `CLUSTER_TIME`, `USER_ROLES`, or for `$redact` `DESCEND`, `PRUNE` and `KEEP`.
    #[must_use]
    pub fn with_system(mut self, name: &str, value: RawValue<'_>) -> Scope {
        self.variables.insert(name.to_owned(), Expression::constant(value));
        self
    }

    /// The same scope where `$meta` may ask for this; what evaluates the expressions hands it in with the document.
    #[must_use]
    pub fn with_metadata(mut self, name: &str) -> Scope {
        self.metadata.push(name.to_owned());
        self
    }

    /// The same scope where `$meta` may ask for nothing: that of a pipeline over other documents.
    #[must_use]
    pub fn without_metadata(self) -> Scope {
        Scope { metadata: Vec::new(), ..self }
    }

    /// The same scope where a filter may search the collection's text index.
    #[must_use]
    pub fn with_text_index(self) -> Scope {
        Scope { text_index: true, ..self }
    }

    /// Whether a filter may search the collection's text index.
    pub fn has_text_index(&self) -> bool {
        self.text_index
    }

    /// Whether `$meta` may ask for this.
    pub(crate) fn has_metadata(&self, name: &str) -> bool {
        self.metadata.iter().any(|have| have == name)
    }

    /// The same scope where strings compare by this collation.
    #[must_use]
    pub fn collated(self, collation: Option<Arc<Collation>>) -> Scope {
        Scope { collation, ..self }
    }

    /// The same scope with scripts in other places.
    #[must_use]
    pub fn with_scripts(self, scripts: Scripts) -> Scope {
        Scope { scripts, ..self }
    }

    /// The same scope where scripts may take so much. Without it there are none.
    #[must_use]
    pub fn with_script_limits(self, script_limits: ScriptLimits) -> Scope {
        Scope { script_limits, ..self }
    }

    /// What scripts may take, and whether there are any.
    pub fn script_limits(&self) -> ScriptLimits {
        self.script_limits
    }

    /// The same scope with other limits of accumulators.
    #[must_use]
    pub fn with_accumulator_limits(self, accumulators: AccumulatorLimits) -> Scope {
        Scope { accumulators, ..self }
    }

    /// The memory of accumulators.
    pub fn accumulator_limits(&self) -> &AccumulatorLimits {
        &self.accumulators
    }

    /// Where scripts may stand.
    pub fn scripts(&self) -> Scripts {
        self.scripts
    }

    /// How strings compare.
    pub fn collation(&self) -> Option<&Arc<Collation>> {
        self.collation.as_ref()
    }

    /// Adds the `let` argument of a command. Each expression is evaluated once; it may use the variables before it, but no
    /// document.
    ///
    /// # Errors
    /// 9 FailedToParse for a bad name, 4890500 for a path to a field, and those of the expressions.
    pub fn declare(&mut self, variables: RawDoc<'_>) -> Result<()> {
        for element in variables {
            let name = element.name();
            check_variable_name(name)?;
            let mut parser = Parser::new(self);
            let expression = parser.parse(element.value())?;
            if parser.reads_document() {
                let text = "Command let Expression tried to access a field, but this is not allowed because Command \
                            let Expressions run before the query examines any documents.";
                return Err(Error::new(ErrorCode(4_890_500), text));
            }
            let value = expression
                .evaluate(Frame::new(RawDoc::EMPTY).collated(self.collation.as_deref()))?
                .into_owned();
            let value =
                value.map_or(Expression::Missing, |value| Expression::Constant(value.into()));
            self.variables.insert(name.to_owned(), value);
        }
        Ok(())
    }

    /// Adds a variable that has no value yet: what names it is not constant. Expressions of this scope are parsed to be checked, and
    /// never evaluated.
    pub fn declare_unknown(&mut self, name: &str) {
        self.variables.insert(name.to_owned(), Expression::Path(vec![name.to_owned()]));
    }

    /// What a variable stands for: a constant, or something that is no constant where its value is not known.
    pub(crate) fn variable(&self, name: &str) -> Option<Expression> {
        self.variables.get(name).cloned()
    }

    /// `$$NOW`, where the scope knows it.
    pub(crate) fn now(&self) -> Option<Expression> {
        self.now_ms.map(|now| Expression::constant(RawValue::Date(now)))
    }
}

/// Names that users may give to variables begin with a lower-case letter or a character beyond ASCII.
pub(crate) fn check_variable_name(name: &str) -> Result<()> {
    let mut letters = name.chars();
    let Some(first) = letters.next() else {
        return Err(Error::failed_to_parse("empty variable names are not allowed"));
    };
    if name == "CURRENT" {
        return Ok(());
    }
    if first.is_ascii() && !first.is_ascii_lowercase() {
        let text = format!("'{name}' starts with an invalid character for a user variable name");
        return Err(Error::failed_to_parse(text));
    }
    match letters.find(|c| c.is_ascii() && !c.is_ascii_alphanumeric() && *c != '_') {
        None => Ok(()),
        Some(other) => Err(Error::failed_to_parse(format!(
            "'{name}' contains an invalid character for a variable name: '{other}'"
        ))),
    }
}
