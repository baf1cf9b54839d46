//! Everything the program says: lines for people, or JSON lines for programs.
//!
//! What is read from a store or a source may be hostile to a terminal; it is made visible here and
//! nowhere else ([`visible`]).
//!
//! Results go to standard output; errors, warnings and progress to standard error. In JSON mode
//! every line on either is one JSON object with a `message_type` (docs/CONFIG.md lists them), and
//! text for people is left out.
//!
//! A reader who goes away (`onefold ls | head`) is no failure. Writing becomes a no-op, so that
//! `forget` ends what it began; listings ask [`Output::still_wanted`] and stop.

use crate::exit;
use crate::visible;
use indicatif::ProgressBar;
use onefold_engine::Observer;
use onefold_engine::tree::path;
use onefold_types::{Error, ErrorKind, Result};
use serde_json::{Value, json};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// How the program talks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// JSON lines instead of text.
    pub json: bool,
    /// Results and errors only.
    pub quiet: bool,
    /// Tell what becomes of each item.
    pub verbose: bool,
    /// Colours on a terminal.
    pub colour: bool,
}

/// Where the program talks to.
pub struct Output {
    style: Style,
    stdout: Mutex<BufWriter<io::Stdout>>,
    stdout_is_terminal: bool,
    bar: Mutex<Option<ProgressBar>>,
    reader_gone: AtomicBool,
    stopped: AtomicBool,
    /// What has been done and stays, whether or not it can be told.
    done: Mutex<Option<String>>,
    /// What standard output refused.
    refusal: OnceLock<String>,
}

/// Warnings of a job that have lines of their own; all are counted.
const WARNINGS_SHOWN: u64 = 100;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Output {
    /// Talks in `style`.
    #[must_use]
    pub fn new(style: Style) -> Self {
        Self {
            style,
            stdout: Mutex::new(BufWriter::new(io::stdout())),
            stdout_is_terminal: io::stdout().is_terminal(),
            bar: Mutex::new(None),
            reader_gone: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            done: Mutex::default(),
            refusal: OnceLock::new(),
        }
    }

    /// How it talks.
    #[must_use]
    pub fn style(&self) -> Style {
        self.style
    }

    /// A result for people, on one line; left out in JSON mode. Line ends in front are kept.
    pub fn row(&self, text: &str) -> Result<()> {
        if self.style.json {
            return Ok(());
        }
        let line = text.trim_start_matches('\n');
        let empty = &text[..text.len() - line.len()];
        self.write_line([empty, &visible::line(line)].concat().as_bytes())
    }

    /// A result for people that has lines of its own; left out in JSON mode.
    pub fn block(&self, text: &str) -> Result<()> {
        text.split('\n').try_for_each(|line| self.row(line))
    }

    /// Something reassuring for people; left out in quiet and JSON mode.
    pub fn note(&self, text: &str) -> Result<()> {
        if self.style.quiet {
            return Ok(());
        }
        self.row(text)
    }

    /// A result for programs; left out unless in JSON mode.
    pub fn message(&self, message_type: &str, fields: Value) -> Result<()> {
        if !self.style.json {
            return Ok(());
        }
        let line = typed(message_type, fields).to_string();
        self.write_line(visible::json(&line).as_bytes())
    }

    /// Raw bytes as a line, in either mode.
    fn write_line(&self, line: &[u8]) -> Result<()> {
        let write = || {
            let mut stdout = lock(&self.stdout);
            stdout.write_all(line)?;
            stdout.write_all(b"\n")?;
            if self.stdout_is_terminal {
                stdout.flush()?;
            }
            Ok(())
        };
        if self.reader_gone.load(Ordering::Relaxed) {
            return Ok(());
        }
        let bar = lock(&self.bar).clone();
        let result = match bar {
            Some(bar) if self.stdout_is_terminal => bar.suspend(write),
            _ => write(),
        };
        self.settle(result)
    }

    /// Turns a broken pipe into silence; everything else stays an error.
    fn settle(&self, result: io::Result<()>) -> Result<()> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.reader_gone.store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                let error = Error::io("writing to standard output", error);
                self.refusal.get_or_init(|| error.to_string());
                Err(error)
            }
            Ok(()) => Ok(()),
        }
    }

    /// Notes what the command has changed. From then on a failure to tell of it is no failure of
    /// the command: whoever repeated it would do it twice.
    pub fn set_done(&self, what: impl Into<String>) {
        *lock(&self.done) = Some(what.into());
    }

    /// What was done before standard output refused to take more, if that is what this error says.
    #[must_use]
    pub fn untold(&self, error: &Error) -> Option<String> {
        let is_refusal = self.refusal.get().is_some_and(|refusal| *refusal == error.to_string());
        lock(&self.done).clone().filter(|_| is_refusal)
    }

    /// Fails once nobody reads standard output any more; see [`Output::was_stopped`].
    pub fn still_wanted(&self) -> Result<()> {
        if self.reader_gone.load(Ordering::Relaxed) {
            self.stopped.store(true, Ordering::Relaxed);
            return Err(Error::new(ErrorKind::Io, "nobody reads the output"));
        }
        Ok(())
    }

    /// Whether [`Output::still_wanted`] ended the command, which is no failure.
    #[must_use]
    pub fn was_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Hands on everything written so far.
    pub fn flush(&self) -> Result<()> {
        let result = lock(&self.stdout).flush();
        self.settle(result)
    }

    /// Something that the user should know but that stops nothing.
    pub fn warning(&self, text: &str) {
        if self.style.json {
            let message = typed("warning", json!({ "message": text }));
            self.to_stderr(&visible::json(&message.to_string()));
        } else {
            let text = visible::lines(text);
            self.to_stderr(&format!("{} {text}", self.label("warning:", "33")));
        }
    }

    /// The error that ended the command.
    pub fn error(&self, error: &Error) {
        // Results come before the error that ended them.
        let _ = self.flush();
        if self.style.json {
            let message = typed(
                "exit_error",
                json!({
                    "code": exit::code_of(error),
                    "kind": exit::kind_name(error.kind()),
                    "message": error.to_string(),
                }),
            );
            self.to_stderr(&visible::json(&message.to_string()));
        } else {
            let error = error.to_string();
            let error = visible::lines(&error);
            self.to_stderr(&format!("{} {error}", self.label("error:", "31")));
        }
    }

    /// A problem with one item; the command goes on.
    pub fn problem(&self, item: &str, error: &Error) {
        if self.style.json {
            let message = typed(
                "error",
                json!({
                    "item": item,
                    "kind": exit::kind_name(error.kind()),
                    "message": error.to_string(),
                }),
            );
            self.to_stderr(&visible::json(&message.to_string()));
        } else {
            let problem = format!("{item}: {error}");
            let problem = visible::line(&problem);
            self.to_stderr(&format!("{} {problem}", self.label("error:", "31")));
        }
    }

    /// How far a job is, for programs.
    pub fn status(&self, fields: Value) {
        self.to_stderr(&visible::json(&typed("status", fields).to_string()));
    }

    fn label(&self, text: &str, colour: &str) -> String {
        match self.style.colour && io::stderr().is_terminal() {
            true => format!("\x1b[1;{colour}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }

    fn to_stderr(&self, line: &str) {
        // There is nowhere to report that standard error cannot be written.
        let write = || {
            let _ = writeln!(io::stderr().lock(), "{line}");
        };
        let bar = lock(&self.bar).clone();
        match bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Tells about the progress bar that other lines must not tear.
    pub fn set_bar(&self, bar: Option<ProgressBar>) {
        *lock(&self.bar) = bar;
    }
}

fn typed(message_type: &str, mut fields: Value) -> Value {
    if let Some(object) = fields.as_object_mut() {
        object.insert("message_type".to_owned(), message_type.into());
    }
    fields
}

/// Standard output as the target of a stream of bytes; notices a reader who goes away.
pub struct RawStdout<'a>(pub &'a Output);

impl Write for RawStdout<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = lock(&self.0.stdout).write(bytes);
        if matches!(&result, Err(error) if error.kind() == io::ErrorKind::BrokenPipe) {
            self.0.reader_gone.store(true, Ordering::Relaxed);
            self.0.stopped.store(true, Ordering::Relaxed);
        }
        result
    }

    fn flush(&mut self) -> io::Result<()> {
        lock(&self.0.stdout).flush()
    }
}

