//! A shell for programs that use a server, such as the scripts of a first start: the globals `db`,
//! `rs`, `print` and others that the reference's shell has, over one function of the [`ShellHost`]
//! that runs a command.
//!
//! The program is trusted as its author is, unlike a [`Script`](crate::Script): it has no time
//! limit and may read files. Numbers without a fraction are 32-bit integers in commands, as far as
//! they fit. A missing member throws an error that names it.

mod natives;

use std::sync::Arc;

use mayfly_value::{DocBuf, RawDoc};
use parking_lot::Mutex;
use rquickjs::context::EvalOptions;
use rquickjs::module::Module;
use rquickjs::{Coerced, Context, Ctx, Function, Object, Promise, Runtime, Value};

use crate::allocator::WatchedAllocator;
use crate::prelude;
use crate::sandbox::{description, out_of_memory, thrown};

/// Largest heap of a program, in bytes.
const HEAP_BYTES: usize = 1 << 30;
/// Native stack of the thread that runs a program, and the part of it for the interpreter.
const THREAD_STACK_BYTES: usize = 16 << 20;
const MAX_STACK_BYTES: usize = 8 << 20;
/// The parts of the shell. Each is a module whose `default` takes the shell's own functions and
/// adds to them.
const PARTS: [(&str, &str); 6] = [
    ("base", include_str!("base.js")),
    ("cursor", include_str!("cursor.js")),
    ("bulk", include_str!("bulk.js")),
    ("collection", include_str!("collection.js")),
    ("database", include_str!("database.js")),
    ("globals", include_str!("globals.js")),
];

/// What a program uses of the process that runs it.
pub trait ShellHost: Send {
    /// Runs a command, which names its database in `$db`; returns the reply, also one with
    /// `ok: 0`.
    ///
    /// # Errors
    /// A text, if there is no reply.
    fn run(&mut self, command: RawDoc<'_>) -> Result<DocBuf, String>;

    /// Logs in, and runs later commands as this user of this database.
    ///
    /// # Errors
    /// Why the login failed.
    fn log_in(&mut self, database: &str, user: &str, password: &str) -> Result<(), String>;

    /// Writes a line of output.
    fn print(&mut self, line: &str);

    /// The value of a variable of the environment.
    fn variable(&self, name: &str) -> Option<String>;

    /// The text of a file.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn read(&mut self, path: &str) -> Result<String, String>;

    /// Whether a connection to this host and port is one to the server of the program.
    fn is_server(&self, host: &str, port: u16) -> bool;
}

/// A program of the shell.
#[derive(Clone, Debug)]
pub struct Program {
    /// The name of its file, for messages.
    pub name: String,
    /// The folder of its file.
    pub folder: String,
    /// Its source text, in UTF-8.
    pub source: String,
    /// The name of the database that `db` is at its start.
    pub database: String,
}

/// Why a program failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramFailure {
    /// The exception, such as `MongoServerError: E11000 duplicate key error ..`.
    pub exception: String,
    /// The line of the program, as `file.js:12`, if it is known.
    pub place: Option<String>,
}

type SharedHost = Arc<Mutex<dyn ShellHost>>;

impl Program {
    /// Runs the program to its end, or to a call of `quit()`.
    ///
    /// # Errors
    /// An exception that the program does not catch; `quit` with a status other than 0.
    pub fn run(self, host: impl ShellHost + 'static) -> Result<(), ProgramFailure> {
        let of = |exception: String| ProgramFailure { exception, place: None };
        let work = move || self.run_here(Arc::new(Mutex::new(host)));
        let thread =
            std::thread::Builder::new().name("shell".into()).stack_size(THREAD_STACK_BYTES);
        let thread = thread.spawn(work).map_err(|error| of(error.to_string()))?;
        thread.join().unwrap_or_else(|_| Err(of("the shell ended unexpectedly".into())))
    }

