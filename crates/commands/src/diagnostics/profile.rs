//! `profile`: the profiling settings of a database, and the threshold of slow operations.

use mayfly_auth::{Action, Target};
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_mql::{Matcher, ParseContext};
use mayfly_service::profiler::Profiled;
use mayfly_value::arguments::Argument;
use mayfly_value::{DocBuilder, Number, RawValue};

use super::scale::small;
use crate::context::{Command, CommandContext};
use crate::request::row::RowFlags;
use crate::request::{Fields, Needs, Request};
use crate::rules::rights::demands;

pub(crate) const ROW: Command =
    Command::new("profile", "Reads or changes the profiling settings of a database", run)
        .arguments(ARGUMENTS)
        .needs(Needs::Demands(demands::profile))
        .flags(RowFlags::NOT_PROFILED);

pub(crate) const GLOBAL_FILTER: Command = Command::new(
    "setProfilingFilterGlobally",
    "Sets the profiling filter of all databases",
    run_global_filter,
)
.arguments(&[Argument::any("filter").required()])
.needs(Needs::Demands(|demands, _| demands.need(Target::AllNormal, Action::EnableProfiler)))
.since("7.0")
.flags(RowFlags::ADMIN_ONLY);

const NOTE: &str = "When a filter expression is set, slowms and sampleRate are not used for profiling and slow-query \
                    log lines.";

/// A change of the filter.
enum FilterChange {
    Set(mayfly_value::DocBuf, Matcher),
    Unset,
}
const ARGUMENTS: &[Argument] = &[
    Argument::whole("slowms"),
    Argument::number("sampleRate").since("3.6"),
    Argument::any("filter").since("4.4.2"),
];

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let level = fields.long("profile")?.ok_or_else(|| fields.missing("profile"))?;
    let slow_ms = fields.long("slowms")?;
    let rate = sample_rate(&fields)?;
    let filter = filter(&fields)?;
    let profiler = &ctx.service.profiler;
    let before = profiler.database(request.db);
    doc.append("was", before.level).append("slowms", small(profiler.slow_ms()));
    doc.append("sampleRate", profiler.sample_rate());
    if let Some((sent, _)) = &before.filter {
        doc.append("filter", &mayfly_query::normalized_filter(sent.as_doc()));
    }
    if before.filter.is_some() || fields.get("filter").is_some() {
        doc.append("note", NOTE);
    }
    let mut after = before.clone();
    // Other levels only query the settings.
    if let Some(level) = i32::try_from(level).ok().filter(|level| (0..=2).contains(level)) {
        after.level = level;
    }
    if after.level > 0 && before.level == 0 {
        profiler.create(&ctx.service.store, request.db)?;
    }
    match filter {
        Some(FilterChange::Set(sent, matcher)) => after.filter = Some((sent, matcher)),
        Some(FilterChange::Unset) => after.filter = None,
        None => {}
    }
    change(ctx, request.db, &before, after);
    if let Some(slow_ms) = slow_ms {
        ctx.service.set_slow_ms(slow_ms);
    }
    if let Some(rate) = rate {
        profiler.set_sample_rate(rate);
    }
    Ok(())
}

/// The reference allows it with an internal parameter, `internalQueryGlobalProfilingFilter`, which
/// is off by default.
fn run_global_filter(
    _: &CommandContext<'_>,
    request: &Request<'_>,
    _: &mut DocBuilder,
) -> Result<()> {
    request.arguments()?;
    let text = "setProfilingFilterGlobally command requires query knob to be enabled";
    Err(Error::new(ErrorCode(7_283_301), text))
}

fn change(ctx: &CommandContext<'_>, db: &str, before: &Profiled, after: Profiled) {
    if before.level != after.level {
        tracing::info!(db, from = before.level, to = after.level, "profiler settings changed");
    }
    ctx.service.profiler.set_database(db, after);
}

fn sample_rate(fields: &Fields<'_>) -> Result<Option<f64>> {
    let rate = fields.get("sampleRate").and_then(Number::from_value).map(Number::to_f64);
    let Some(rate) = rate else { return Ok(None) };
    if !(0.0..=1.0).contains(&rate) {
        return Err(Error::bad_value("'sampleRate' must be between 0.0 and 1.0 inclusive"));
    }
    Ok(Some(rate))
}

fn filter(fields: &Fields<'_>) -> Result<Option<FilterChange>> {
    // Null is a value of the wrong type.
    match fields.doc().get("filter") {
        None => Ok(None),
        Some(RawValue::String("unset")) => Ok(Some(FilterChange::Unset)),
        Some(RawValue::Document(filter)) => {
            let matcher = Matcher::parse(filter, &ParseContext::default())?;
            Ok(Some(FilterChange::Set(filter.to_owned(), matcher)))
        }
        Some(_) => Err(Error::bad_value("Expected an object, or the string 'unset'.")),
    }
}