/// Listens to a job: shows problems and counts them, and in verbose mode shows items.
pub struct Listener {
    output: Arc<Output>,
    problems: AtomicU64,
    warnings: AtomicU64,
}

impl Listener {
    /// Tells `output` what it hears.
    #[must_use]
    pub fn new(output: Arc<Output>) -> Self {
        Self { output, problems: AtomicU64::new(0), warnings: AtomicU64::new(0) }
    }

    /// Warnings heard of so far.
    #[must_use]
    pub fn warnings(&self) -> u64 {
        self.warnings.load(Ordering::Relaxed)
    }

    /// Problems heard of so far.
    #[must_use]
    pub fn problems(&self) -> u64 {
        self.problems.load(Ordering::Relaxed)
    }
}

impl Observer for Listener {
    fn problem(&self, item: &str, error: &Error) {
        self.problems.fetch_add(1, Ordering::Relaxed);
        self.output.problem(item, error);
    }

    fn warning(&self, item: &str, what: &'static str) {
        if self.warnings.fetch_add(1, Ordering::Relaxed) < WARNINGS_SHOWN {
            self.output.warning(&format!("{item}: {what}"));
        }
    }

    fn item(&self, item: &str, what: &'static str) {
        if !self.output.style.verbose {
            return;
        }
        // What an observer meets stops no job; standard output is checked again at the end.
        let _ = self.output.row(&format!("{what:<10} {item}"));
        let fields = json!({ "action": what, "item": item });
        let _ = self.output.message("item", fields);
    }
}

/// Adds a path to a JSON object: as text where it is text, else escaped, with its bytes beside it.
pub fn put_path(object: &mut Value, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object[name] = text.into(),
        Err(_) => {
            object[name] = path::display(bytes).into();
            object[format!("{name}_hex")] = hex::encode(bytes).into();
        }
    }
}
