//! `$bucketAuto`: a given number of groups of about equal size, in the order of an expression.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::accum::{AccumState, Accumulator};
use mayfly_expr::{Expression, Frame};
use mayfly_value::arguments::{Argument, Fields, OwnCodes};
use mayfly_value::keys::{self, TypeBits};
use mayfly_value::shell::ShellValue;
use mayfly_value::{
    DocBuf, DocBuilder, Number, RawDoc, RawValue, SortOrder, ValueBuf, check_size,
    compare_values_in,
};
use mayfly_work::OpCtx;
use mayfly_work::spill::Operator;

use super::bucket::is_expression;
use super::granularity::Granularity;
use super::{Next, PipelineContext, Reads, Running, Stage, StageContext};
use crate::exec::Flow;
use crate::language::metadata::Metadata;
use crate::memory::{Sorted, Sorter};

/// Documents between two checks of the deadline.
const CHUNK_DOCUMENTS: u64 = 256;

/// A parsed `$bucketAuto`.
#[derive(Clone, Debug)]
pub(crate) struct BucketAuto {
    group_by: Expression,
    buckets: i32,
    fields: Vec<(String, Accumulator)>,
    granularity: Option<Granularity>,
    collation: Option<std::sync::Arc<mayfly_value::Collation>>,
}

fn fault(code: i32, text: impl Into<String>) -> Error {
    Error::new(ErrorCode(code), text)
}

pub(crate) fn parse(value: RawValue<'_>, context: &PipelineContext<'_>) -> Result<Box<dyn Stage>> {
    let RawValue::Document(spec) = value else {
        let kind = value.type_name();
        let text =
            format!("The argument to $bucketAuto must be an object, but found type: {kind}.");
        return Err(fault(40240, text));
    };
    let given = Fields::read_with(spec, "$bucketAuto", ARGUMENTS, CODES)?;
    let group_by = given.doc().get("groupBy").unwrap_or(RawValue::Null);
    if !is_expression(group_by) {
        let shown = ShellValue(group_by);
        let text = format!(
            "The $bucketAuto 'groupBy' field must be defined as a $-prefixed path or an expression object, but \
             found: {shown}"
        );
        return Err(fault(40239, text));
    }
    let group_by = Expression::parse_in(group_by, context.scope)?;
    let buckets = number_of_buckets(given.doc().get("buckets").unwrap_or(RawValue::Null))?;
    let output = given.document("output")?;
    let granularity = match given.string("granularity")? {
        None => None,
        Some(name) => match Granularity::named(name) {
            Some(found) => Some(found),
            None => return Err(fault(40257, format!("Unknown rounding granularity '{name}'"))),
        },
    };
    let fields = output_fields(output.filter(|output| !output.is_empty()), context)?;
    let collation = context.scope.collation().cloned();
    Ok(Box::new(BucketAuto { group_by, buckets, fields, granularity, collation }))
}

pub(crate) const ARGUMENTS: &[Argument] = &[
    Argument::any("groupBy").required(),
    Argument::any("buckets").required(),
    Argument::document("output").null_is_value().refused_with(
        40244,
        "The $bucketAuto 'output' field must be an object, but found type: {}.",
    ),
    Argument::string("granularity").null_is_value().refused_with(
        40261,
        "The $bucketAuto 'granularity' field must be a string, but found type: {}.",
    ),
];
pub(crate) const CODES: OwnCodes = OwnCodes {
    unknown: (40245, "Unrecognized option to $bucketAuto: {}"),
    missing: Some((40246, "$bucketAuto requires 'groupBy' and 'buckets' to be specified.")),
};

/// Parses the fields of `output`; the default counts the documents.
fn output_fields(
    output: Option<RawDoc<'_>>,
    context: &PipelineContext<'_>,
) -> Result<Vec<(String, Accumulator)>> {
    let mut counting = DocBuilder::new();
    counting.start_document("count").append("$sum", 1).end();
    let counting = counting.finish();
    let parse = |field: mayfly_value::RawElement<'_>| {
        let name = field.name();
        if name.starts_with('$') {
            let text = format!("The field name '{name}' cannot be an operator name");
            return Err(fault(40236, text));
        }
        if name.contains('.') {
            return Err(fault(40235, format!("The field name '{name}' cannot contain '.'")));
        }
        let accumulator = Accumulator::parse(field, context.scope)?;
        if accumulator.begins_with_group() {
            return Err(fault(4544714, "Can't refer to the group key in $bucketAuto"));
        }
        Ok((field.name().to_owned(), accumulator))
    };
    output.unwrap_or(counting.as_doc()).iter().map(parse).collect()
}

