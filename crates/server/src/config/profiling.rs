//! The keys of `operationProfiling`: what the profiler records until a command says otherwise.

use anyhow::anyhow;
use mayfly_mql::{Matcher, ParseContext};
use mayfly_service::profiler::Profiled;
use mayfly_value::DocBuf;

use super::{Layers, audit};
use crate::failure::{Failure, FailureKind};

/// What the configuration says about the profiler.
#[derive(Clone, Debug)]
pub struct Profiling {
    /// Operations that take longer are slow, in milliseconds.
    pub slow_ms: i64,
    /// Share of the slow operations that are recorded.
    pub sample_rate: f64,
    /// 0 nothing, 1 slow operations, 2 everything.
    pub level: i32,
    /// Which operations are recorded instead of the slow ones.
    pub filter: Option<DocBuf>,
}

/// What the layers say about the profiler.
///
/// # Errors
/// A filter that cannot be read.
pub(super) fn settings(layers: &Layers) -> anyhow::Result<Profiling> {
    let filter = match layers.text("operationProfiling.filter")?.as_str() {
        "" => None,
        text => Some(audit::read_filter(text).map_err(|why| {
            anyhow!("operationProfiling.filter: {why}").context(Failure::new(
                FailureKind::Options,
                "cannot use the configuration",
                "correct the query (mayflydb --print-config shows where it comes from)",
            ))
        })?),
    };
    Ok(Profiling {
        slow_ms: layers.integer("operationProfiling.slowOpThresholdMs")?,
        sample_rate: layers.number("operationProfiling.slowOpSampleRate")?,
        level: match layers.text("operationProfiling.mode")?.as_str() {
            "slowOp" => 1,
            "all" => 2,
            _ => 0,
        },
        filter,
    })
}

impl Profiling {
    /// What is recorded of a database that says nothing itself.
    ///
    /// # Errors
    /// None: the filter was read before.
    pub(crate) fn profiled(&self) -> mayfly_base::Result<Profiled> {
        let compile = |filter: &DocBuf| -> mayfly_base::Result<(DocBuf, Matcher)> {
            Ok((filter.clone(), Matcher::parse(filter.as_doc(), &ParseContext::default())?))
        };
        let filter = self.filter.as_ref().map(compile).transpose()?;
        Ok(Profiled { level: self.level, filter })
    }
}
