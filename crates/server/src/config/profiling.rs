//! The keys of `operationProfiling`: the profiling settings until a command changes them.

use anyhow::anyhow;
use mayfly_mql::{Matcher, ParseContext};
use mayfly_service::profiler::Profiled;
use mayfly_value::DocBuf;

use super::{Layers, audit};
use crate::failure::{Failure, FailureKind};

/// The configuration of the profiler.
#[derive(Clone, Debug)]
pub struct Profiling {
    /// The threshold of slow operations in milliseconds.
    pub slow_ms: i64,
    /// The share of slow operations that are recorded.
    pub sample_rate: f64,
    /// 0 for nothing, 1 for slow operations, 2 for all.
    pub level: i32,
    /// Selects the recorded operations, instead of the threshold.
    pub filter: Option<DocBuf>,
}

/// The settings of the profiler.
///
/// # Errors
/// An invalid filter.
pub(super) fn settings(layers: &Layers) -> anyhow::Result<Profiling> {
    let filter = match layers.text("operationProfiling.filter")?.as_str() {
        "" => None,
        text => Some(audit::read_filter(text).map_err(|why| {
            anyhow!("operationProfiling.filter: {why}").context(Failure::new(
                FailureKind::Options,
                "cannot use the configuration",
                "correct the query (mayflydb --print-config shows its origin)",
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
    /// The profiling settings of databases that no command has set.
    ///
    /// # Errors
    /// Not expected: the filter was checked before.
    pub(crate) fn profiled(&self) -> mayfly_base::Result<Profiled> {
        let compile = |filter: &DocBuf| -> mayfly_base::Result<(DocBuf, Matcher)> {
            Ok((filter.clone(), Matcher::parse(filter.as_doc(), &ParseContext::default())?))
        };
        let filter = self.filter.as_ref().map(compile).transpose()?;
        Ok(Profiled { level: self.level, filter })
    }
}