impl Stage for BucketAuto {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        Box::new(RunningBucketAuto::new(*self))
    }

    fn reads(&self) -> Reads {
        Reads::grouped(self.group_by.dependencies(), &self.fields)
    }
}

fn number_of_buckets(value: RawValue<'_>) -> Result<i32> {
    let Some(number) = Number::from_value(value) else {
        let kind = value.type_name();
        let text = format!(
            "The $bucketAuto 'buckets' field must be a numeric value, but found type: {kind}."
        );
        return Err(fault(40241, text));
    };
    let Some(count) = number.to_i64_exact().and_then(|count| i32::try_from(count).ok()) else {
        let text = format!(
            "The $bucketAuto 'buckets' field must be representable as a 32-bit integer, but found {}.",
            ShellValue(value)
        );
        return Err(fault(40242, text));
    };
    if count <= 0 {
        let text =
            format!("The $bucketAuto 'buckets' field must be greater than 0, but found: {count}.");
        return Err(fault(40243, text));
    }
    Ok(count)
}

struct RunningBucketAuto {
    stage: BucketAuto,
    sorter: Option<Sorter>,
    documents: u64,
    making: Option<BucketState>,
}

struct Bucket {
    min: ValueBuf,
    max: ValueBuf,
    states: Vec<AccumState>,
}

/// The state while buckets are returned.
struct BucketState {
    sorted: Sorted,
    /// The first document of the next bucket.
    next: Option<(ValueBuf, BufferedDocument)>,
    /// The upper boundary of the last bucket.
    before: Option<ValueBuf>,
    made: i32,
}

impl RunningBucketAuto {
    fn new(stage: BucketAuto) -> RunningBucketAuto {
        RunningBucketAuto { stage, sorter: None, documents: 0, making: None }
    }

    /// Builds the next bucket.
    fn bucket(
        &self,
        making: &mut BucketState,
        context: &StageContext<'_>,
    ) -> Result<Option<DocBuf>> {
        let share = (self.documents as f64 / f64::from(self.stage.buckets)).round().max(1.0) as u64;
        let BucketState { sorted, next, before, made } = making;
        let Some((value, document)) = next.take() else { return Ok(None) };
        context.session.op.check()?;
        *made += 1;
        let is_last = *made == self.stage.buckets;
        let min = match (self.stage.granularity, &*before) {
            (None, _) => value.clone(),
            (Some(_), Some(before)) => before.clone(),
            (Some(series), None) => series.below(number(value.as_raw())).to_value().to_owned(),
        };
        let mut bucket = Bucket { min, max: value, states: self.stage.states()? };
        self.stage.add(&mut bucket, &document)?;
        let mut taken = 1u64;
        *next = self.next(sorted)?;
        while let Some((value, document)) = next.take_if(|_| is_last || taken < share) {
            bucket.max = value;
            self.stage.add(&mut bucket, &document)?;
            taken += 1;
            if taken.is_multiple_of(CHUNK_DOCUMENTS) {
                context.session.op.check()?;
            }
            *next = self.next(sorted)?;
        }
        self.close(&mut bucket, next, sorted)?;
        *before = Some(bucket.max.clone());
        self.stage.result(&bucket).map(Some)
    }

    /// Adds the documents that belong to the same bucket, and sets its upper boundary.
    fn close(
        &self,
        bucket: &mut Bucket,
        next: &mut Option<(ValueBuf, BufferedDocument)>,
        sorted: &mut Sorted,
    ) -> Result<()> {
        let collation = self.stage.collation.as_deref();
        let compare =
            |a: &ValueBuf, b: &ValueBuf| compare_values_in(a.as_raw(), b.as_raw(), collation);
        let Some(series) = self.stage.granularity else {
            while let Some((_, document)) =
                next.take_if(|(value, _)| compare(&bucket.max, value).is_eq())
            {
                self.stage.add(bucket, &document)?;
                *next = self.next(sorted)?;
            }
            if let Some((value, _)) = next {
                bucket.max = value.clone();
            }
            return Ok(());
        };
        let rounded = series.above(number(bucket.max.as_raw()));
        let boundary = rounded.to_value().to_owned();
        let last = bucket.max.clone();
        let belongs =
            |value: &ValueBuf| compare(&boundary, value).is_gt() || compare(&last, value).is_eq();
        while let Some((_, document)) = next.take_if(|(value, _)| belongs(value)) {
            self.stage.add(bucket, &document)?;
            *next = self.next(sorted)?;
        }
        bucket.max = match next {
            // The series has no number above zero, so the first value of the next bucket determines
            // the boundary.
            Some((value, _)) if rounded.to_f64() == 0.0 => {
                series.below(number(value.as_raw())).to_value().to_owned()
            }
            _ => boundary,
        };
        Ok(())
    }

