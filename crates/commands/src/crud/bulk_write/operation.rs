//! The parsed elements of `ops`.

use crate::request::arguments::HINT;
use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_query::{ModifyOutcome, Repeatable};
use mayfly_value::RawDoc;
use mayfly_value::arguments::{Argument, Form};
use mayfly_value::shell::Shell;

use crate::context::CommandContext;
use crate::crud::delete::DeleteStatement;
use crate::crud::read::{Collating, hint};
use crate::crud::together::{PreparedWrite, WriteStatement};
use crate::crud::update::{Names, UpdateStatement};
use crate::crud::write::DocumentRules;
use crate::request::Fields;

/// A parsed element of `ops`.
pub(super) struct Operation<'a> {
    /// The index of its collection in `nsInfo`.
    pub(super) namespace: usize,
    pub(super) action: Action<'a>,
}

pub(super) enum Action<'a> {
    Insert(RawDoc<'a>),
    Change(Change<'a>),
}

/// An operation on existing documents.
pub(super) enum Change<'a> {
    Update(Box<UpdateStatement<'a>>),
    Delete(DeleteStatement<'a>),
}

impl<'a> Change<'a> {
    /// The name of its kind.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Change::Update(_) => "update",
            Change::Delete(_) => "delete",
        }
    }

    fn statement(&self) -> &(dyn WriteStatement + 'a) {
        match self {
            Change::Update(statement) => &**statement,
            Change::Delete(statement) => statement,
        }
    }
}

impl WriteStatement for Change<'_> {
    fn filter(&self) -> RawDoc<'_> {
        self.statement().filter()
    }

    fn is_multi(&self) -> bool {
        self.statement().is_multi()
    }

    fn prepare(
        &self,
        ctx: &CommandContext<'_>,
        ns: &Namespace,
        repeatable: Option<Repeatable>,
    ) -> Result<PreparedWrite> {
        self.statement().prepare(ctx, ns, repeatable)
    }

    fn run(&self, ctx: &CommandContext<'_>, ns: &Namespace, index: usize) -> Result<ModifyOutcome> {
        self.statement().run(ctx, ns, index)
    }
}

impl<'a> Operation<'a> {
    /// Parses an element; the name of its first field is its kind.
    ///
    /// # Errors
    /// 40415, 40414, 14 for an invalid operation, 2 for an index outside of `nsInfo`.
    pub(super) fn parse(
        op: RawDoc<'a>,
        namespaces: usize,
        variables: Option<RawDoc<'a>>,
        rules: DocumentRules,
    ) -> Result<Operation<'a>> {
        let kind = op.iter().next().map_or("", |element| element.name());
        let action = match kind {
            "insert" => insert(op)?,
            "update" => update(op, variables, rules)?,
            "delete" => delete(op, variables)?,
            other => return Err(Fields::new(op, "bulkWrite").unknown(other)),
        };
        let fields = Fields::new(op, "bulkWrite.ops");
        let at = fields.long(kind)?.ok_or_else(|| fields.missing(kind))?;
        if at < 0 {
            let text = format!("BSON field '{kind}' value must be >= 0, actual value '{at}'");
            return Err(Error::bad_value(text));
        }
        match usize::try_from(at) {
            Ok(namespace) if namespace < namespaces => Ok(Operation { namespace, action }),
            _ => {
                let text =
                    format!("BulkWrite ops entry {} has an invalid nsInfo index.", Shell(op));
                Err(Error::new(ErrorCode::BadValue, text))
            }
        }
    }

    /// Whether it may change more than one document.
    pub(super) fn is_multi(&self) -> bool {
        match &self.action {
            Action::Insert(_) => false,
            Action::Change(change) => change.is_multi(),
        }
    }

    /// Whether it changes documents of the collection with this index.
    pub(super) fn changes_in(&self, namespace: usize) -> bool {
        self.namespace == namespace && matches!(self.action, Action::Change(_))
    }

    /// Whether it inserts into the collection with this index.
    pub(super) fn inserts_into(&self, namespace: usize) -> bool {
        self.namespace == namespace && matches!(self.action, Action::Insert(_))
    }
}

/// The fields of an insert.
const INSERT: &[Argument] = &[Argument::document("document").required(), Argument::any("insert")];
/// The fields of an update.
pub(super) const UPDATE: &[Argument] = &[
    Argument::document("filter").required(),
    Argument::one_of("updateMods", &[Form::Document, Form::Array])
        .required()
        .null_is_value()
        .refused_with(9, "Update argument must be either an object or an array"),
    Argument::any("update"),
    Argument::bool("multi"),
    Argument::bool("upsert"),
    Argument::bool("upsertSupplied").null_is_value(),
    Argument::uuid("sampleId").since("7.0").unstable(),
    Argument::array("arrayFilters"),
    HINT,
    Argument::document("constants"),
    Argument::document("collation"),
    Argument::document("sort"),
];
/// The fields of a delete.
const DELETE: &[Argument] = &[
    Argument::document("filter").required(),
    Argument::any("delete"),
    Argument::bool("multi"),
    HINT,
    Argument::document("collation"),
];

fn insert(op: RawDoc<'_>) -> Result<Action<'_>> {
    let fields = Fields::read(op, "bulkWrite.ops", INSERT)?;
    let document = fields.document("document")?.ok_or_else(|| fields.missing("document"))?;
    Ok(Action::Insert(document))
}

fn update<'a>(
    op: RawDoc<'a>,
    variables: Option<RawDoc<'a>>,
    rules: DocumentRules,
) -> Result<Action<'a>> {
    let fields = Fields::read(op, "bulkWrite.ops", UPDATE)?;
    let names = Names { filter: "filter", update: "updateMods", constants: "constants" };
    let statement = UpdateStatement::parse(&fields, &names, variables)?;
    Ok(Action::Change(Change::Update(Box::new(UpdateStatement { rules, ..statement }))))
}

fn delete<'a>(op: RawDoc<'a>, variables: Option<RawDoc<'a>>) -> Result<Action<'a>> {
    let fields = Fields::read(op, "bulkWrite.ops", DELETE)?;
    let filter = fields.document("filter")?.ok_or_else(|| fields.missing("filter"))?;
    let multi = fields.bool("multi")?.unwrap_or(false);
    let (hint, collation) = (hint(&fields)?, Collating::parse(&fields)?);
    let statement = DeleteStatement { filter, multi, variables, hint, collation };
    Ok(Action::Change(Change::Delete(statement)))
}
