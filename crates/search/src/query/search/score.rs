//! `score` of an operator: how its score is changed.

use mayfly_base::Result;
use mayfly_value::RawValue;

use super::Reader;
use super::options::number;
use crate::definition::FieldType;
use crate::fault::{FieldPath, refused};
use crate::limits::MAX_DEPTH;
use crate::read::Fields;

/// A changed score.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Score {
    /// Multiplied by a number.
    Boost(f32),
    /// The same for all documents.
    Constant(f32),
    /// Multiplied by a value of the document.
    PathBoost(PathValue),
    /// Computed from the score and from values of the document.
    Function(Expression),
}

/// The number at a path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PathValue {
    pub(crate) path: String,
    /// The number of documents that have none.
    pub(crate) undefined: f64,
}

/// An expression of `function`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expression {
    /// The score of the operator.
    Relevance,
    Constant(f64),
    Path(PathValue),
    Add(Vec<Expression>),
    Multiply(Vec<Expression>),
    /// The decimal logarithm.
    Log(Box<Expression>),
    /// The decimal logarithm of one more.
    Log1p(Box<Expression>),
    Gauss(Gauss),
}

/// A decay with the distance between a value and an origin.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Gauss {
    pub(crate) path: PathValue,
    pub(crate) origin: f64,
    /// The distance at which the value is `decay`.
    pub(crate) scale: f64,
    /// The distance from which on the value decays.
    pub(crate) offset: f64,
    pub(crate) decay: f64,
}

impl Gauss {
    pub(crate) fn of(&self, value: f64) -> f64 {
        let distance = ((value - self.origin).abs() - self.offset).max(0.0);
        (distance * distance * self.decay.ln() / (self.scale * self.scale)).exp()
    }
}

/// The names of scores, of which one may be present.
const SCORES: [&str; 3] = ["boost", "constant", "function"];

