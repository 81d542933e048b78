//! The prelude. A process compiles it once, because reading its bytecode takes a small part of the time that compiling it takes.
#![allow(unsafe_code, reason = "nothing checks bytecode when it is read")]

use std::sync::OnceLock;

use rquickjs::module::{Module, WriteOptions};
use rquickjs::{Ctx, Function, Object, Result};

use crate::watch;

/// A module whose `default` makes what the server calls of what asks whether a script has to end.
const SOURCE: &str = include_str!("prelude.js");

/// Runs the prelude in a new interpreter.
///
/// # Errors
/// There is no memory for it.
pub(crate) fn run<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    static BYTECODE: OnceLock<Vec<u8>> = OnceLock::new();
    let bytecode = match BYTECODE.get() {
        Some(bytecode) => bytecode,
        None => {
            let module = Module::declare(ctx.clone(), "prelude", SOURCE)?;
            let options =
                WriteOptions { strip_source: true, strip_debug: true, ..WriteOptions::default() };
            let bytecode = module.write(options)?;
            BYTECODE.get_or_init(|| bytecode)
        }
    };
    // SAFETY: the same library has written the bytes in this process, and they stay as they are for as long as it runs.
    let module = unsafe { Module::load(ctx.clone(), bytecode) }?;
    let (module, _) = module.eval()?;
    let make: Function<'js> = module.get("default")?;
    make.call((Function::new(ctx.clone(), watch::must_end)?,))
}