    fn next(&self, sorted: &mut Sorted) -> Result<Option<(ValueBuf, BufferedDocument)>> {
        let Some((document, metadata)) = sorted.next()? else { return Ok(None) };
        let value = self.stage.value(metadata.frame(document))?;
        Ok(Some((value, (document.to_owned(), metadata))))
    }
}

/// A document with its metadata.
type BufferedDocument = (DocBuf, Metadata);

fn number(value: RawValue<'_>) -> Number {
    Number::from_value(value).unwrap_or(Number::Int32(0))
}

impl BucketAuto {
    /// The value that a document is grouped by; null if it is missing.
    fn value(&self, frame: Frame<'_>) -> Result<ValueBuf> {
        let value = self.group_by.evaluate(frame)?;
        let value = value.as_raw().unwrap_or(RawValue::Null);
        if self.granularity.is_some() {
            let Some(number) = Number::from_value(value) else {
                let text = format!(
                    "$bucketAuto can specify a 'granularity' with numeric boundaries only, but found a value with type: {}",
                    value.type_name()
                );
                return Err(fault(40258, text));
            };
            if number.is_nan() {
                let text = "$bucketAuto can specify a 'granularity' with numeric boundaries only, but found a NaN";
                return Err(fault(40259, text));
            }
            if number.to_f64() < 0.0 {
                let text = "$bucketAuto can specify a 'granularity' with non-negative numbers only, but found a negative \
                            number";
                return Err(fault(40260, text));
            }
        }
        Ok(value.to_owned())
    }

    fn states(&self) -> Result<Vec<AccumState>> {
        self.fields.iter().map(|(_, accumulator)| accumulator.start(None)).collect()
    }

    fn add(&self, bucket: &mut Bucket, (document, metadata): &BufferedDocument) -> Result<()> {
        let frame = metadata.frame(document.as_doc());
        for ((_, accumulator), state) in self.fields.iter().zip(&mut bucket.states) {
            accumulator.add(state, frame)?;
        }
        Ok(())
    }

    fn result(&self, bucket: &Bucket) -> Result<DocBuf> {
        let mut out = DocBuilder::new();
        out.start_document("_id").append("min", &bucket.min).append("max", &bucket.max).end();
        for ((name, accumulator), state) in self.fields.iter().zip(&bucket.states) {
            out.append(name, &accumulator.finish(state)?);
            check_size(out.len())?;
        }
        Ok(out.finish())
    }
}

impl Running for RunningBucketAuto {
    fn push(
        &mut self,
        context: &StageContext<'_>,
        document: RawDoc<'_>,
        _: &mut Next<'_>,
    ) -> Result<Flow> {
        let metadata = context.metadata.get();
        let value = self.stage.value(metadata.frame(document))?;
        let mut key = Vec::new();
        let collation = self.stage.collation.as_deref();
        let bits = &mut TypeBits::default();
        keys::append_value_in(&mut key, bits, value.as_raw(), SortOrder::Ascending, collation);
        self.documents += 1;
        context.sort(&mut self.sorter, (None, Operator::BucketAuto), &key, document)?;
        Ok(Flow::More)
    }

    fn finish(&mut self, context: &StageContext<'_>, next: &mut Next<'_>) -> Result<Flow> {
        if let Some(sorter) = self.sorter.take() {
            let mut sorted = sorter.finish(context.session.op)?;
            let next = self.next(&mut sorted)?;
            self.making = Some(BucketState { sorted, next, before: None, made: 0 });
        }
        let Some(mut making) = self.making.take() else { return Ok(Flow::More) };
        let mut flow = Flow::More;
        while flow == Flow::More
            && let Some(result) = self.bucket(&mut making, context)?
        {
            flow = next(result.as_doc())?;
        }
        let over = making.next.is_none();
        self.making = Some(making);
        Ok(if over { Flow::More } else { Flow::Pause })
    }

    fn release(&mut self, op: &OpCtx) -> Result<()> {
        self.making.as_mut().map_or(Ok(()), |making| making.sorted.spill(op))
    }

    fn holds_back(&self) -> bool {
        true
    }
}
