//! A stage of an explained plan with its statistics.

use mayfly_value::{DocBuf, DocBuilder, RawValue};

/// A stage of an explained plan.
pub(super) struct Node {
    pub(super) stage: &'static str,
    /// The residual filter.
    pub(super) filter: Option<DocBuf>,
    /// Fields that describe the stage.
    pub(super) fields: DocBuf,
    /// Statistics that only this kind of stage has.
    pub(super) counted: DocBuf,
    pub(super) returned: u64,
    /// Execution time with the inputs.
    pub(super) micros: u64,
    /// Steps without a result, apart from the end.
    pub(super) idle: u64,
    /// Whether the stage is exhausted.
    pub(super) at_end: bool,
    /// Whether this is an express stage, which has no common statistics.
    pub(super) express: bool,
    /// The numbers of documents that an express stage would update and delete.
    pub(super) changed: Option<(u64, u64)>,
    pub(super) input: Option<Box<Node>>,
    /// The inputs, if there are several.
    pub(super) inputs: Vec<Node>,
}

impl Node {
    pub(super) fn new(stage: &'static str) -> Node {
        Node {
            stage,
            filter: None,
            fields: DocBuf::empty(),
            counted: DocBuf::empty(),
            returned: 0,
            micros: 0,
            idle: 0,
            at_end: true,
            express: false,
            changed: None,
            input: None,
            inputs: Vec::new(),
        }
    }

    /// Sets the fields that describe the stage.
    pub(super) fn with(mut self, write: impl FnOnce(&mut DocBuilder)) -> Node {
        let mut fields = DocBuilder::new();
        write(&mut fields);
        self.fields = fields.finish();
        self
    }

    /// Sets the residual filter, unless it is empty.
    pub(super) fn filtered(mut self, filter: DocBuf) -> Node {
        self.filter = (!filter.as_doc().is_empty()).then_some(filter);
        self
    }

    /// Sets the input.
    pub(super) fn over(mut self, input: Node) -> Node {
        self.micros = self.micros.max(input.micros);
        self.input = Some(Box::new(input));
        self
    }

    /// Sets several inputs.
    pub(super) fn inputs(mut self, inputs: Vec<Node>) -> Node {
        self.inputs = inputs;
        self
    }

    /// Sets the common statistics: results, and examined rows or keys.
    pub(super) fn did(mut self, returned: u64, examined: u64, at_end: bool) -> Node {
        self.returned = returned;
        self.idle = examined.saturating_sub(returned);
        self.at_end = at_end;
        self
    }

    /// Sets the statistics that only this kind of stage has.
    pub(super) fn counting(mut self, write: impl FnOnce(&mut DocBuilder)) -> Node {
        let mut counted = DocBuilder::new();
        write(&mut counted);
        self.counted = counted.finish();
        self
    }

    /// Appends the stage as a part of `winningPlan`.
    pub(super) fn write_plan(&self, out: &mut DocBuilder) {
        out.append("stage", self.stage);
        if let Some(filter) = &self.filter {
            out.append("filter", filter);
        }
        out.append_all(self.fields.as_doc());
        if let Some(input) = &self.input {
            out.start_document("inputStage");
            input.write_plan(out);
            out.end();
        }
        self.write_inputs(out, Node::write_plan);
    }

    /// Appends the stage as a part of `executionStages`.
    pub(super) fn write_stats(&self, out: &mut DocBuilder) {
        out.append("stage", self.stage);
        if let Some(filter) = &self.filter {
            out.append("filter", filter);
        }
        if self.express {
            out.append_all(self.fields.as_doc()).append_all(self.counted.as_doc());
            out.append("nReturned", number(self.returned));
            if let Some((updated, deleted)) = self.changed {
                out.append("nWouldModify", updated as i64).append("nWouldUpsert", 0i64);
                out.append("nWouldDelete", deleted as i64);
            }
            return;
        }
        out.append("nReturned", number(self.returned));
        out.append("executionTimeMillisEstimate", number(self.micros / 1000));
        let end = u64::from(self.at_end);
        out.append("works", number(self.returned + self.idle + end));
        out.append("advanced", number(self.returned)).append("needTime", number(self.idle));
        out.append("needYield", 0).append("saveState", 0).append("restoreState", 0);
        out.append("isEOF", i32::from(self.at_end));
        out.append_all(self.fields.as_doc()).append_all(self.counted.as_doc());
        if let Some(input) = &self.input {
            out.start_document("inputStage");
            input.write_stats(out);
            out.end();
        }
        self.write_inputs(out, Node::write_stats);
    }

    fn write_inputs(&self, out: &mut DocBuilder, write: fn(&Node, &mut DocBuilder)) {
        if self.inputs.is_empty() {
            return;
        }
        out.start_array("inputStages");
        for input in &self.inputs {
            out.push_document();
            write(input, out);
            out.end();
        }
        out.end();
    }
}

/// The number as an int32 if it fits, else as an int64.
pub(super) fn number(count: u64) -> RawValue<'static> {
    match i32::try_from(count) {
        Ok(small) => RawValue::Int32(small),
        Err(_) => RawValue::Int64(i64::try_from(count).unwrap_or(i64::MAX)),
    }
}