    fn run_here(&self, host: SharedHost) -> Result<(), ProgramFailure> {
        let internal = |error: mayfly_base::Error| ProgramFailure {
            exception: error.message().to_owned(),
            place: None,
        };
        let runtime = Runtime::new_with_alloc(WatchedAllocator::new(HEAP_BYTES))
            .map_err(|_| internal(out_of_memory()))?;
        runtime.set_max_stack_size(MAX_STACK_BYTES);
        let context = Context::full(&runtime).map_err(|_| internal(out_of_memory()))?;
        // Exceptions of asynchronous functions whose results nothing has asked for yet.
        let rejected: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = rejected.clone();
        runtime.set_host_promise_rejection_tracker(Some(Box::new(
            move |_, _, reason, is_handled| {
                let (mut noted, text) = (noted.lock(), description(&reason));
                match is_handled {
                    false => noted.push(text),
                    true => noted.retain(|other| *other != text),
                }
            },
        )));
        context.with(|ctx| {
            let shell = self.prepare(&ctx, &host);
            let shell = shell.map_err(|error| internal(thrown(&ctx, &error)))?;
            match evaluate(&ctx, &self.name, &self.source) {
                Ok(()) => {}
                Err(rquickjs::Error::Exception) => return self.ended(&shell, &ctx.catch()),
                Err(error) => return Err(internal(thrown(&ctx, &error))),
            }
            // What asynchronous functions do after their first `await`.
            while ctx.execute_pending_job() {}
            match rejected.lock().pop() {
                Some(exception) => Err(ProgramFailure { exception, place: None }),
                None => Ok(()),
            }
        })
    }

    /// Creates the globals of the shell.
    fn prepare<'js>(&self, ctx: &Ctx<'js>, host: &SharedHost) -> rquickjs::Result<Object<'js>> {
        let shell = Object::new(ctx.clone())?;
        // The prelude removes it from the globals of scripts.
        shell.set("Proxy", ctx.globals().get::<_, Value<'js>>("Proxy")?)?;
        let prelude = prelude::run(ctx)?;
        shell.set("prelude", prelude)?;
        natives::add(ctx, &shell, host)?;
        let file = format!("{}/{}", self.folder, self.name);
        for (name, value) in
            [("database", &self.database), ("folder", &self.folder), ("file", &file)]
        {
            shell.set(name, value.as_str())?;
        }
        for (name, source) in PARTS {
            let (module, _) = Module::declare(ctx.clone(), name, source)?.eval()?;
            let add: Function<'js> = module.get("default")?;
            add.call::<_, ()>((shell.clone(),))?;
        }
        Ok(shell)
    }

    /// The result of a program that threw this value.
    fn ended<'js>(
        &self,
        shell: &Object<'js>,
        exception: &Value<'js>,
    ) -> Result<(), ProgramFailure> {
        let status = shell.get::<_, Function<'js>>("statusOf");
        let status = status.and_then(|status| status.call::<_, Option<i32>>((exception.clone(),)));
        match status {
            Ok(Some(0)) => return Ok(()),
            Ok(Some(status)) => {
                let exception = format!("it called quit({status})");
                return Err(ProgramFailure { exception, place: None });
            }
            Ok(None) | Err(_) => {}
        }
        let place = exception.as_object().and_then(|object| self.place(object));
        Err(ProgramFailure { exception: description(exception), place })
    }

    /// The line of the program in the stack of an exception.
    fn place(&self, exception: &Object<'_>) -> Option<String> {
        let stack = exception.get::<_, Coerced<String>>("stack").ok()?.0;
        let begin = stack.find(&format!("{}:", self.name))?;
        let rest = &stack[begin + self.name.len() + 1..];
        let line: String = rest.chars().take_while(char::is_ascii_digit).collect();
        (!line.is_empty()).then(|| format!("{}:{line}", self.name))
    }
}

/// Evaluates a program, whose `var` and functions become global, and which may use `await`.
fn evaluate(ctx: &Ctx<'_>, name: &str, source: &str) -> rquickjs::Result<()> {
    let mut options = EvalOptions::default();
    options.strict = false;
    options.promise = true;
    options.filename = Some(name.to_owned());
    let promise: Promise<'_> = ctx.eval_with_options(source, options)?;
    promise.finish::<Value<'_>>().map(drop)
}
