//! The names available to an expression in addition to fields: variables of the command and of the
//! system.

use std::collections::BTreeMap;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_scripts::ScriptLimits;
use mayfly_value::{Collation, RawDoc, RawValue};

use crate::accum::AccumulatorLimits;
use crate::parse::Parser;
use crate::{Expression, Frame};

/// The places where scripts are allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scripts {
    /// In expressions: `$function`.
    #[default]
    InExpressions,
    /// Also in filters: `$where`, in the filter of a command on a collection.
    InFilters,
    /// Not allowed: in a validator.
    Nowhere,
}

/// The time of an operation: the values of `$$NOW` and `$$CLUSTER_TIME`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationTime {
    /// Milliseconds since 1970.
    pub now_ms: i64,
    /// The cluster time, as the bits of a timestamp; `None` where there is none.
    pub cluster: Option<u64>,
}

impl OperationTime {
    /// Any time, for what is parsed and not evaluated.
    pub const ANY: OperationTime = OperationTime { now_ms: 0, cluster: Some(0) };

    /// A time without a cluster time, in milliseconds since 1970.
    pub fn at(now_ms: i64) -> OperationTime {
        OperationTime { now_ms, cluster: None }
    }
}

/// Variables whose values are known before the first document, and the settings of expressions.
#[derive(Clone, Debug)]
pub struct Scope {
    time: Option<OperationTime>,
    collation: Option<Arc<Collation>>,
    variables: BTreeMap<String, Expression>,
    scripts: Scripts,
    script_limits: ScriptLimits,
    metadata: Vec<&'static str>,
    text_index: bool,
    waits_for_documents: bool,
    accumulators: AccumulatorLimits,
}

impl Default for Scope {
    /// A scope without variables and without scripts.
    fn default() -> Scope {
        Scope {
            time: None,
            collation: None,
            variables: BTreeMap::new(),
            scripts: Scripts::default(),
            script_limits: ScriptLimits::NONE,
            metadata: Vec::new(),
            text_index: false,
            waits_for_documents: false,
            accumulators: AccumulatorLimits::default(),
        }
    }
}

impl Scope {
    /// A scope with the variables `$$NOW` and `$$CLUSTER_TIME`.
    pub fn at(time: OperationTime) -> Scope {
        Scope { time: Some(time), ..Scope::default() }
    }

    /// Adds a system variable: `USER_ROLES`, or for `$redact` `DESCEND`, `PRUNE` and `KEEP`.
    #[must_use]
    pub fn with_system(mut self, name: &str, value: RawValue<'_>) -> Scope {
        self.variables.insert(name.to_owned(), Expression::constant(value));
        self
    }

    /// Allows `$meta` to read this metadata. The evaluator passes it with the document.
    #[must_use]
    pub fn with_metadata(mut self, name: &'static str) -> Scope {
        self.metadata.push(name);
        self
    }

    /// Declares no times, where an expression must have the same value at any time.
    #[must_use]
    pub fn without_time(self) -> Scope {
        Scope { time: None, ..self }
    }

    /// Allows no metadata, for a pipeline over other documents.
    #[must_use]
    pub fn without_metadata(self) -> Scope {
        Scope { metadata: Vec::new(), ..self }
    }

    /// Allows filters to use the collection's text index.
    #[must_use]
    pub fn with_text_index(self) -> Scope {
        Scope { text_index: true, ..self }
    }

    /// Whether filters may use the collection's text index.
    pub fn has_text_index(&self) -> bool {
        self.text_index
    }

    /// Lets errors of constant expressions appear only when a document is there.
    #[must_use]
    pub fn waiting_for_documents(self) -> Scope {
        Scope { waits_for_documents: true, ..self }
    }

    /// Whether errors of constant expressions appear only when a document is there. Validators
    /// always wait.
    pub(crate) fn waits_for_documents(&self) -> bool {
        self.waits_for_documents || self.scripts == Scripts::Nowhere
    }

