//! The prelude. It is compiled once per process, because loading its bytecode is much faster than
//! compiling it.
#![allow(unsafe_code, reason = "nothing checks bytecode when it is read")]

use std::sync::OnceLock;

use md5::{Digest, Md5};
use rquickjs::module::{Module, WriteOptions};
use rquickjs::{Ctx, Function, Object, Result};

use crate::{to_js, watch};

/// A module whose `default` takes the functions of [`watch`] and the digest, and returns the
/// functions that the server calls.
const SOURCE: &str = include_str!("prelude.js");

/// Runs the prelude in a new interpreter.
///
/// # Errors
/// Out of memory.
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
    // SAFETY: the same library has written the bytes in this process, and they are immutable.
    let module = unsafe { Module::load(ctx.clone(), bytecode) }?;
    let (module, _) = module.eval()?;
    let make: Function<'js> = module.get("default")?;
    let must_end = Function::new(ctx.clone(), watch::must_end)?;
    let pause = Function::new(ctx.clone(), watch::pause)?;
    make.call((must_end, pause, Function::new(ctx.clone(), md5)?))
}

/// The MD5 digest of a text in hexadecimal digits.
fn md5(text: String) -> String {
    to_js::hex(&Md5::digest(text))
}