impl Reader<'_> {
    /// `score` of an operator that is not `compound` with `dismax`.
    pub(super) fn score(&mut self, fields: &mut Fields<'_>) -> Result<Option<Score>> {
        let Some(document) = fields.document("score")? else { return Ok(None) };
        let mut members = Fields::new(document, fields.path_of("score"))?;
        for (name, operator) in [("dismax", "compound"), ("embedded", "embeddedDocument")] {
            if members.has(name) {
                let text = format!("is only possible for the operator \"{operator}\"");
                return Err(members.path_of(name).refuse(text));
            }
        }
        let name = one_of(&members, &SCORES)?;
        let path = members.path_of(name);
        let document = members.document(name)?;
        let mut inner = Fields::new(members.required(name, document)?, path)?;
        members.finish()?;
        let score = match name {
            "boost" => self.boost(&mut inner)?,
            "constant" => {
                let value = number(&mut inner, "value")?;
                let value = inner.required("value", value)?;
                if value < 0.0 {
                    return Err(inner.path_of("value").refuse("cannot be negative"));
                }
                Score::Constant(value as f32)
            }
            _ => Score::Function(self.expression(&mut inner, 0)?),
        };
        inner.finish()?;
        Ok(Some(score))
    }

    fn boost(&mut self, fields: &mut Fields<'_>) -> Result<Score> {
        if one_of(fields, &["value", "path"])? == "path" {
            let path = fields.text("path")?.unwrap_or_default().to_owned();
            let undefined = number(fields, "undefined")?.unwrap_or(0.0);
            self.check_number(&path)?;
            return Ok(Score::PathBoost(PathValue { path, undefined }));
        }
        if fields.has("undefined") {
            let text = "\"undefined\" cannot be present when \"value\" is present";
            return Err(fields.path().refuse(text));
        }
        match number(fields, "value")?.unwrap_or(0.0) {
            value if value <= 0.0 => Err(fields.path_of("value").refuse("must be positive")),
            value => Ok(Score::Boost(value as f32)),
        }
    }

    /// An expression, which is the only field of its document.
    fn expression(&mut self, fields: &mut Fields<'_>, depth: usize) -> Result<Expression> {
        self.count(fields.path())?;
        if depth > MAX_DEPTH {
            let text = format!("is nested more than {MAX_DEPTH} levels deep");
            return Err(fields.path().refuse(text));
        }
        let names = ["add", "constant", "gauss", "log", "log1p", "multiply", "path", "score"];
        let name = one_of(fields, &names)?;
        Ok(match name {
            "add" => Expression::Add(self.operands(fields, name, depth)?),
            "multiply" => Expression::Multiply(self.operands(fields, name, depth)?),
            "constant" => Expression::Constant(number(fields, name)?.unwrap_or(0.0)),
            "log" => Expression::Log(Box::new(self.operand(fields, name, depth)?)),
            "log1p" => Expression::Log1p(Box::new(self.operand(fields, name, depth)?)),
            "path" => Expression::Path(self.path_value(fields)?),
            "gauss" => Expression::Gauss(self.gauss(fields)?),
            _ => {
                fields.choice("score", &[("relevance", ())])?;
                Expression::Relevance
            }
        })
    }

    fn operand(&mut self, fields: &mut Fields<'_>, name: &str, depth: usize) -> Result<Expression> {
        let document = fields.document(name)?;
        let mut members = Fields::new(fields.required(name, document)?, fields.path_of(name))?;
        let expression = self.expression(&mut members, depth + 1)?;
        members.finish()?;
        Ok(expression)
    }

    fn operands(
        &mut self,
        fields: &mut Fields<'_>,
        name: &str,
        depth: usize,
    ) -> Result<Vec<Expression>> {
        let items = fields.array(name)?;
        let path = fields.path_of(name);
        let mut operands = Vec::new();
        for (at, item) in fields.required(name, items)?.iter().enumerate() {
            let path = path.item(at);
            let RawValue::Document(document) = item.value() else {
                return Err(path.wrong_type("document", item.value()));
            };
            let mut members = Fields::new(document, path)?;
            operands.push(self.expression(&mut members, depth + 1)?);
            members.finish()?;
        }
        if operands.len() < 2 {
            return Err(path.refuse("must have at least 2 elements"));
        }
        Ok(operands)
    }

    /// `path`: a string, or a document of a path and the number of documents without a value.
    fn path_value(&mut self, fields: &mut Fields<'_>) -> Result<PathValue> {
        let path = fields.path_of("path");
        let value = fields.value("path");
        let value = match fields.required("path", value)? {
            RawValue::String(path) => PathValue { path: path.to_owned(), undefined: 0.0 },
            RawValue::Document(document) => {
                let mut members = Fields::new(document, path)?;
                let path = members.text("value")?;
                let path = members.required("value", path)?.to_owned();
                let undefined = number(&mut members, "undefined")?.unwrap_or(0.0);
                members.finish()?;
                PathValue { path, undefined }
            }
            value => return Err(path.wrong_type("document or string", value)),
        };
        self.check_number(&value.path)?;
        Ok(value)
    }

    fn gauss(&mut self, fields: &mut Fields<'_>) -> Result<Gauss> {
        let document = fields.document("gauss")?;
        let mut members =
            Fields::new(fields.required("gauss", document)?, fields.path_of("gauss"))?;
        let path = self.path_value(&mut members)?;
        let origin = number(&mut members, "origin")?;
        let origin = members.required("origin", origin)?;
        let scale = number(&mut members, "scale")?;
        let scale = members.required("scale", scale)?;
        if scale == 0.0 {
            return Err(members.path_of("scale").refuse("must be nonzero"));
        }
        let offset = number(&mut members, "offset")?.unwrap_or(0.0);
        let decay = number(&mut members, "decay")?.unwrap_or(0.5);
        if decay <= 0.0 || decay >= 1.0 {
            let text = "must be between 0 and 1 (exclusive)";
            return Err(members.path_of("decay").refuse(text));
        }
        members.finish()?;
        Ok(Gauss { path, origin, scale, offset, decay })
    }

    fn check_number(&self, path: &str) -> Result<()> {
        let is_number = |field: &FieldType| matches!(field, FieldType::Number(_));
        if self.definition.types_at(path).iter().any(is_number) {
            return Ok(());
        }
        Err(refused(format!(
            "path expression for function score requires path \"{path}\" to be indexed as numeric"
        )))
    }
}

/// `dismax` of the score of a `compound`: the part of the scores of other clauses that is added to
/// the greatest one.
pub(super) fn dismax(fields: &mut Fields<'_>) -> Result<Option<f32>> {
    let Some(RawValue::Document(document)) = fields.peek("score") else { return Ok(None) };
    let mut members = Fields::new(document, fields.path_of("score"))?;
    if !members.has("dismax") {
        return Ok(None);
    }
    fields.value("score");
    let mut names = SCORES.to_vec();
    names.push("dismax");
    one_of(&members, &names)?;
    let document = members.document("dismax")?;
    let mut inner = Fields::new(members.required("dismax", document)?, members.path_of("dismax"))?;
    members.finish()?;
    let tie_breaker = number(&mut inner, "tieBreakerScore")?.unwrap_or(1.0);
    if !(0.0..=1.0).contains(&tie_breaker) {
        return Err(inner.path_of("tieBreakerScore").refuse("must be within bounds [0.0..1.0]"));
    }
    inner.finish()?;
    Ok(Some(tie_breaker as f32))
}

/// The name that is present, of which there must be exactly one.
fn one_of<'n>(fields: &Fields<'_>, names: &[&'n str]) -> Result<&'n str> {
    let path: &FieldPath = fields.path();
    let mut present = names.iter().filter(|name| fields.has(name));
    match (present.next(), present.next()) {
        (Some(name), None) => Ok(name),
        (None, _) => {
            Err(path.refuse(format_args!("one of [{}] must be present", names.join(", "))))
        }
        (Some(_), Some(_)) => {
            Err(path.refuse(format_args!("only one of [{}] may be present", names.join(", "))))
        }
    }
}