    /// Whether `$meta` may read this metadata.
    pub(crate) fn has_metadata(&self, name: &str) -> bool {
        self.metadata.contains(&name)
    }

    /// Sets the collation of string comparisons.
    #[must_use]
    pub fn collated(self, collation: Option<Arc<Collation>>) -> Scope {
        Scope { collation, ..self }
    }

    /// Sets where scripts are allowed.
    #[must_use]
    pub fn with_scripts(self, scripts: Scripts) -> Scope {
        Scope { scripts, ..self }
    }

    /// Sets the limits of scripts. By default they are disabled.
    #[must_use]
    pub fn with_script_limits(self, script_limits: ScriptLimits) -> Scope {
        Scope { script_limits, ..self }
    }

    /// The limits of scripts, and whether they are enabled.
    pub fn script_limits(&self) -> ScriptLimits {
        self.script_limits
    }

    /// Sets the memory limits of accumulators.
    #[must_use]
    pub fn with_accumulator_limits(self, accumulators: AccumulatorLimits) -> Scope {
        Scope { accumulators, ..self }
    }

    /// The memory limits of accumulators.
    pub fn accumulator_limits(&self) -> &AccumulatorLimits {
        &self.accumulators
    }

    /// Where scripts are allowed.
    pub fn scripts(&self) -> Scripts {
        self.scripts
    }

    /// The collation of string comparisons.
    pub fn collation(&self) -> Option<&Arc<Collation>> {
        self.collation.as_ref()
    }

    /// Adds the variables of a command's `let`. Each expression is evaluated once; it may use
    /// earlier variables, but neither a document nor the time.
    ///
    /// # Errors
    /// 9 FailedToParse for an invalid name, 4738901 for the name of a time, 4890500 for a path to a
    /// field, 51144 for a time, errors of the expressions.
    pub fn declare(&mut self, variables: RawDoc<'_>) -> Result<()> {
        let time = self.time.take();
        let declared = self.declare_timeless(variables);
        self.time = time;
        declared
    }

    fn declare_timeless(&mut self, variables: RawDoc<'_>) -> Result<()> {
        for element in variables {
            let name = element.name();
            if matches!(name, "NOW" | "CLUSTER_TIME") {
                let text = format!("'let' must not define the system variable '{name}'");
                return Err(Error::new(ErrorCode(4_738_901), text));
            }
            check_variable_name(name)?;
            let mut parser = Parser::new(self);
            let expression = parser.parse(element.value())?;
            parser.finish()?;
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

    /// Adds a variable whose value is not known yet. Expressions of this scope are parsed to be
    /// checked, and never evaluated.
    pub fn declare_unknown(&mut self, name: &str) {
        self.variables.insert(name.to_owned(), Expression::Path(vec![name.to_owned()]));
    }

    /// The value of a variable; an expression that is no constant where the value is not known.
    pub(crate) fn variable(&self, name: &str) -> Option<Expression> {
        self.variables.get(name).cloned()
    }

    /// The value of `$$NOW`, if the scope has one.
    pub(crate) fn now(&self) -> Option<Expression> {
        self.time.map(|time| Expression::constant(RawValue::Date(time.now_ms)))
    }

    /// The value of `$$CLUSTER_TIME`; `None` where a variable of that name is not available.
    ///
    /// # Errors
    /// 10071200 where there is no cluster time.
    pub(crate) fn cluster_time(&self) -> Result<Option<Expression>> {
        let Some(time) = self.time else { return Ok(None) };
        match time.cluster {
            Some(cluster) => Ok(Some(Expression::constant(RawValue::Timestamp(cluster)))),
            None => {
                let text = "system variable $$CLUSTER_TIME is not available in standalone";
                Err(Error::new(ErrorCode(10_071_200), text))
            }
        }
    }
}

/// Checks the name of a user variable, which must begin with a lower-case letter or a non-ASCII
/// character.
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
