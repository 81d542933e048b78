//! One interpreter with one compiled function.

use mayfly_base::current::{ScriptLimits, current};
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{RawDoc, ValueBuf};
use rquickjs::function::Args;
use rquickjs::object::Property;
use rquickjs::{Coerced, Context, Ctx, Function, Object, Persistent, Runtime, Symbol, Value};

use super::{from_js, to_js, watch};

/// Native stack of a script, in bytes: the server's threads have two megabytes.
const MAX_STACK_BYTES: usize = 512 << 10;

const PRELUDE: &str = include_str!("prelude.js");

/// The functions of the prelude that the server calls.
#[derive(Clone)]
pub(super) struct Prelude<'js> {
    pub(super) make: Function<'js>,
    pub(super) classify: Function<'js>,
    pub(super) well_formed: Function<'js>,
    /// The key of the names of integer fields.
    pub(super) integers: Symbol<'js>,
    /// The prototype of plain objects.
    pub(super) plain: Object<'js>,
}

/// One call.
pub(super) struct Called<'d> {
    /// Bound to `this` and `obj`.
    pub(super) this: Option<RawDoc<'d>>,
    /// An array.
    pub(super) arguments: RawDoc<'d>,
}

/// An interpreter with a function. The fields go in this order: what the interpreter holds before the interpreter.
pub(super) struct Sandbox {
    function: Persistent<Function<'static>>,
    prelude: Persistent<Object<'static>>,
    context: Context,
    _runtime: Runtime,
}

impl Sandbox {
    /// Makes an interpreter and compiles the function.
    pub(super) fn new(source: &str, limits: &ScriptLimits) -> Result<Sandbox> {
        let runtime = Runtime::new().map_err(|_| out_of_memory())?;
        runtime.set_memory_limit(limits.heap_bytes);
        runtime.set_max_stack_size(MAX_STACK_BYTES);
        runtime.set_interrupt_handler(Some(Box::new(watch::must_end)));
        let context = Context::full(&runtime).map_err(|_| out_of_memory())?;
        let (function, prelude) = watched(|| {
            context.with(|ctx| {
                let compiled = compiled(&ctx, source).map_err(|error| thrown(&ctx, &error))?;
                let (function, prelude) = compiled;
                Ok((Persistent::save(&ctx, function), Persistent::save(&ctx, prelude)))
            })
        })?;
        Ok(Sandbox { function, prelude, context, _runtime: runtime })
    }

    /// Calls the function and takes its result over.
    pub(super) fn call(&self, call: &Called<'_>) -> Result<ValueBuf> {
        self.run(call, from_js::value_of)
    }

    /// Calls the function and asks whether its result counts as true.
    pub(super) fn holds(&self, call: &Called<'_>) -> Result<bool> {
        self.run(call, |_, value| {
            let ctx = value.ctx().clone();
            value.get::<Coerced<bool>>().map(|flag| flag.0).map_err(|error| thrown(&ctx, &error))
        })
    }

    fn run<T>(
        &self,
        call: &Called<'_>,
        take: impl for<'js> FnOnce(&Prelude<'js>, Value<'js>) -> Result<T>,
    ) -> Result<T> {
        watched(|| {
            self.context.with(|ctx| {
                let failed = |error| thrown(&ctx, &error);
                let prelude = self.prelude(&ctx).map_err(failed)?;
                let function = self.function.clone().restore(&ctx).map_err(failed)?;
                let value = called(&ctx, &prelude, &function, call).map_err(failed)?;
                take(&prelude, value)
            })
        })
    }

    fn prelude<'js>(&self, ctx: &Ctx<'js>) -> rquickjs::Result<Prelude<'js>> {
        let object = self.prelude.clone().restore(ctx)?;
        Ok(Prelude {
            make: object.get("make")?,
            classify: object.get("classify")?,
            well_formed: object.get("wellFormed")?,
            integers: object.get("integers")?,
            plain: object.get("plain")?,
        })
    }
}

/// Does something under the limits of the thread's operation. Why it had to end comes before what the script made of it.
fn watched<T>(run: impl FnOnce() -> Result<T>) -> Result<T> {
    let now = current();
    watch::begin(now.op, now.scripts.timeout_ms);
    let result = run();
    match watch::end() {
        Some(ended) => Err(ended),
        None => result,
    }
}

fn compiled<'js>(ctx: &Ctx<'js>, source: &str) -> rquickjs::Result<(Function<'js>, Object<'js>)> {
    let prelude: Object<'js> = ctx.eval(PRELUDE)?;
    let compile: Function<'js> = prelude.get("compile")?;
    Ok((compile.call((source,))?, prelude))
}

fn called<'js>(
    ctx: &Ctx<'js>,
    prelude: &Prelude<'js>,
    function: &Function<'js>,
    call: &Called<'_>,
) -> rquickjs::Result<Value<'js>> {
    let mut args = Args::new(ctx.clone(), call.arguments.iter().count());
    if let Some(document) = call.this {
        let this = to_js::document(ctx, prelude, document)?;
        ctx.globals().prop("obj", Property::from(this.clone()).writable().configurable())?;
        args.this(this)?;
    }
    for argument in call.arguments {
        args.push_arg(to_js::value(ctx, prelude, argument.value())?)?;
    }
    function.call_arg(args)
}

/// What the interpreter ended with, as an error.
pub(super) fn thrown(ctx: &Ctx<'_>, error: &rquickjs::Error) -> Error {
    match error {
        rquickjs::Error::Exception => failure(&description(&ctx.catch())),
        rquickjs::Error::Allocation => out_of_memory(),
        other => failure(&other.to_string()),
    }
}

/// `ReferenceError: x is not defined`; for what is no error, how the reference calls it.
fn description(thrown: &Value<'_>) -> String {
    let text = |value: &Value<'_>| value.get::<Coerced<String>>().map(|text| text.0).ok();
    let Some(object) = thrown.as_object().filter(|_| thrown.is_error()) else {
        return match text(thrown) {
            // The interpreter throws it, too, when there is no memory left for an error.
            Some(_) if thrown.is_null() => "uncaught exception: null, or out of memory".to_owned(),
            Some(text) => format!("uncaught exception: {text}"),
            None => "uncaught exception".to_owned(),
        };
    };
    let part = |name: &str| object.get::<_, Value<'_>>(name).ok().as_ref().and_then(text);
    let message = part("message").unwrap_or_default();
    match part("name") {
        Some(name) if name == "InternalError" && message == "out of memory" => {
            "Out of memory".to_owned()
        }
        Some(name) if message.is_empty() => name,
        Some(name) => format!("{name}: {message}"),
        None => message,
    }
}

fn failure(text: &str) -> Error {
    Error::new(ErrorCode::JSInterpreterFailure, text)
}

fn out_of_memory() -> Error {
    failure("Out of memory")
}
