//! The functions of the shell that are not written in its own language.

use mayfly_base::Error;
use mayfly_value::{DocBuf, DocBuilder};
use rquickjs::{Ctx, Exception, Function, Object, Result, Value};

use super::{SharedHost, evaluate};
use crate::sandbox::Prelude;
use crate::{from_js, to_js};

/// Adds the functions to the shell's object: `native`, `logIn`, `writeLine`, `variable`, `read`,
/// `load`, `isServer`.
pub(super) fn add<'js>(ctx: &Ctx<'js>, shell: &Object<'js>, host: &SharedHost) -> Result<()> {
    let add = |name: &str, function: Result<Function<'js>>| shell.set(name, function?);
    add("native", native(ctx, host.clone()))?;
    let it = host.clone();
    let log_in = move |database: String, user: String, password: String| {
        it.lock().log_in(&database, &user, &password).err()
    };
    add("logIn", Function::new(ctx.clone(), log_in))?;
    let it = host.clone();
    add("writeLine", Function::new(ctx.clone(), move |line: String| it.lock().print(&line)))?;
    let it = host.clone();
    add("variable", Function::new(ctx.clone(), move |name: String| it.lock().variable(&name)))?;
    let it = host.clone();
    let is_server = move |host: String, port: u16| it.lock().is_server(&host, port);
    add("isServer", Function::new(ctx.clone(), is_server))?;
    let it = host.clone();
    let read = move |ctx: Ctx<'js>, path: String| {
        let text = it.lock().read(&path);
        text.map_err(|why| Exception::throw_message(&ctx, &format!("{path}: {why}")))
    };
    add("read", Function::new(ctx.clone(), read))?;
    let it = host.clone();
    let load = move |ctx: Ctx<'js>, path: String| -> Result<bool> {
        let text = it.lock().read(&path);
        let text = text.map_err(|why| Exception::throw_message(&ctx, &format!("{path}: {why}")))?;
        evaluate(&ctx, &path, &text)?;
        Ok(true)
    };
    add("load", Function::new(ctx.clone(), load))
}

/// The function `native(prelude, database, command)`, which returns a reply, or a document with
/// `ok: 0` if the command cannot be written.
fn native<'js>(ctx: &Ctx<'js>, host: SharedHost) -> Result<Function<'js>> {
    let run = move |ctx: Ctx<'js>, prelude: Object<'js>, database: String, command: Object<'js>| {
        let prelude = Prelude::of(&prelude)?;
        let reply = match from_js::command(&prelude, &command, &database) {
            Ok(command) => {
                let reply = host.lock().run(command.as_doc());
                reply.map_err(|why| Exception::throw_message(&ctx, &why))?
            }
            Err(error) => refused(&error),
        };
        to_js::document(&ctx, &prelude, reply.as_doc()).map(Object::into_value)
    };
    let run: Box<
        dyn Fn(Ctx<'js>, Object<'js>, String, Object<'js>) -> Result<Value<'js>> + Send + 'js,
    > = Box::new(run);
    Function::new(ctx.clone(), run)
}

/// The reply to a command that cannot be written as BSON.
fn refused(error: &Error) -> DocBuf {
    let mut reply = DocBuilder::new();
    reply.append("ok", 0).append("errmsg", error.message());
    reply.append("code", error.code().0);
    reply.finish()
}
