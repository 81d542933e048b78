//! An interpreter with the functions of one script, each compiled at its first call.

use std::cell::RefCell;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{RawDoc, RawValue, ValueBuf};
use mayfly_work::current::current;
use rquickjs::function::Args;
use rquickjs::object::Property;
use rquickjs::{
    Array, Coerced, Context, Ctx, Function, Object, Persistent, Runtime, Symbol, Value,
};

use crate::allocator::WatchedAllocator;
use crate::{ScriptLimits, from_js, prelude, to_js, watch};

/// Native stack of a script, in bytes. The server's threads have two megabytes.
const MAX_STACK_BYTES: usize = 512 << 10;

/// The functions of the prelude that the server calls.
#[derive(Clone)]
pub(crate) struct Prelude<'js> {
    pub(crate) make: Function<'js>,
    fold: Function<'js>,
    collect: Function<'js>,
    emit: Function<'js>,
    compile: Function<'js>,
    pub(crate) classify: Function<'js>,
    pub(crate) well_formed: Function<'js>,
    /// The key of the list of integer fields of an object.
    pub(crate) integers: Symbol<'js>,
    /// The prototype of plain objects.
    pub(crate) plain: Object<'js>,
}

impl<'js> Prelude<'js> {
    /// The functions in the object that the prelude returns.
    pub(crate) fn of(object: &Object<'js>) -> rquickjs::Result<Prelude<'js>> {
        Ok(Prelude {
            make: object.get("make")?,
            fold: object.get("fold")?,
            collect: object.get("collect")?,
            emit: object.get("emit")?,
            compile: object.get("compile")?,
            classify: object.get("classify")?,
            well_formed: object.get("wellFormed")?,
            integers: object.get("integers")?,
            plain: object.get("plain")?,
        })
    }
}

/// The inputs of one call.
pub(crate) struct CallInputs<'d> {
    /// The value of `this` and `obj`.
    pub(crate) this: Option<RawDoc<'d>>,
    /// The array of arguments.
    pub(crate) arguments: RawDoc<'d>,
}

/// One of a script's functions.
#[derive(Clone, Copy)]
pub(crate) struct Source<'s> {
    /// The index in the script.
    pub(crate) place: usize,
    /// The source text.
    pub(crate) text: &'s str,
}

/// An interpreter. The order of the fields matters: values of the interpreter are dropped before
/// it.
pub(crate) struct Sandbox {
    /// The compiled functions, by their index in the script.
    functions: RefCell<Vec<Option<Persistent<Function<'static>>>>>,
    prelude: Persistent<Object<'static>>,
    context: Context,
    _runtime: Runtime,
    timeout_ms: i64,
}

impl Sandbox {
    /// Creates an interpreter without compiled functions, with these global variables.
    pub(crate) fn new(limits: ScriptLimits, globals: [RawDoc<'_>; 2]) -> Result<Sandbox> {
        let allocator = WatchedAllocator::new(limits.heap_bytes);
        let runtime = Runtime::new_with_alloc(allocator).map_err(|_| out_of_memory())?;
        runtime.set_max_stack_size(MAX_STACK_BYTES);
        runtime.set_interrupt_handler(Some(Box::new(watch::must_end)));
        let context = Context::full(&runtime).map_err(|_| out_of_memory())?;
        let prelude = watched(limits.timeout_ms, || {
            context.with(|ctx| {
                let prelude = prelude::run(&ctx).map_err(|error| thrown(&ctx, &error))?;
                Ok(Persistent::save(&ctx, prelude))
            })
        })?;
        let (functions, timeout_ms) = (RefCell::default(), limits.timeout_ms);
        let sandbox = Sandbox { functions, prelude, context, _runtime: runtime, timeout_ms };
        for globals in globals {
            sandbox.declare(globals)?;
        }
        Ok(sandbox)
    }

    /// Creates global variables; the value of one that contains code is a function.
    fn declare(&self, globals: RawDoc<'_>) -> Result<()> {
        if globals.is_empty() {
            return Ok(());
        }
        self.run_with_prelude(|ctx, prelude| {
            let declared = globals.iter().try_for_each(|global| {
                let value = to_js::value(ctx, prelude, global.value())?;
                let property = Property::from(value).writable().enumerable().configurable();
                ctx.globals().prop(global.name(), property)
            });
            declared.map_err(|error| thrown(ctx, &error))
        })
    }

    /// Compiles a function.
    pub(crate) fn compile(&self, from: Source<'_>) -> Result<()> {
        self.run(from, |_, _, _| Ok(()))
    }

    /// Calls a function and converts its result.
    pub(crate) fn call(&self, from: Source<'_>, call: &CallInputs<'_>) -> Result<ValueBuf> {
        self.run(from, |ctx, prelude, function| {
            let value = called(ctx, prelude, function, call);
            from_js::value_of(prelude, value.map_err(|error| thrown(ctx, &error))?)
        })
    }

    /// Calls a function; returns whether its result is truthy.
    pub(crate) fn holds(&self, from: Source<'_>, call: &CallInputs<'_>) -> Result<bool> {
        self.run(from, |ctx, prelude, function| {
            let flag = called(ctx, prelude, function, call)
                .and_then(|value| value.get::<Coerced<bool>>())
                .map_err(|error| thrown(ctx, &error))?;
            Ok(flag.0)
        })
    }

    /// Calls a function on a state and the items of each of these arrays in turn.
    pub(crate) fn fold(
        &self,
        from: Source<'_>,
        state: RawValue<'_>,
        calls: RawDoc<'_>,
    ) -> Result<ValueBuf> {
        self.run(from, |ctx, prelude, function| {
            let failed = |error| thrown(ctx, &error);
            let state = to_js::value(ctx, prelude, state).map_err(failed)?;
            let calls = to_js::value(ctx, prelude, RawValue::Array(calls)).map_err(failed)?;
            let arguments = (function.clone(), state, calls);
            from_js::value_of(prelude, prelude.fold.call(arguments).map_err(failed)?)
        })
    }

    /// Calls a function with a document as `this`, and visits the pairs that it passes to `emit`.
    pub(crate) fn emitted(
        &self,
        from: Source<'_>,
        document: RawDoc<'_>,
        visit: &mut dyn FnMut(ValueBuf, ValueBuf) -> Result<()>,
    ) -> Result<()> {
        self.run(from, |ctx, prelude, function| {
            let failed = |error| thrown(ctx, &error);
            ctx.globals().set("emit", prelude.emit.clone()).map_err(failed)?;
            let document = to_js::document(ctx, prelude, document).map_err(failed)?;
            let pairs: Array<'_> =
                prelude.collect.call((function.clone(), document)).map_err(failed)?;
            let item = |at| from_js::value_of(prelude, pairs.get(at).map_err(failed)?);
            (0..pairs.len()).step_by(2).try_for_each(|at| visit(item(at)?, item(at + 1)?))
        })
    }

    fn run<T>(
        &self,
        from: Source<'_>,
        work: impl for<'js> FnOnce(&Ctx<'js>, &Prelude<'js>, &Function<'js>) -> Result<T>,
    ) -> Result<T> {
        self.run_with_prelude(|ctx, prelude| {
            let function = self.function(ctx, prelude, from);
            work(ctx, prelude, &function.map_err(|error| thrown(ctx, &error))?)
        })
    }

