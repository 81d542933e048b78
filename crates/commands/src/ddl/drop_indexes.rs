//! `dropIndexes`.

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_storage::IndexSelector;
use mayfly_value::arguments::{Argument, Form};
use mayfly_value::{DocBuilder, RawValue};

use crate::context::{COLLECTION_UUID, Command, CommandContext};
use crate::request::row::{LogForm, RowFlags, Writes};
use crate::request::{Needs, Request};

pub(crate) const ROW: Command = Command::new("dropIndexes", "Drops indexes", run)
    .arguments(&[
        Argument::one_of("index", &[Form::String, Form::Document, Form::Array])
            .null_is_value()
            .required(),
        COLLECTION_UUID,
    ])
    .needs(Needs::Collection(&[Action::DropIndex]))
    .aliases(&["deleteIndexes"])
    .flags(RowFlags::STABLE)
    .writes(Writes::Settings)
    .replayed(LogForm::WithDefinition, &[ErrorCode::NamespaceNotFound, ErrorCode::IndexNotFound]);

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let ns = request.namespace()?;
    ctx.check_uuid(&ns, &fields)?;
    let store = &ctx.service.store;
    let before = match fields.required("index")? {
        RawValue::String("*") => {
            let before = store.drop_indexes(&ns, None)?;
            reply.append("nIndexesWas", before);
            reply.append("msg", "non-_id indexes dropped for collection");
            return Ok(());
        }
        RawValue::String(name) => store.drop_indexes(&ns, Some(&[IndexSelector::Name(name)]))?,
        RawValue::Document(key) => store.drop_indexes(&ns, Some(&[IndexSelector::Key(key)]))?,
        RawValue::Array(names) => {
            let mut selectors = Vec::new();
            for element in names {
                match element.value() {
                    RawValue::String(name) => {
                        let mut before = names.iter().take(selectors.len());
                        if before.any(|other| other.value() == element.value()) {
                            let text = format!("index not found with name [{name}]");
                            return Err(Error::new(ErrorCode::IndexNotFound, text));
                        }
                        selectors.push(IndexSelector::Name(name));
                    }
                    other => return Err(fields.wrong("index", other, "[string]")),
                }
            }
            store.drop_indexes(&ns, Some(&selectors))?
        }
        other => return Err(fields.wrong("index", other, "[string, object]")),
    };
    reply.append("nIndexesWas", before);
    Ok(())
}