    fn run_with_prelude<T>(
        &self,
        work: impl for<'js> FnOnce(&Ctx<'js>, &Prelude<'js>) -> Result<T>,
    ) -> Result<T> {
        watched(self.timeout_ms, || {
            self.context.with(|ctx| {
                let prelude = self.prelude(&ctx).map_err(|error| thrown(&ctx, &error))?;
                work(&ctx, &prelude)
            })
        })
    }

    fn function<'js>(
        &self,
        ctx: &Ctx<'js>,
        prelude: &Prelude<'js>,
        from: Source<'_>,
    ) -> rquickjs::Result<Function<'js>> {
        let compiled = self.functions.borrow().get(from.place).cloned().flatten();
        if let Some(function) = compiled {
            return function.restore(ctx);
        }
        let function: Function<'js> = prelude.compile.call((from.text,))?;
        let mut functions = self.functions.borrow_mut();
        if functions.len() <= from.place {
            functions.resize(from.place + 1, None);
        }
        functions[from.place] = Some(Persistent::save(ctx, function.clone()));
        Ok(function)
    }

    fn prelude<'js>(&self, ctx: &Ctx<'js>) -> rquickjs::Result<Prelude<'js>> {
        Prelude::of(&self.prelude.clone().restore(ctx)?)
    }
}

/// Runs code with a time limit and the thread's operation. The reason for an interruption takes
/// precedence over the script's own error.
fn watched<T>(timeout_ms: i64, run: impl FnOnce() -> Result<T>) -> Result<T> {
    let op = current().op;
    watch::begin(op.clone(), timeout_ms);
    let result = run();
    if let Some(ended) = watch::end() {
        return Err(ended);
    }
    // The interpreter may fail before it checks for interruption again.
    result.map_err(|thrown| op.and_then(|op| op.check().err()).unwrap_or(thrown))
}

fn called<'js>(
    ctx: &Ctx<'js>,
    prelude: &Prelude<'js>,
    function: &Function<'js>,
    call: &CallInputs<'_>,
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

/// Converts an error of the interpreter.
pub(crate) fn thrown(ctx: &Ctx<'_>, error: &rquickjs::Error) -> Error {
    match error {
        rquickjs::Error::Exception => failure(&description(&ctx.catch())),
        rquickjs::Error::Allocation => out_of_memory(),
        other => failure(&other.to_string()),
    }
}

/// The text of an exception, such as `ReferenceError: x is not defined`; for a value that is not an
/// error, the reference's text.
pub(crate) fn description(thrown: &Value<'_>) -> String {
    let text = |value: &Value<'_>| value.get::<Coerced<String>>().map(|text| text.0).ok();
    let Some(object) = thrown.as_object().filter(|_| thrown.is_error()) else {
        return match text(thrown) {
            // The interpreter also throws null when there is no memory for an error object.
            Some(_) if thrown.is_null() && watch::has_run_out_of_memory() => {
                "Out of memory".to_owned()
            }
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

pub(crate) fn out_of_memory() -> Error {
    failure("Out of memory")
}
